"""Tables and numbers of benchmarks, evaluations, validations of scores, measurements and printed commands."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import comb
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.statistics import mean_interval
from innerloop_studies.measurements import proximal as measure_proximal
from innerloop_studies.measurements import sureness as measure_sureness
from innerloop_studies.recorded import duration, interval, required, table

# ---- benchmarks: ourselves beside peers, case by case, with the machine that measured ----


def cases(name: str, *patterns: str) -> str:
    """Every case of a benchmark, or those that fit a pattern."""
    every = required("benchmarks", name)["cases"]
    rows = [case_line(one) for one in every if any(fnmatchcase(one["case"], p) for p in patterns or ["*"])]
    used = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    return table(used, [[row[name] for name in used] for row in rows])


def case_line(case: dict[str, Any]) -> dict[str, str]:
    """A case as the cells of a table; what was not measured is empty."""
    ratio, share = case.get("ratio"), case.get("sgemm_share")
    memory = [value for key in ("ours_mb", "peer_mb") if (value := case.get(key)) is not None]
    return {
        "case": case["case"],
        "against": str(case.get("peer") or ""),
        "ours": elapsed(case.get("ours_ms")),
        "the other": elapsed(case.get("peer_ms")),
        "ratio": f"**{times(ratio)}**" if ratio is not None else "",
        "aim": aim_of(case),
        "share of sgemm": f"{100 * share:.0f} %" if share is not None else "",
        "peak memory, ours / other": " / ".join(f"{value:,.0f}" for value in memory) + " MB" * bool(memory),
        "notes": case.get("notes") or "",
    }


def aim_of(case: dict[str, Any]) -> str:
    """What we promise of a ratio, and whether it is kept."""
    ratio, least, most = (case.get(key) for key in ("ratio", "at_least", "at_most"))
    if least is not None:
        return f"{least:g}×" + (", not reached" if ratio is not None and ratio < least else "")
    if most is not None:
        return f"at most {most:g}×" + (", not kept" if ratio is not None and ratio > most else "")
    return ""


def elapsed(milliseconds: float | None) -> str:
    """A time with three digits at most."""
    if milliseconds is None:
        return ""
    units = (120_000, 60_000, "min"), (999.5, 1000, "s"), (0, 1, "ms")  # from when, in what, its name
    value, unit = next((milliseconds / one, name) for start, one, name in units if milliseconds >= start)
    return f"{value:.{0 if value >= 99.95 else 1}f} {unit}"


def times(ratio: float) -> str:
    """A ratio, with two digits where they matter."""
    return f"{ratio:.2f}×" if ratio < 9.995 else f"{ratio:.0f}×"


def ratio(name: str, case: str, peer: str = "*") -> str:
    """The ratio of one case, for a line of text."""
    return times(one_case(name, case, peer)["ratio"])


def memory(name: str, case: str, peer: str = "*") -> str:
    """Our peak memory over the other's in one case, for a line of text."""
    fitting = one_case(name, case, peer)
    return times(fitting["ours_mb"] / fitting["peer_mb"])


def one_case(name: str, case: str, peer: str) -> dict[str, Any]:
    """The case that both patterns fit."""
    titled = [one for one in required("benchmarks", name)["cases"] if fnmatchcase(one["case"], case)]
    fitting = [one for one in titled if fnmatchcase(str(one.get("peer")), peer)]
    if len(fitting) != 1:
        raise UserError(f"{len(fitting)} cases of {name} are '{case}' against '{peer}'; there must be one.")
    return dict(fitting[0])


def growth(name: str) -> str:
    """Seconds of predictions by the number of training samples, a line for each method."""
    grown = required("benchmarks", name)["growth"]
    exponents = grown.get("exponent", {})
    lines = []
    for method, seconds in grown["seconds"].items():
        exponent = f"{exponents[method]:.1f}" if exponents else ""
        lines.append((method, *(f"{value:.2g} s" for value in seconds), exponent))
    head = ("training samples N·n", *(f"{count:,}" for count in grown["points"]), "exponent at the end")
    return table(head, lines)


def machine(name: str) -> str:
    """Where and when a benchmark was measured, for a line of text."""
    measured = required("benchmarks", name)
    where, day = measured["machine"], measured["ended"][:10]
    cores = "1 core" if where["cores"] == 1 else f"{where['cores']} cores"
    sgemm = ", ".join(f"{value:.0f} on {threads}" for threads, value in where["sgemm_gflops"].items())
    torch = where["torch"].partition("+")[0]
    return f"{where['cpu']}, {cores}, torch {torch}; sgemm in GFLOP/s by threads: {sgemm}; {day}"


# ---- evaluations: what shipped recipes reach ----


def runs_of(name: str) -> list[dict[str, Any]]:
    """The runs of an evaluation."""
    return list(required("evaluations", name)["runs"])


def adaptation(*names: str) -> str:
    """Scores after every inner step, a line for each run; the last one with its interval over tasks."""
    lines: list[Sequence[str]] = []
    for name, title in titled(names):
        runs = runs_of(name)
        for run in runs:
            *before, last = run["by_step"]
            cells = [f"{step['mean']:.3f}" for step in before] + [interval(last, digits=3)]
            over = f"**{over_seeds(runs)}**" if run is runs[-1] else ""
            lines.append((f"{title}, seed {run['protocol']['train_seed']}", *cells, over))
    steps = [str(step["steps"]) for step in runs[0]["by_step"]]
    return table(("after inner steps", *steps, "over seeds"), lines)


def titled(names: Iterable[str]) -> list[tuple[str, str]]:
    """Names with titles."""
    return [(name, title or name) for name, _, title in (word.partition("=") for word in names)]


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> str:
    """The mean of several runs with its interval over them (Student's t)."""
    return interval(mean_interval([run["mean"] for run in runs])._asdict(), digits=3)


def score(name: str, which: str = "") -> str:
    """The score of an evaluation, for a line of text: over seeds, or over the tasks of one run."""
    runs = [further_evaluation(name, which)] if which else runs_of(name)
    return over_seeds(runs) if len(runs) > 1 else one_score(runs[0])


def further_evaluation(name: str, which: str) -> dict[str, Any]:
    """One of the further judgements of an evaluation."""
    return dict(required("evaluations", name)["also"][which])


def one_score(judged: Mapping[str, Any]) -> str:
    """The score of one judgement, with its interval over tasks: accuracies in per cent."""
    return f"{interval(judged, 100)} %" if judged["score"] == "accuracy" else interval(judged, digits=2)


def lead(name: str, which: str) -> str:
    """By how many points a further judgement is above that of the training, task by task."""
    told = further_evaluation(name, which)["comparison"]
    return interval({"mean": told["difference"], "ci95": told["ci95"]}, 100)


def untrained(name: str, which: str) -> str:
    """What needs no training, on the first tasks of an evaluation."""
    told = {one["name"]: one for one in runs_of(name)[0]["baselines"]}
    return f"{interval(told[which], 100)} %"


def by_rate(name: str) -> str:
    """The score at every inner rate of a sweep, the best one in bold, for a line of text."""
    runs = sorted(runs_of(name), key=lambda run: run["protocol"]["inner_lr"])
    best = (max if runs[0]["score"] == "accuracy" else min)(runs, key=lambda run: run["mean"])
    texts = ((f"{run['protocol']['inner_lr']:g}: {one_score(run)}", run is best) for run in runs)
    return "; ".join(f"**{text}**" if bold else text for text, bold in texts)


def validations(name: str) -> str:
    """What the validations of a training gave, with their intervals over tasks."""
    run = runs_of(name)[0]
    steps = [f"{one['step']:,}" for one in run["validations"]]
    scores = [one_score({**one, "score": run["score"]}) for one in run["validations"]]
    return table(("meta-step", *steps), [("validation", *scores)])


def reported(name: str, what: str) -> str:
    """What a learner reported with its last line, such as ``inner_residual``, for a line of text."""
    return f"{runs_of(name)[0]['reported'][what]:.2g}"


def weights(name: str) -> str:
    """Which weights of a run were judged."""
    return str(runs_of(name)[0]["protocol"]["weights"])


def time(name: str) -> str:
    """What the runs of an evaluation took on average, by the clock, for a line of text."""
    seconds = [run["seconds"] for run in runs_of(name)]
    return "not timed" if None in seconds else duration(sum(seconds) / len(seconds))


# ---- predictions: what scores without training say of accuracies ----

MINUS = str.maketrans("-", "−")


def predictions(*names: str) -> str:
    """A line for each score, those with the highest mean ρ first; pairs of numbers are in order of names."""
    kept = {title: rows_of(name) for name, title in titled(names)}
    scores = [score for score in next(iter(kept.values())) if all(score in rows for rows in kept.values())]
    scores.sort(key=lambda score: -sum(rows[score]["spearman"]["value"] for rows in kept.values()))
    lines = []
    for score in scores:
        rows = [some[score] for some in kept.values()]
        told = [bounded(row["spearman"]) for row in rows]
        told.append(pair([row["better_half"]["spearman"]["value"] for row in rows]))
        told.append(pair([row["ndcg"]["value"] for row in rows]))
        told.append(pair([100 * row["regret"]["value"] for row in rows], digits=1))
        told.append(pair([row["tau_between_repeats"] for row in rows]))
        lines.append((f"`{score}`", *told))
    head = ("in the better half", "nDCG", "regret, points", "τ between repeats")
    return table(("score", *(f"ρ, {title}" for title in kept), *head), lines)


def rows_of(name: str) -> dict[str, dict[str, Any]]:
    """The table of a validation, by score."""
    return {row["score"]: row for row in required("predictions", name)["table"]}


def bounded(estimate: Mapping[str, float]) -> str:
    """An estimate with its interval."""
    value, low, high = (f"{estimate[key]:.2f}".translate(MINUS) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def pair(values: Sequence[float | None], digits: int = 2) -> str:
    """Numbers side by side."""
    return "; ".join("–" if one is None else f"{one:.{digits}f}".translate(MINUS) for one in values)


def accuracies(name: str) -> str:
    """What the candidates of a validation reached, for a line of text."""
    reached = [100 * one for one in required("predictions", name)["accuracies"]]
    return f"between {min(reached):.1f} and {max(reached):.1f} % (mean {sum(reached) / len(reached):.1f})"


def repeatable(name: str) -> str:
    """How far the order of accuracies would be repeated on other tasks: a correlation."""
    return f"{required('predictions', name)['reliability']['accuracy']:.2f}"


def beyond_chance(*names: str) -> str:
    """Which scores predict beyond chance: those whose interval of ρ lies above zero, for a line of text."""
    told = []
    for name, title in titled(names):
        good = [f"`{score}`" for score, row in rows_of(name).items() if row["spearman"]["low"] > 0]
        told.append(f"{', '.join(good) or 'none'} on {title}")
    return "; ".join(told)


def prediction(name: str, score: str, what: str) -> str:
    """One number of a validation, for a line of text."""
    estimate = rows_of(name)[score][what]
    return f"{100 * estimate['value']:.1f}" if what == "regret" else bounded(estimate)


def at_random(name: str, tried: str = "1") -> str:
    """By how many points the best of some cells picked at random is below the best of all, on average."""
    return f"{100 * shortfall(required('predictions', name)['accuracies'], int(tried)):.1f}"


def shortfall(accuracies: Sequence[float], tried: int) -> float:
    """By how much the best of some picked at random is below the best of all, on average."""
    # the one in place i of an ascending order is the best of those picked if all others lie below it
    ordered = sorted(accuracies)
    ways = comb(len(ordered), tried)
    return ordered[-1] - sum(value * comb(i, tried - 1) for i, value in enumerate(ordered)) / ways


# ---- measurements, and what commands print for people ----


def sureness(name: str) -> str:
    """How right and how sure a pretrained backbone is, a line for each set of pictures."""
    return measure_sureness.table(required("measurements", name)["rows"])


def sure(name: str, pictures: str, what: str) -> str:
    """One number of it with its interval, in per cent, for a line of text."""
    rows = required("measurements", name)["rows"]
    (one,) = (row[what] for title, row in rows.items() if title.startswith(pictures))
    return f"{interval(one, 100)} %"


def proximal() -> str:
    """How well iMAML's inner problem is solved, a line for each penalty."""
    return measure_proximal.table(required("measurements", "proximal")["rows"])


def printed(name: str, until: str | None = None) -> str:
    """A command and what it printed, as a block of text."""
    kept = required("printed", name)
    lines = kept["lines"] if until is None else [*kept["lines"][: kept["lines"].index(until)], "…"]
    return "\n".join(["```text", f"$ {kept['command']}", *lines, "```"])
