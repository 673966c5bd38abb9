r"""What Landscape's Theorems 2 and 3 share: an environment with known optima, solutions on finite samples.

A linear model sees its samples only through :math:`G=X^\top X/n` and :math:`c=X^\top z/n`, so eqs. 41 and 43
are computed from draws of these (:func:`innerloop.theory.landscape.finite.draw_moments`), whatever ``n`` is.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.report.plots.panels import Panel, line
from innerloop.theory.kernels import log_slope
from innerloop.theory.landscape.finite import TaskMoments, draw_moments
from innerloop.theory.landscape.forms import solve
from innerloop_studies.papers.figures import loglog
from innerloop_studies.reproduce.rows import Row, row

F64 = torch.float64
LEAST, LARGEST, LONGEST = 0.25, 1.0, 1.0  # β and L of Assumption 2, B of Assumption 1
NOISE, KINDS = 0.5, 64
"""ν; how many tasks the environment has, equally frequent: its means are then exact sums."""
SURE = 0.96  # the probability with which Theorem 2's bound holds: distances are this quantile over draws


def environment_stated(dim: int) -> str:
    """For protocols."""
    kept = f"eigenvalues of Σ in [{LEAST}, {LARGEST}], ‖w*‖ ≤ {LONGEST} (Assumptions 1 and 2), ν = {NOISE}"
    return f"{KINDS} equally frequent tasks, d = {dim}, {kept}"


class Environment(NamedTuple):
    """Equally frequent tasks: covariances ``(kinds, d, d)``, their square roots, optima ``(kinds, d)``."""

    covariances: Tensor
    roots: Tensor
    optima: Tensor


def draw_environment(dim: int, generator: torch.Generator) -> Environment:
    """Tasks that keep Assumptions 1 and 2: eigenvalues in [β, L], optima of length at most B."""
    axes = torch.linalg.qr(torch.randn(KINDS, dim, dim, generator=generator, dtype=F64))[0]
    values = LEAST + (LARGEST - LEAST) * torch.rand(KINDS, 1, dim, generator=generator, dtype=F64)
    way = torch.randn(KINDS, dim, generator=generator, dtype=F64)
    length = LONGEST * (0.5 + 0.5 * torch.rand(KINDS, 1, generator=generator, dtype=F64))
    optima = length * way / way.norm(dim=-1, keepdim=True)
    return Environment((axes * values) @ axes.mT, (axes * values.sqrt()) @ axes.mT, optima)


def take(env: Environment, which: Tensor) -> Environment:
    """The tasks of a training set, any shape of indices in front."""
    return Environment(*(part[which] for part in env))


def chunks(draws: int, numbers: int) -> list[int]:
    """How many draws are computed at once, so that arrays of ``numbers`` for each stay near 16 MB."""
    size = max(1, 2**21 // numbers)
    return [min(size, draws - start) for start in range(0, draws, size)]


def task_moments(tasks: Environment, samples: int, generator: torch.Generator) -> TaskMoments:
    r"""TaskMoments of ``samples`` samples of every task: :math:`\Sigma^{1/2}W\Sigma^{1/2}` and its pull."""
    *shape, dim = tasks.optima.shape
    white = draw_moments(torch.ones(shape, dtype=F64), dim, samples, NOISE, generator)
    gram = tasks.roots @ white.gram @ tasks.roots
    return TaskMoments(gram, (tasks.roots @ white.pull[..., None])[..., 0])


def nal_of_moments(data: TaskMoments, optima: Tensor) -> Tensor:
    """Eq. 41, ``(…, d)``, of tasks with equally many samples, ``(…, tasks)`` in front of the moments."""
    pull = (data.gram @ optima[..., None])[..., 0] + data.pull
    return solve(data.gram.sum(-3), pull.sum(-2))


def maml_of_moments(inner: TaskMoments, outer: TaskMoments, optima: Tensor, lr: float) -> Tensor:
    """Eq. 43, ``(…, d)``: episodes ``(…, episodes)`` in front, each with the optimum of its task."""
    left = torch.eye(optima.shape[-1], dtype=optima.dtype) - lr * inner.gram
    once = left @ outer.gram
    pull = once @ (left @ optima[..., None] - lr * inner.pull[..., None]) + left @ outer.pull[..., None]
    return solve((once @ left).sum(-3), pull[..., 0].sum(-2))


def nal_scatter(env: Environment, samples: float) -> float:
    r""":math:`T\cdot E\|w_{NAL}-w^*_{NAL}\|^2` as the number of tasks grows, in closed form.

    To first order :math:`w-w^*=\Lambda^{-1}\tfrac1T\sum_i(G_iv_i+c_i)` with :math:`v_i=w_i^*-w^*` and
    :math:`\Lambda=E\Sigma_i`. For Gaussian inputs the bracket has mean 0 and covariance

    .. math:: E\Big[\Sigma vv^\top\Sigma+\tfrac1n\big(\Sigma vv^\top\Sigma+(v^\top\Sigma v)\Sigma
              +\nu^2\Sigma\big)\Big].
    """
    s = env.covariances
    mean = s.mean(0)
    v = env.optima - solve(mean, (s @ env.optima[..., None])[..., 0].mean(0))
    pushed = (s @ v[..., None])[..., 0]
    outer = pushed[:, :, None] * pushed[:, None, :]
    level = ((v * pushed).sum(-1) + NOISE**2)[:, None, None]
    spread = (outer + (outer + level * s) / samples).mean(0)
    inverse = torch.linalg.inv(mean)
    return float((inverse @ spread @ inverse).trace())


def sure_distance(distances: Tensor) -> float:
    """The distance that a draw does not exceed with the probability of Theorem 2."""
    return float(torch.quantile(distances, SURE))


def slope_row(what: str, expected: float, x: Sequence[int], y: Sequence[float], near: float) -> Row:
    """Whether distances follow a power law with this exponent, within ``near``."""
    slope = log_slope([float(value) for value in x], list(y))
    said = f"slope {slope:.3f}: {y[0]:.3g} at {x[0]}, {y[-1]:.3g} at {x[-1]}"
    return row(what, expected, said, abs(slope - expected) < near, reason=f"within {near} of the exponent")


def law_panel(
    x_name: str, x: Sequence[int], curves: Mapping[str, Sequence[float]], exponent: float = -0.5
) -> Panel:
    """Distances on log–log axes beside the law that is stated for the first of them."""
    first = next(iter(curves.values()))
    law = [first[0] * (value / x[0]) ** exponent for value in x]
    lines = [line(name, x, values, dots=True) for name, values in curves.items()]
    lines.append(line("as stated" if exponent < 0 else "∝ √d", x, law))
    return loglog(x_name, "distance, 96 % of draws are nearer", lines)
