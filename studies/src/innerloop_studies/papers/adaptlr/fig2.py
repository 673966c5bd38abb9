"""AdaptLR, Figure 2: over-parametrised quadratic regression on a wide net's tangents."""

from typing import Any

import torch
from torch import Tensor

from innerloop.core import Draws, TaskBatch
from innerloop.report.plots.panels import line, mark, panel, panels_figure
from innerloop.tasks.families import bernacchia_quadratic
from innerloop_studies.papers.adaptlr.shared import WideNet, seeded, tangent_entries, tangent_gram, wide_net
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "AdaptLR, Figure 2: over-parametrised quadratic regression, loss against α, and H.15"
VERSION = 1
RIDGE = 1.0  # the variance of the labels' noise: interpolating it (least norm) gives losses in the hundreds

CASES = (("uniform", 23, 68), ("uniform", 7, 112), ("normal", 15, 50), ("normal", 19, 85))


def run(scale: str, say: Say) -> Reproduction:
    """Ridge solution on all training samples, then one step of size α on each test task."""
    # the best step falls as 1/width and H.15 does not: near a thousand units they meet by accident
    width, tests = {"smoke": (4000, 40), "cpu": (10_000, 200), "paper": (10_000, 1000)}[scale]
    cases: dict[str, dict[str, Any]] = {}
    rows, panels = [], []
    for i, (law, k, n) in enumerate(CASES):
        name = f"{law} weights, K = {k}, N = {n}"
        cases[name] = case = _case(law, k, n, width, tests, seed=i)
        say(f"{name}: " + ", ".join(f"{key} {case[key]:.3g}" for key in ("best", "h15", "h14", "h1")))
        rows += _rows(name, case)
        curve = line("loss after one step", case["rates"], case["losses"], half=case["half"])
        panels.append(panel("α", name, [curve], [mark("optimum", case["best"]), mark("H.1", case["h1"])]))
    sizes = {"width": width, "parameters": 3 * width + 1, "test tasks": tests}
    protocol = {
        **sizes,
        "solution": "ridge 1, the noise variance (the paper: least norm)",
        "tasks": "Bernacchia's quadratic family, p = 1, σ = 1, ν = 0.5",
        "weights": "U(−1, 1) or N(0, 1), standard parametrisation (the paper does not give the scale)",
        "seeds": "0 … 3",
    }
    return Reproduction(rows, {"adaptlr-fig2": panels_figure(panels)}, cases, protocol)


def _rows(name: str, case: dict[str, Any]) -> list[Row]:
    said = f"H.15 {case['h15']:.3g}, optimum {case['best']:.3g}; loss there {case['there']:.3g}, "
    said += f"least {case['least']:.3g}, unadapted {case['before']:.3g}"
    what, near = f"{name}: the estimate H.15 is nearly optimal", case["there"] < 1.1 * case["least"]
    why = "H.15 scales as 1/(NK), while the best step of one task does not know N"
    found = f"{case['best']:.3g}; H.1 gives {case['h1']:.3g} (loss {case['at_h1']:.3g})"
    return [
        row(what, "nearly optimal", said, near, fails=why),
        row(f"{name}: the optimal α is positive", "positive", found, case["best"] > 0),
    ]


def _tasks(seed: int, count: int, shots: int) -> TaskBatch:
    draws = Draws(seed, list(range(count)), dtype=torch.float64)
    batch = bernacchia_quadratic(draws, shots, shots, dim=1, sigma=1.0, nu=0.5)
    # a column of ones for the first layer's bias: 3 · width + 1 parameters, as in the paper
    x_s, x_q = (torch.cat([x, torch.ones_like(x)], -1) for x in (batch.x_support, batch.x_query))
    return batch._replace(x_support=x_s, x_query=x_q)


def _case(law: str, k: int, n: int, width: int, tests: int, seed: int) -> dict[str, Any]:
    """Losses after one step along the rates of the grid; the estimates, and the losses there."""
    net = wide_net(seeded(seed), 2, width, law)
    train, test = _tasks(seed, n, k), _tasks(1000 + seed, tests, k)
    x, y = train.x_support.flatten(0, 1), train.y_support.flatten(0, 1)
    gram = tangent_gram(net, x, x)
    dual = torch.linalg.solve(gram + RIDGE * torch.eye(n * k, dtype=x.dtype), y)
    above, below, before = _parts(net, test, x, dual)
    best = float(above.mean() / below.mean())
    rates = torch.linspace(-0.5 * best, 2.5 * best, 25, dtype=x.dtype)
    curves = before - 2 * rates[:, None] * above + rates[:, None] ** 2 * below
    cross = tangent_gram(net, test.x_support, test.x_query)
    own = tangent_gram(net, test.x_support, test.x_support)
    h1 = k / 2 * float(cross.square().sum() / ((cross @ cross.mT) * own).sum())
    h15 = 1 / (2 * n * k * tangent_entries(net, x))
    h14 = n * k * float((gram * gram).sum()) / (2 * float(((gram @ gram) * gram).sum()))

    def at(rate: float) -> float:
        return float((before - 2 * rate * above + rate**2 * below).mean())

    half, estimates = (1.96 * curves.std(1) / tests**0.5).tolist(), {"h15": h15, "h14": h14, "h1": h1}
    along = {"rates": rates.tolist(), "losses": curves.mean(1).tolist(), "half": half}
    losses = {"least": at(best), "before": at(0.0), **estimates, "there": at(h15), "at_h1": at(h1)}
    return {**along, "best": best, **losses}


def _parts(net: WideNet, test: TaskBatch, x: Tensor, dual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every test task: the three coefficients of its query loss as a polynomial in α."""
    k = test.x_support.shape[1]
    r_s = tangent_gram(net, test.x_support, x) @ dual - test.y_support
    r_q = tangent_gram(net, test.x_query, x) @ dual - test.y_query
    moved = 2 / k * tangent_gram(net, test.x_query, test.x_support) @ r_s
    mean = (1, 2)
    return (moved * r_q).mean(mean), moved.square().mean(mean), r_q.square().mean(mean)
