"""What Landscape's linear reproductions share: tasks to draw, SGD many times over, intervals."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from innerloop.core.statistics import mean_interval
from innerloop.theory.landscape.finite import GaussianTasks, linear_sgd
from innerloop.theory.landscape.geography import Geography, step_curvature
from innerloop_studies.reproduce.rows import Row, row

OUTER_SHOTS, NAL_RATE, NOISE = 25, 0.025, 0.1
"""C.1: n₁ = 25 outer samples, SGD's rate for NAL; ν² = 0.01 (Figure 2)."""
F64 = torch.float64
Drawer = Callable[[torch.Generator], GaussianTasks]


def outer_rate(method: str, inner_shots: int) -> float:
    """C.1: the rate of SGD, for the MAML objective ``n₂/10000``."""
    return NAL_RATE if method == "nal" else inner_shots / 10_000


def two_tasks_drawer(rho_hard: Tensor, runs: int, dim: int) -> Drawer:
    """§3.1: on each iteration the hard task (optimum **1**) or the easy one (ρ = 1, optimum −**1**)."""

    def draw(g: torch.Generator) -> GaussianTasks:
        hard = torch.rand(runs, len(rho_hard), 1, generator=g) < 0.5
        rho = torch.where(hard, rho_hard[:, None], torch.ones((), dtype=F64))
        sign = torch.where(hard, 1.0, -1.0).to(F64)
        return GaussianTasks(rho, sign[..., None].expand(-1, -1, -1, dim))

    return draw


def geography_drawer(env: Geography, runs: int, tasks: int) -> Drawer:
    """§3.2: ``tasks`` tasks per iteration, for ``runs`` runs of an environment, or of each of many."""
    rho_h, rho_e, R, r_h, r_e, share = (torch.as_tensor(v, dtype=F64).reshape(-1, 1) for v in env[1:])

    def draw(g: torch.Generator) -> GaussianTasks:
        hard = torch.rand(runs, len(R), tasks, generator=g, dtype=F64) < share
        spread = torch.where(hard, r_h, r_e).sqrt()[..., None]
        noise = torch.randn(runs, len(R), tasks, int(env.dim), generator=g, dtype=F64)
        return GaussianTasks(torch.where(hard, rho_h, rho_e), (R * hard)[..., None] + spread * noise)

    return draw


def ends(
    draw: Drawer, shape: tuple[int, ...], method: str, shots: int, steps: int, seed: int, **more: Any
) -> Tensor:
    """Where SGD ends, at the paper's rates, from zero; ``lr`` of the inner step, and perhaps ``weigh``."""
    start, made = torch.zeros(shape, dtype=F64), torch.Generator().manual_seed(seed)
    given: dict[str, Any] = {"outer_lr": outer_rate(method, shots), "steps": steps, "generator": made}
    given |= {"inner_shots": shots, "outer_shots": OUTER_SHOTS, "noise": NOISE}
    return linear_sgd(draw, start=start, method=method, **given, **more)


def excess_risk(w: Tensor, env: Geography, lr: float, shots: int) -> Tensor:
    """Of any starts ``(…, d)``: both groups' optima are spread around their centres."""
    R = torch.as_tensor(env.R, dtype=F64)
    a_h, a_e = (step_curvature(rho, lr, shots, env.dim) for rho in (env.rho_hard, env.rho_easy))
    to_hard = (w - R[..., None]).square().sum(-1) + env.dim * env.r_hard
    to_easy = w.square().sum(-1) + env.dim * env.r_easy
    return 0.25 * (a_h * to_hard + a_e * to_easy)


def expected_ends(limits: Tensor, curvature: Tensor, method: str, shots: int, steps: int) -> Tensor:
    r"""Where SGD is on average after ``steps`` steps from zero, exactly: :math:`w^*(1-(1-\eta c)^t)`."""
    return limits * (1 - (1 - outer_rate(method, shots) * curvature) ** steps)


def ends_row(name: str, off: float, steps: int) -> Row:
    """Whether SGD is on average where it must be after so few steps."""
    what = f"{name}: SGD's mean coordinate after {steps} iterations is its exact expectation"
    return row(what, "w*(1 − (1 − ηc)^t)", f"{off:.1f} standard errors off at most", off < 4.5)


def intervals(values: Tensor) -> tuple[list[float], list[float]]:
    """Means over the first axis and half their 95 % intervals."""
    by_column = [mean_interval(column.tolist()) for column in values.T]
    return [f.mean for f in by_column], [f.ci95 for f in by_column]


def standard_errors_off(values: Tensor, expected: Tensor | float) -> float:
    """The largest distance of a mean (over the first axis) from what is expected, in standard errors."""
    error = values.std(0) / len(values) ** 0.5
    return float(((values.mean(0) - expected).abs() / error).max())
