r"""Theorem 1: at a stationary point of the MAML objective the hard task's gradient is the smaller one.

Lemma 1 gives, with curvatures :math:`\beta_iI\preceq\nabla^2f_i\preceq L_iI`,
:math:`\|\nabla f_1\|\le\frac{(1-\alpha\beta_2)^2}{(1-\alpha L_1)^2}\|\nabla f_2\|+O(\alpha^2)` (printed with
:math:`1-2\alpha\beta_2`, the same up to :math:`O(\alpha^2)`). Where NAL is stationary both norms are equal.
"""

import itertools
from typing import Any

import torch

from innerloop.nets import apply, neurons
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.training import lbfgs
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Landscape, Theorem 1: whose gradient is smaller where MAML ends"
VERSION = 1
DIM, NEURONS = 4, 2
SIZES = {"smoke": (2000, 2, ("softplus",)), "cpu": (10_000, 5, ("relu", "softplus", "sigmoid", "tanh"))}
SIZES["paper"] = (40_000, 10, SIZES["cpu"][2])
"""Samples that stand for the population, pairs of tasks, activations."""
HARD, EASY = 0.25, 1.0
RATES = (0.02, 0.05, 0.1, 0.2)


def run(scale: str, say: Say) -> Reproduction:
    """Two tasks per pair, the hard one with inputs of a quarter of the variance."""
    samples, pairs, activations = SIZES[scale]
    jobs = [{"activation": activation, "samples": samples, "pairs": pairs} for activation in activations]
    values = compute_parts("landscape-theorem1", VERSION, _pairs, jobs)
    by_activation = dict(zip(activations, values, strict=True))
    for activation, solved in by_activation.items():
        smaller = [one["maml"][-1] < 1 for one in solved]
        say(f"{activation}: hard gradient smaller at MAML's point in {sum(smaller)} of {len(smaller)}")
    rows = _rows([one for some in by_activation.values() for one in some])
    curves = []
    for name, some in by_activation.items():
        means = [sum(one["maml"][i] for one in some) / len(some) for i in range(len(RATES))]
        curves.append(line(name, [0.0, *RATES], [1.0, *means]))
    ratio = "‖∇f‖ of the hard task over that of the easy one"
    one = panel("α (NAL: α = 0)", ratio, curves, heights={"NAL's": 1.0})
    protocol = {
        "networks": f"{NEURONS} neurons in {DIM} dimensions, fixed second layer; optima near each other",
        "population": f"{samples} samples per task, the same at every evaluation; full inner step (m = ∞)",
        "hard task": "inputs of variance 0.25 against 1 (the theorem's hardness is a smaller curvature)",
        "stationary points": "L-BFGS from between the optima, tolerance 1e-9",
    }
    figure = panels_figure([one], width=5.0, height=2.9, shared_legend=True)
    return Reproduction(rows, {"landscape-theorem1": figure}, by_activation, protocol)


def _rows(every: list[dict[str, Any]]) -> list[Row]:
    maml = [value for one in every for value in one["maml"]]
    allowed = [value for one in every for value in one["bound"]]
    exact = [v <= b for one in every for v, b in zip(one["after_step"], one["exact_bound"], strict=True)]
    falling = [all(a >= b - 1e-6 for a, b in itertools.pairwise(one["maml"])) for one in every]
    within = [v <= b for one in every for v, b in zip(one["maml"], one["bound"], strict=True)]
    bounds = f"bounds from {min(allowed):.2f} to {max(allowed):.2f}"
    nal, measured = [one["nal"] for one in every], "eq. 13 with measured curvatures, without its O(α²) term"
    still = all(abs(value - 1) < 1e-3 for value in nal)
    return [
        row("‖∇f_hard‖/‖∇f_easy‖ at NAL's stationary points", 1, max(nal), still),
        row("the same at MAML's, largest (α = 0.02 to 0.2)", "< 1", max(maml), max(maml) < 1),
        row("it falls as α grows", "yes", f"{sum(falling)} of {len(falling)}", all(falling)),
        row("eq. 33, exact: gradients after the step", "always", f"{sum(exact)} of {len(exact)}", all(exact)),
        row(measured, "always", f"{sum(within)} of {len(within)}", all(within), reason=bounds),
    ]


def _pairs(activation: str, samples: int, pairs: int) -> list[dict[str, Any]]:
    return [_pair(activation, samples, seed) for seed in range(pairs)]


def _pair(activation: str, samples: int, seed: int) -> dict[str, Any]:
    """The hard task's gradient over the easy one's, for a pair of tasks."""
    net = neurons(DIM, NEURONS, activation)
    g = torch.Generator().manual_seed(seed)
    base = torch.linalg.qr(torch.randn(DIM, DIM, generator=g, dtype=torch.float64))[0][:NEURONS]
    optima = [base + 0.1 * torch.randn(NEURONS, DIM, generator=g, dtype=torch.float64) for _ in range(2)]
    x = [v**0.5 * torch.randn(samples, DIM, generator=g, dtype=torch.float64) for v in (HARD, EASY)]
    y = [apply(net, {"neurons.weight": w}, {}, a)[0] for w, a in zip(optima, x, strict=True)]

    def f(i: int, flat: Any) -> Any:
        outputs = apply(net, {"neurons.weight": flat.view(NEURONS, DIM)}, {}, x[i])[0]
        return 0.5 * (outputs - y[i]).square().mean()

    gradients = [torch.func.grad(lambda flat, i=i: f(i, flat)) for i in range(2)]
    start = ((optima[0] + optima[1]) / 2).flatten()

    def after(flat: Any, lr: float) -> Any:
        return sum(f(i, flat - lr * gradients[i](flat)) for i in range(2)) / 2

    def ratio(flat: Any) -> float:
        hard, easy = (float(gradient(flat).norm()) for gradient in gradients)
        return hard / easy

    pair: dict[str, Any] = {"nal": ratio(_minimise(lambda w: after(w, 0.0), start))}
    pair |= {key: [] for key in ("maml", "bound", "after_step", "exact_bound")}
    for lr in RATES:
        w = _minimise(lambda v, a=lr: after(v, a), start)
        curvature = [torch.linalg.eigvalsh(torch.func.hessian(lambda v, i=i: f(i, v))(w)) for i in range(2)]
        factor = float((1 - lr * curvature[1][0]) / (1 - lr * curvature[0][-1]))
        moved = [float(gradient(w - lr * gradient(w)).norm()) for gradient in gradients]
        pair["maml"].append(ratio(w))
        pair["bound"].append(factor**2)
        pair["after_step"].append(moved[0] / moved[1])
        pair["exact_bound"].append(factor + 1e-6)
    return pair


def _minimise(value: Any, start: Any) -> Any:
    w = start.clone().requires_grad_()
    lbfgs(lambda: value(w), [w], max_iter=200, tolerance_grad=1e-9, tolerance_change=1e-14)
    return w.detach()
