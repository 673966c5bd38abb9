"""What `inner.lr=auto` loses on problems that were used neither to find nor to choose its rule."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from innerloop_studies.papers.further import rates
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, listed, row

TITLE = "inner.lr=auto on Omniglot and Tiny-ImageNet, which no rule was chosen on (ours)"
VERSION = 1
NAME = "rate-unseen"
STEPS, SHOTS, NORMS = (1, 3, 5, 10), (1, 5), ("transductive", "none")

Forms = Mapping[str, float]
RULES: Mapping[str, Callable[[Forms, int], float]] = {
    "the middle of the bracket": lambda forms, steps: _middle(forms) / math.sqrt(steps),
    "its upper end": lambda forms, steps: forms["trace"] / math.sqrt(steps),
    "twice its upper end": lambda forms, steps: 2 * forms["trace"] / math.sqrt(steps),
    "its lower end": lambda forms, steps: forms["gradient"] / math.sqrt(steps),
    "the middle, divided by the steps": lambda forms, steps: _middle(forms) / steps,
    "the middle, not divided": lambda forms, _: _middle(forms),
    "both forms for all steps": lambda forms, _: math.sqrt(forms["gradient, all"] * forms["trace, all"]),
    "one over the root of the steps, whatever the features": lambda _, steps: 1 / math.sqrt(steps),
}
"""A rate from the gradient form and the trace form, of one step and of all, and the number of steps."""


def _middle(forms: Forms) -> float:
    return math.sqrt(forms["gradient"] * forms["trace"])


def rule_of(case: rates.RateProblem) -> str:
    """Which of the rules ``auto`` follows: it was chosen on the problems of ``rate-regret``."""
    return "the middle of the bracket" if case.normalised else "its upper end"


class Unseen(NamedTuple):
    """A problem, and what other rules would have made of its two forms."""

    entry: rates.RateEntry
    forms: Forms

    def rules(self) -> dict[str, float]:
        """The regret of every rule, read off between the rates of the grid."""
        steps = self.entry.case.steps
        return {name: self.entry.between(rule(self.forms, steps)) for name, rule in RULES.items()}

    def as_dict(self) -> dict[str, Any]:
        """For files."""
        return {**self.entry.as_dict(), "forms": dict(self.forms), "rules": self.rules()}


def cases(scale: str) -> list[rates.RateProblem]:
    """All of them, 32; at smoke scale one on the embedded glyphs."""
    if scale == "smoke":
        return [rates.RateProblem("glyphs", 5, "transductive", 3, 2)]
    chosen = itertools.product(("omniglot", rates.PHOTOGRAPHS), SHOTS, NORMS, STEPS)
    return [rates.RateProblem(data, 5, norm, steps, shots) for data, shots, norm, steps in chosen]


def run(scale: str, say: Say) -> Reproduction:
    """Trains at every rate of the grid and at ``auto``; two runs at a time, one thread each."""
    chosen, size = cases(scale), rates.SIZES[scale]
    results = rates.train_all(NAME, VERSION, rates.jobs_of(chosen, size), say)
    seeds = size[-1]
    table = [Unseen(rates.summary(case, results, seeds), _forms(case, seeds)) for case in chosen]
    protocol = {**rates.stated(size), "queries": rates.QUERIES}
    rows = _smoke_rows(table) if scale == "smoke" else _rows(table)
    figure = rates.table_figure([one.entry for one in table])
    return Reproduction(rows, {NAME: figure}, {"table": [one.as_dict() for one in table]}, protocol)


def _forms(case: rates.RateProblem, seeds: int) -> dict[str, float]:
    """Geometric means over seeds."""
    jobs = [{"case": case, "seed": seed} for seed in range(seeds)]
    each = list(compute_parts(NAME, VERSION, rates.estimated, jobs, seen=rates.seen))
    return {name: statistics.geometric_mean(forms[name] for forms in each) for name in each[0]}


def _smoke_rows(table: Sequence[Unseen]) -> list[Row]:
    """What must hold however little was trained: shares of so many queries, and the rate of the formula."""
    pairs = [(e.rate, RULES[rule_of(e.case)](forms, e.case.steps)) for e, forms in table]
    same = all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)
    said = ", ".join(f"{a:.6g} and {b:.6g}" for a, b in pairs)
    counts = counts_row(rates.answers([one.entry for one in table]))
    return [counts, row("auto trains at the point of the two forms", "equal", said, same)]


KINDS = ((True, "batch norm"), (False, "no normalisation"))


def _rows(table: Sequence[Unseen]) -> list[Row]:
    """``auto`` by kind of problem against the aim; then beside other rules, in hindsight."""
    rows = []
    for (normalised, words), shots in itertools.product(KINDS, SHOTS):
        some = [e for e, _ in table if e.case.normalised is normalised and e.case.shots == shots]
        rows.append(_against_aim(f"auto, {words}, {shots}-shot", [e.regret for e in some]))
    rows.append(_against_aim("auto, all", [one.entry.regret for one in table]))
    for normalised, words in KINDS:
        rows.append(_against_rules(words, [one for one in table if one.entry.case.normalised is normalised]))
    return [*rows, _divisor(table)]


def _divisor(table: Sequence[Unseen]) -> Row:
    """By what the forms for all steps are smaller than those for one, where there are most steps."""
    many = max(entry.case.steps for entry, _ in table)
    some = [forms for entry, forms in table if entry.case.steps == many]
    by = {form: [each[form] / each[f"{form}, all"] for each in some] for form in ("gradient", "trace")}
    middle = [math.sqrt(g * t) for g, t in zip(by["gradient"], by["trace"], strict=True)]
    means = {name: statistics.geometric_mean(values) for name, values in {**by, "middle": middle}.items()}
    nearest = min((1, math.sqrt(many), many), key=lambda d: abs(math.log(means["middle"] / d)))
    said = ", ".join(f"{name} {mean:.1f}" for name, mean in means.items())
    said += f" (geometric means); the middle from {min(middle):.1f} to {max(middle):.1f}"
    what = f"in closed form the middle for {many} steps is that for one divided by about the root of {many}"
    paper = f"gradient at most {many}, trace 1, middle {math.sqrt(many):.1f}"
    why = "holds if the root is nearer than one and than the number of steps"
    return row(what, paper, said, nearest == math.sqrt(many), fails=why)


def _against_rules(words: str, table: Sequence[Unseen]) -> Row:
    """The rule of ``auto`` beside others, all of them read off between the rates of the grid."""
    by_problem, in_use = [one.rules() for one in table], rule_of(table[0].entry.case)
    regrets = {name: [100 * each[name] for each in by_problem] for name in RULES}
    means = {name: statistics.fmean(values) for name, values in regrets.items()}
    each = {name: (statistics.median(values), means[name], max(values)) for name, values in regrets.items()}
    said = "; ".join(f"{name} {listed(numbers, '.1f', ' / ')}" for name, numbers in each.items())
    what = f"{words}: of all rules the one in use loses least on average (between grid rates, in hindsight)"
    least, expected = means[in_use] <= min(means.values()), table[0].entry.case.normalised
    return row(what, in_use, f"median / mean / worst in points: {said}", least, expected=expected)


def _against_aim(what: str, regrets: Sequence[float]) -> Row:
    middle, worst = statistics.median(regrets), max(regrets)
    within = sum(regret <= rates.MEDIAN for regret in regrets)
    values = f"median {100 * middle:.1f}, mean {100 * statistics.fmean(regrets):.1f}, worst {100 * worst:.1f}"
    said = f"{values} points; {within} of {len(regrets)} within one"
    aim, holds = "aim: median within 1 point, worst within 3", rates.is_met(regrets)
    return row(what, aim, said, holds, expected=what not in FAILS)


FAILS = ("auto, batch norm, 5-shot", *(f"auto, no normalisation, {n}-shot" for n in SHOTS), "auto, all")
"""What misses the aim at `cpu`: there the median is within a point over all problems, the worst is not."""
