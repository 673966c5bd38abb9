r"""Bridge, §4.2 (eqs. 10 to 13): multi-task learning and learners of a last layer share their objective.

With features Φ of the body θ and squared loss, multi-task learning minimises
:math:`L(\theta,w)=\tfrac12\sum_i\|\Phi_iw_i-Y_i\|^2` over the body and all heads (eq. 12); a meta-learner
minimises over the body alone, with heads :math:`w_i^*=\arg\min L+R` in their place (eqs. 10 and 11).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.types import Params
from innerloop.nets.mlp import mlp
from innerloop.report.plots.panels import line, panels_figure
from innerloop_studies.papers.bridge.shared import DIM, bridge_tasks
from innerloop_studies.papers.figures import loglog
from innerloop_studies.papers.training import lbfgs
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "Bridge, §4.2: the objectives of MTL and of meta-learners, and their gradients"
VERSION = 1
HIDDEN, SAMPLES = [12, 6], 24  # fewer features than samples: heads without a penalty are then unique
PENALTIES = (0.0, 0.01, 0.1, 1.0, 10.0)  # α of R(w) = α‖w‖²
SIZES = {"smoke": (2, 400), "cpu": (10, 4000), "paper": (40, 4000)}
"""Draws of tasks and network; steps of the descent that looks for a stationary point."""


class Problem(NamedTuple):
    """One draw: features of a body, ``(tasks, samples, features)``, as a function of it; labels; the body."""

    features: Callable[[Params], Tensor]
    y: Tensor
    body: Params


def run(scale: str, say: Say) -> Reproduction:
    """Compares gradients in float64, through the heads and past them."""
    draws, steps = SIZES[scale]
    problems = [draw(seed) for seed in range(draws)]
    compared = {a: [gradients(problem, a) for problem in problems] for a in PENALTIES}
    still = [_stationary(problem, steps) for problem in problems[:2]]
    say(f"{draws} draws, penalties {', '.join(f'{a:g}' for a in PENALTIES)}")
    shown = {name: [max(one[name] for one in compared[a]) for a in PENALTIES] for name in compared[0.0][0]}
    data: dict[str, Any] = {"penalties": list(PENALTIES), **shown, "stationary": still}
    protocol = {
        "network": f"{DIM}–{HIDDEN[0]}–{HIDDEN[1]}, tanh, and one linear head per task; float64",
        "tasks": f"5 Bridge tasks of {SAMPLES} samples, labels standardised, summed loss; {draws} draws",
        "heads": "by least squares, R(w) = α‖w‖²; differentiated through the solution",
        "stationary point": f"joint L-BFGS on eq. 12, {steps} steps at most, two draws",
    }
    # rounding has no logarithm where it is zero
    curves = [line(n, PENALTIES[1:], [max(v, 1e-17) for v in values[1:]]) for n, values in shown.items()]
    only = loglog("penalty α", "relative difference of gradients", curves)
    figure = panels_figure([only], columns=1, width=5.6)
    return Reproduction(_rows(shown, still), {"bridge-objectives": figure}, data, protocol)


def draw(seed: int) -> Problem:
    """Tasks and a body."""
    tasks = bridge_tasks(seed, "train", 5, SAMPLES, 0, standard=True)
    net = mlp(DIM, HIDDEN, 1, activation="tanh")
    params, _ = net.init(torch.Generator().manual_seed(seed))
    body = {name: value.double() for name, value in params.items() if name not in net.head_names}
    x = tasks.x_support.flatten(0, 1)

    def features(params: Params) -> Tensor:
        return net.features(params, {}, x, "batch")[0].view(tasks.size, SAMPLES, HIDDEN[-1])

    return Problem(features, tasks.y_support, body)


def heads_of(z: Tensor, y: Tensor, penalty: float) -> Tensor:
    """Eq. 11: ½‖Φw − Y‖² + α‖w‖² is least where (ΦᵀΦ + 2αI)w = ΦᵀY."""
    ridge = 2 * penalty * torch.eye(z.shape[-1], dtype=z.dtype)
    return torch.linalg.solve(z.mT @ z + ridge, z.mT @ y)


def joint(problem: Problem, body: Params, heads: Tensor) -> Tensor:
    """Eq. 12."""
    return 0.5 * (problem.features(body) @ heads - problem.y).square().sum()


def gradients(problem: Problem, penalty: float) -> dict[str, float]:
    """How far gradients of the body are from that of eq. 13, which is differentiated through its heads."""

    def adapted(body: Params) -> Tensor:
        return heads_of(problem.features(body), problem.y, penalty)

    def equation_13(body: Params) -> Tensor:
        heads = adapted(body)
        return joint(problem, body, heads) + penalty * heads.square().sum()

    fixed = adapted(problem.body).detach()
    others = {
        "eq. 12 at these heads": lambda body: joint(problem, body, fixed),
        "eqs. 10 and 11": lambda body: joint(problem, body, adapted(body)),
    }
    target = _gradient(equation_13, problem.body)
    gradients = {name: _gradient(other, problem.body) for name, other in others.items()}
    return {name: float((g - target).norm() / target.norm()) for name, g in gradients.items()}


def _gradient(value: Callable[[Params], Tensor], body: Params) -> Tensor:
    return torch.cat([one.flatten() for one in torch.func.grad(value)(body).values()])


def _stationary(problem: Problem, steps: int) -> dict[str, Any]:
    """Sizes of gradients: eq. 13's (R = 0) at the start and where descent on eq. 12 ends; eq. 12's there."""
    start = heads_of(problem.features(problem.body), problem.y, 0.1)  # not its best ones
    heads, *values = (value.detach().clone().requires_grad_() for value in (start, *problem.body.values()))
    free, body = [*values, heads], dict(zip(problem.body, values, strict=True))

    def equation_13(body: Params) -> Tensor:
        return joint(problem, body, heads_of(problem.features(body), problem.y, 0.0))

    lbfgs(lambda: joint(problem, body, heads), free, max_iter=steps, tolerance_grad=1e-10, tolerance_change=0)
    left = float(torch.cat([v.grad.flatten() for v in free if v.grad is not None]).norm())
    end = {name: value.detach() for name, value in body.items()}
    first, meta = (float(_gradient(equation_13, each).norm()) for each in (problem.body, end))
    return {"first": first, "joint": left, "meta": meta}


def _rows(shown: dict[str, list[float]], still: list[dict[str, Any]]) -> list[Row]:
    past, printed = shown["eq. 12 at these heads"], shown["eqs. 10 and 11"]
    ends = "; ".join(f"{s['meta']:.1e} (eq. 12's own: {s['joint']:.1e}) of {s['first']:.2g}" for s in still)
    apart, penalties = listed(printed[1:], ".1e"), listed(PENALTIES[1:], "g")
    same = "§4.2: the gradient of eq. 13 is that of eq. 12 at the heads of eq. 11, for every penalty"
    why = "the heads are a minimum, so that how they move does not count"
    stationary = "§4.2: where eq. 12 is stationary, eq. 13 without a penalty is stationary"
    is_still = all(s["meta"] < max(10 * s["joint"], 1e-6 * s["first"]) for s in still)
    plugged = "§4.2: plugging eq. 11 into eq. 10 gives eq. 13"
    said = f"gradients {apart} apart at α = {penalties}"
    why_not = "eq. 10 has no R in its outer loss, so that its gradient also goes through the heads"
    return [
        row(same, "the same formulation", f"{max(past):.0e} apart at most", max(past) < 1e-8, reason=why),
        row(stationary, "equivalent", f"gradient there {ends} at the start", is_still),
        row(plugged, "equal", said, max(printed) < 1e-8, fails=why_not),
    ]
