"""``innerloop search``."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from innerloop.cli.options import Cluster, Jobs, Json, Keys, Quiet, Settings, Trust, check_settings
from innerloop.cli.output import Result, carry_out, score_value, table, table_of_keys, typed_argv, write
from innerloop.core.formatting import duration

Source = Annotated[
    str,
    typer.Argument(
        metavar="DATA|RECIPE",
        help="A dataset, a folder of pictures, an .npz file; or a recipe, its file, a run.",
    ),
]
Check = Annotated[
    bool,
    typer.Option("--validate", help="Do not search; report how well every score predicts on these data."),
]


def search(
    source: Source,
    settings: Settings = None,
    validate: Check = False,
    jobs: Jobs = None,
    cluster: Cluster = None,
    keys: Keys = False,
    trust: Trust = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Find a network for few-shot pictures, and see how much of the choice is signal.

    \b
    Examples:
      innerloop search glyphs budget=60s
      innerloop search cifar-fs budget=30m space.channels=16 score=ntk
      innerloop search cifar-fs-protonet budget=1h k=6 eval.shots=5
      innerloop search my-pictures/ space=convnet budget=10m
      innerloop search cifar-fs --validate budget=20m cells=40
      innerloop search cifar-fs budget=2h --cluster tcp://node1:8786

    Random candidates are ranked by a score that needs no training. The best k of them, and random ones of
    the same size, are trained briefly and judged on the same validation tasks; the worse half is given up,
    and the others go on, until one is left of each kind. The answer is the chosen network as a recipe to
    train in full, and what the score was worth against picking at random at the same cost. Test classes are
    not looked at.

    With --validate nothing is chosen: random candidates are all trained alike, and every score is compared
    with their accuracy.

    Settings of the search are listed by --keys; those of a recipe (tasks.shots=5, seed=1) are taken too.
    After Ctrl-C, `innerloop resume last` goes on. With --cluster the workers of a Dask cluster train the
    candidates; the folder of runs must be one that all of them see (`pip install 'innerloop[cluster]'`).

    \b
    JSON: shortlist (each genotype, from, scores, accuracy, ci95), chosen, worth, reliability, recipe,
    command, seconds, run, report. With --validate: table (each score, spearman, kendall, ndcg, regret,
    better_half), candidates, reliability, seconds, run, report.
    """
    began = time.monotonic()  # importing torch is part of the budget

    def work() -> Result:
        """Lists the settings, or searches."""
        from innerloop.choose.request import read_search, search_keys

        given = check_settings(settings, search, lambda rest: read_search(source, rest, validate=validate))
        if keys:
            return {"keys": search_keys(validate, given)}
        asked = read_search(source, given, validate=validate, trust=trust)
        argv = typed_argv()
        from innerloop.choose.network_search import search_networks

        return search_networks(
            asked, workers=jobs, cluster=cluster, argv=argv, show=not quiet, started=began
        ).as_dict()

    carry_out(json, work, render_search)


def render_search(result: Result) -> None:
    """What a search or a validation found, for people."""
    if "keys" in result:
        table_of_keys("innerloop search DATA key=value", result["keys"])
        return
    (_render_validation if result["validate"] else _render_race)(result)
    over = result["over_budget"]
    late = f", {duration(over)} more than the budget" if over else ""
    write(f"{duration(result['seconds'])}{late}; run: {result['run']}")
    write(f"page: {result['report']}")


def _render_validation(result: Result) -> None:
    rows = []
    for row in result["table"]:
        half = row["better_half"]
        cells = [*(_bounded(row[key]) for key in ("spearman", "kendall")), _bounded(row["ndcg"], "")]
        regret = f"{100 * row['regret']['value']:.1f} ({100 * row['regret']['high']:.1f})"
        rows.append((row["score"], *cells, regret, _bounded(half["spearman"])))
    protocol = result["protocol"]
    title = (
        f"{len(result['candidates'])} random candidates, {result['source']}, {protocol['steps']} steps each: "
        f"{protocol['ways']}-way {protocol['shots']}-shot accuracy on {protocol['episodes']} validation tasks"
    )
    columns = ("score", "Spearman ρ", "Kendall τ", "nDCG", "regret (up to)", "ρ in better half")
    table(title, columns, rows)
    told = result["reliability"]
    write(
        f"accuracies span {100 * told['spread']:.1f} points; their order is repeated on other tasks with ρ = "
        f"{told['accuracy']:.2f}; brackets are 95 % bootstrap intervals over candidates"
    )


def _render_race(result: Result) -> None:
    rows = []
    for entry in result["shortlist"]:
        scores = " ".join(f"{name}={value:.4g}" for name, value in entry["scores"].items())
        reached = score_value("accuracy", entry["accuracy"], entry["ci95"])
        name = f"{entry['name']}{' *' if entry['chosen'] else ''}"
        rows.append((name, scores, entry["parameters"], entry["rungs"][-1]["steps"], reached))
    protocol = result["protocol"]
    title = (
        f"{protocol['ways']}-way {protocol['shots']}-shot accuracy on {protocol['episodes']} validation "
        "tasks, at the last rung that each reached"
    )
    table(
        title, ("candidate", "scores", "parameters", "steps", "accuracy"), rows, right=("parameters", "steps")
    )
    write(result["sentence"])
    write(result["worth"]["sentence"])
    write(result["worth"]["cost"])
    told = result["reliability"]
    if told.get("top_again") is not None:
        write(
            f"another run of the score would name {told['top_again']:.0%} of its {told['top']} again "
            f"(chance: {told['top_chance']:.0%})"
        )
    write(f"train it in full: {result['command']}")


def _bounded(estimate: Result, sign: str = "+") -> str:
    value, low, high = (f"{estimate[key]:{sign}.2f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"
