"""AdaptLR, Figure 6 and the two examples of appendix E: α*_lim from moments, exactly."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from innerloop.report.plots.panels import Panel, line, panel, panels_figure
from innerloop_studies.papers.adaptlr import examples
from innerloop_studies.papers.figures import loglog
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "AdaptLR, Figure 6 and Examples 1 and 2 (appendix E): α*_lim from moments, exactly"
VERSION = 1
DIM = 50
SAMPLES = (1, 50)
VARIANCES = tuple(Fraction(10) ** k for k in range(-3, 3))
SIZE = 5  # dimension along the variances

MOMENTS: dict[str, list[float]] = {  # E[Y^k] for k = 0 … 6; all have mean 0 and variance 1
    "normal": [float(m) for m in examples.normal_moments(7, 1.0)],
    "uniform": [1, 0, 1, 0, 9 / 5, 0, 27 / 7],
    "±1": [1, 0, 1, 0, 1, 0, 1],
}
DIMS, LARGE = [1, 2, 5, 10, 20, 50], 2000  # of Example 2: for K = 1, and for K = d

WEIGHTS = {"g1": (1, 1), "g2": (3, 1, 2), "g3": (1, 1, 1)}
"""Of Figure 6's g₁, g₂ and g₃: how many terms each moment has at d = :data:`DIM`."""


def polynomials(dims: list[int]) -> dict[str, Any]:
    """Rates of Example 1 by number of samples ("K = 1"), from rational numbers."""

    def rates(traces: Any, sizes: Sequence[int], variances: Sequence[Fraction]) -> dict[str, list[float]]:
        return {f"K = {k}": [traces(d, k, v).rate for d in sizes for v in variances] for k in SAMPLES}

    one, exact, printed = [Fraction(1)], examples.polynomial_traces, examples.printed_polynomial_traces
    along: dict[str, Any] = {"along σ²": rates(exact, [SIZE], VARIANCES)}
    along["along d, σ² = 1"] = rates(exact, dims, one)
    along["along d, σ² = 0.1"] = rates(exact, dims, [Fraction(1, 10)])
    for name, traces in (("as printed, d = 3", printed), ("exact, d = 3", exact)):
        along[name] = {k: v[0] for k, v in rates(traces, [3], one).items()}
    return {"variances": [float(v) for v in VARIANCES], "dims": dims, **along}


def matrices() -> dict[str, Any]:
    """Rates of Example 2 by law of the entries, from sums over coinciding indices."""
    laws: dict[str, dict[str, Any]] = {}
    for name, moments in MOMENTS.items():
        exact = [examples.independent_traces(moments, 1, d).rate for d in DIMS]
        large = examples.independent_traces(moments, LARGE, LARGE).rate
        laws[name] = {"printed, K = 1": moments[4] / (2 * moments[6]), "exact, K = 1": exact, "large": large}
        laws[name]["E[Y⁴]/E[Y⁶]"] = moments[4] / moments[6]
    return {"dims": DIMS, "K = d": LARGE, **laws}


def run(scale: str, say: Say) -> Reproduction:
    """Everything is exact: rational numbers for Example 1, sums over coinciding indices for Example 2."""
    dims = list(range(1, {"smoke": 6, "cpu": 16, "paper": 21}[scale]))
    six = {name: examples.counts(weights, DIM) for name, weights in WEIGHTS.items()}
    one, two = polynomials(dims), matrices()
    data = {"figure 6": six, "example 1": one, "example 2": two}
    for name, part in data.items():
        say(f"{name}: {', '.join(part)}")
    rows = [*_figure_rows(six), *_example_1(one), *_example_2(two)]
    protocol = {
        "arithmetic": "exact",
        "Example 1": f"x ~ N(0, σ²), d = {SIZE} along σ², σ² = 1 and 0.1 along d",
        "Example 2": ", ".join(MOMENTS) + " entries of mean 0 and variance 1",
        "seeds": "none",
    }
    figure = panels_figure(_panels(six, one, two), columns=3)
    return Reproduction(rows, {"adaptlr-fig6": figure}, data, protocol)


def _figure_rows(counted: dict[str, list[int]]) -> list[Row]:
    g1, g2, g3 = counted.values()
    closed = [[examples.printed_g1(d, i) for i in range(2 * d - 1)] for d in range(1, DIM + 1)]
    same = closed == [examples.counts((1, 1), d) for d in range(1, DIM + 1)]
    small = [i for i, g in enumerate(g1) if g2[2 * i] <= g]
    what = f"Figure 6, d = {DIM}: g₂ and g₃ reach the heights and lengths that are drawn"
    paper = "axes: 800 at most 300 along, 1750 at most 140 along"
    said = f"g₂ {max(g2)}, {len(g2)} long; g₃ {max(g3)}, {len(g3)} long; g₁ {max(g1)}, {len(g1)} long"
    holds = 800 <= max(g2) < 1000 and len(g2) <= 300 and 1750 <= max(g3) < 2000 and len(g3) <= 160
    why = "g₂ counts 3j + m + 2l, g₃ counts j + m + l; a drawn axis ends within a tick of its last"
    rows = [row(what, paper, said, holds, reason=why)]
    what = f"E.5: the closed form of g₁ counts the terms of each moment, d = 1 … {DIM}"
    paper, said = "C(i + 1, 1) − 2C(i − d + 1, 1)", "the same" if same else "not the same"
    why = "with C(n, 1) = 0 for negative n, which the paper leaves out"
    rows.append(row(what, paper, said, same, reason=why))
    what = "E.5: the coefficient of every moment is larger in the denominator"
    said = f"not for E[x^k], k = {', '.join(str(2 * i) for i in small)}; larger for the other "
    said += f"{len(g1) - len(small)}"
    why = "the lowest moments have as many terms; they decide where σ → 0"
    return [*rows, row(what, "larger", said, not small, fails=why)]


def _falls(values: list[float]) -> bool:
    return all(b < a for a, b in pairwise(values))


def _example_1(example: dict[str, Any]) -> list[Row]:
    rows, variances = [], example["variances"]
    for name, rates in example["along σ²"].items():
        logs = [(math.log(a), math.log(b)) for a, b in zip(variances, rates, strict=True)]
        slopes = [(d - b) / (c - a) for (a, b), (c, d) in pairwise(logs)]  # between neighbours
        what = f"Example 1, d = {SIZE}, {name}"
        ours = f"{rates[0]:.3g} at σ² = {variances[0]:g}, {rates[-1]:.2g} at {variances[-1]:g}"
        rows.append(row(f"{what}: α*_lim falls as σ² grows", "inverse relationship", ours, _falls(rates)))
        order = f"{what}: it is of order 1/σ² as σ → 0 (E.5, E.6)"
        said = f"slope {slopes[0]:.2g} at the smallest σ², where α → ½; {slopes[-1]:.2f} at the largest"
        why = "E[x⁰] = 1 stands above and below (E.6 leaves it out); the order is 0, and 1 − d for large σ². "
        why += "As an upper bound O(1/σ²) is true and says nothing"
        rows.append(row(order, "O(1/σ²): slope −1", said, abs(slopes[0] + 1) < 0.1, fails=why))
    for v, expected in (("1", (True, True)), ("0.1", (True, False))):
        for (name, rates), holds in zip(example[f"along d, σ² = {v}"].items(), expected, strict=True):
            ours = listed(rates[:5]) + f" for d = 1 … 5; {rates[-1]:.2g} at the last"
            what = f"Example 1, σ² = {v}, {name}: α*_lim falls as d grows"
            reason = "" if holds else "it rises from d = 1 to 2 and from 3 to 4, by less than a hundredth"
            rows.append(row(what, "inverse relationship", ours, _falls(rates), expected=holds, reason=reason))
    exact, printed = example["exact, d = 3"], example["as printed, d = 3"]
    ours = "; ".join(f"{k}: {printed[k]:.4g} from the printed, {exact[k]:.4g} from the trace" for k in exact)
    same = all(math.isclose(exact[k], printed[k], rel_tol=1e-6) for k in exact)
    reason = "its indices make S_jm S_jl S_jl; the trace of a cube is S_jm S_ml S_lj. "
    reason += "Rows above use the trace"
    what = "Example 1, d = 3, σ² = 1: E.4 is tr E[S³]"
    return [*rows, row(what, "equal", ours, same, fails=reason)]


DROPPED = "E.12 drops all terms with two or three columns: E S² has d² of them, E S³ has d³"


def _ratios(laws: dict[str, Any]) -> dict[str, list[float]]:
    """Exact over printed rates, by law."""
    return {n: [r / laws[n]["printed, K = 1"] for r in laws[n]["exact, K = 1"]] for n in MOMENTS}


def _example_2(example: dict[str, Any]) -> list[Row]:
    ratio = _ratios(example)
    large = {name: example[name]["large"] for name in MOMENTS}
    share = {name: large[name] / example[name]["E[Y⁴]/E[Y⁶]"] for name in MOMENTS}
    constant = max(share.values()) < 1.1 * min(share.values())
    rows = []
    for i, what, why in (
        (0, "Example 2, K = 1, d = 1: α*_lim = E[Y⁴] / 2E[Y⁶] (E.12)", ""),
        (-1, f"Example 2, K = 1, d = {DIMS[-1]}: the same, for any d", DROPPED),
    ):
        said = "exact / printed: " + ", ".join(f"{name} {r[i]:.3f}" for name, r in ratio.items())
        rows.append(row(what, "equal", said, all(math.isclose(r[i], 1) for r in ratio.values()), fails=why))
    what = f"Example 2, K = d = {LARGE}: α*_lim goes with E[Y⁴]/E[Y⁶] (E.13)"
    said = "α*_lim / that: " + ", ".join(f"{n} {share[n]:.3f} (α*_lim {large[n]:.4f})" for n in share)
    why = "only E[Y²] is left in the limit: K(K + d) / 2(K² + 3Kd + d²)E[Y²], 0.2 here for all"
    return [*rows, row(what, "the same factor for all laws", said, constant, fails=why)]


def _panels(six: dict[str, list[int]], one: dict[str, Any], two: dict[str, Any]) -> list[Panel]:
    def some(**counted: list[int]) -> Panel:
        lines = [line(name, range(len(values)), values) for name, values in counted.items()]
        return panel(f"index (d = {DIM})", "coefficients " + ", ".join(counted), lines)

    sigma = [line(k, one["variances"], rates) for k, rates in one["along σ²"].items()]
    dims = [line(k, one["dims"], rates) for k, rates in one["along d, σ² = 1"].items()]
    single = [line(name, DIMS, ratios) for name, ratios in _ratios(two).items()]
    return [
        some(g1=six["g1"], g2=six["g2"]),
        some(g1=six["g1"], g3=six["g3"]),
        loglog("σ²", f"Example 1: α*_lim, d = {SIZE}", sigma),
        panel("d", "Example 1: α*_lim, σ² = 1", dims, log_y=True),
        loglog("d", "Example 2, K = 1: exact / printed α*_lim", single),
    ]
