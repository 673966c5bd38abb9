r"""Hard and easy tasks around two centres: Landscape's §3.1 (two tasks) and §3.2 (geography).

Hard tasks have :math:`\Sigma=\rho_HI` and :math:`w^*\sim N(R\mathbf 1,r_HI)`, easy ones
:math:`\Sigma=\rho_EI` and
:math:`w^*\sim N(0,r_EI)`. Every matrix is a multiple of the identity, so each solution is :math:`cR\mathbf 1`
with one number ``c``, and a risk is a sum of three terms. All arguments may be tensors that broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.theory.landscape.forms import irreducible


class Geography(NamedTuple):
    r"""An environment of §3.2, or many (tensors that broadcast).

    Attributes:
        dim: ``d``.
        rho_hard: :math:`\rho_H`; small is hard.
        rho_easy: :math:`\rho_E`.
        R: distance of the centres per :math:`\sqrt d`.
        r_hard: variance of the hard tasks' optima, per coordinate.
        r_easy: the same of the easy ones.
        hard_share: how often a task is hard.
    """

    dim: int | Tensor
    rho_hard: float | Tensor
    rho_easy: float | Tensor
    R: float | Tensor
    r_hard: float | Tensor
    r_easy: float | Tensor
    hard_share: float | Tensor = 0.5


class SolutionRisks(NamedTuple):
    r"""An initialisation :math:`cR\mathbf 1`: its coordinate ``cR``, and its excess risks."""

    coordinate: Tensor
    risk: Tensor
    risk_hard: Tensor
    risk_easy: Tensor


class GeographyLandscape(NamedTuple):
    """Both solutions; ``gain`` is NAL's excess risk over MAML's."""

    nal: SolutionRisks
    maml: SolutionRisks
    gain: Tensor


class Condition(NamedTuple):
    r"""Both sides of :math:`\tfrac{\rho_H}{\rho_E}(1-\tfrac{\rho_H}{\rho_E})^2\gg\tfrac dm`; their ratio.

    Attributes:
        hardness: the left side.
        dimension_per_shot: the right side, ``d/m``.
        ratio: the left over the right one.
        effective_dimension: :math:`\operatorname{tr}\Sigma/\|\Sigma\|` (Remark 1), at most ``d``.
        effective_per_shot: the same over ``m``, the right side with it in the place of ``d``.
    """

    hardness: Tensor
    dimension_per_shot: Tensor
    ratio: Tensor
    effective_dimension: Tensor
    effective_per_shot: Tensor


def step_curvature(
    rho: float | Tensor, lr: float | Tensor, samples: float | Tensor, dim: int | Tensor
) -> Tensor:
    r""":math:`a=\rho(1-\alpha\rho)^2+\tfrac{d+1}{s}\alpha^2\rho^3` (eqs. 21, 22), left of ρI by a step."""
    rho, lr, samples = _double(rho), _double(lr), _double(samples)
    return rho * (1 - lr * rho).square() + (dim + 1) / samples * lr**2 * rho**3


def geography(
    env: Geography,
    lr: float | Tensor,
    shots: float | Tensor,
    inner_shots: float | Tensor | None = None,
) -> GeographyLandscape:
    r"""Both population solutions and their excess risks (eqs. 8, 10, 11), for any share of hard tasks.

    With :math:`c` the weight of the hard tasks in a solution,

    .. math::
        c_{NAL}=\frac{p\rho_H}{p\rho_H+(1-p)\rho_E},\qquad
        c_{MAML}=\frac{pa_H^{(n_2)}}{pa_H^{(n_2)}+(1-p)a_E^{(n_2)}},

    .. math::
        \mathcal E_H=\tfrac d2a_H^{(m)}\big(r_H+(1-c)^2R^2\big),\qquad
        \mathcal E_E=\tfrac d2a_E^{(m)}\big(r_E+c^2R^2\big),\qquad
        \mathcal E=p\mathcal E_H+(1-p)\mathcal E_E.

    Args:
        env: the environment(s).
        lr: α, for half the mean squared error.
        shots: ``m``, samples of the step in testing.
        inner_shots: ``n₂``, samples of the step in MAML's training; ``shots`` if omitted.

    >>> table3 = Geography(dim=10, rho_hard=0.1, rho_easy=1.0, R=2.0, r_hard=1.0, r_easy=1.0)
    >>> places = geography(table3, lr=1.0, shots=500)
    >>> round(float(places.nal.coordinate), 3), round(float(places.maml.coordinate), 3)
    (0.182, 1.573)
    """
    if inner_shots is None:
        inner_shots = shots
    p, rho_h, rho_e = (_double(x) for x in (env.hard_share, env.rho_hard, env.rho_easy))
    a_h, a_e = (step_curvature(rho, lr, inner_shots, env.dim) for rho in (rho_h, rho_e))
    nal = _place(p * rho_h / (p * rho_h + (1 - p) * rho_e), env, lr, shots)
    maml = _place(p * a_h / (p * a_h + (1 - p) * a_e), env, lr, shots)
    return GeographyLandscape(nal, maml, nal.risk / maml.risk)


def _place(c: Tensor, env: Geography, lr: float | Tensor, shots: float | Tensor) -> SolutionRisks:
    p, R = _double(env.hard_share), _double(env.R)
    half = _double(env.dim) / 2
    hard = half * step_curvature(env.rho_hard, lr, shots, env.dim) * (env.r_hard + (1 - c).square() * R**2)
    easy = half * step_curvature(env.rho_easy, lr, shots, env.dim) * (env.r_easy + c.square() * R**2)
    return SolutionRisks(c * R, p * hard + (1 - p) * easy, hard, easy)


def two_tasks(
    distance: float | Tensor,
    rho_hard: float | Tensor,
    rho_easy: float | Tensor,
    dim: int | Tensor,
    lr: float | Tensor,
    shots: float | Tensor,
) -> tuple[Tensor, Tensor]:
    r"""Excess risks of NAL and MAML for two tasks :math:`\rho_HI,\rho_EI` (eq. 9), :math:`n_2=m`.

    .. math::
        \mathcal E(w^*_{NAL})=\frac{D^2}{4}\,\frac{a_E\rho_H^2+a_H\rho_E^2}{(\rho_E+\rho_H)^2},\qquad
        \mathcal E(w^*_{MAML})=\frac{D^2}{4}\,\frac{a_Ea_H}{a_E+a_H},\qquad D=\|w_1^*-w_2^*\|.

    The paper's eq. 9 leaves out :math:`D^2/4`.

    Args:
        distance: D, between the tasks' optima.
        rho_hard: curvature of the hard task.
        rho_easy: curvature of the easy task.
        dim: d.
        lr: α, the inner rate.
        shots: m, the samples of the inner step.

    >>> nal, maml = two_tasks(2.0, 0.1, 1.0, dim=1, lr=1.0, shots=float("inf"))
    >>> round(float(nal), 4), float(maml)
    (0.0669, 0.0)
    """
    a_h, a_e = (step_curvature(rho, lr, shots, dim) for rho in (rho_hard, rho_easy))
    rho_h, rho_e = _double(rho_hard), _double(rho_easy)
    quarter = _double(distance).square() / 4
    nal = (a_e * rho_h**2 + a_h * rho_e**2) / (rho_e + rho_h).square()
    return quarter * nal, quarter * a_e * a_h / (a_e + a_h)


def limiting_gain(env: Geography) -> Tensor:
    r""":math:`1+\tfrac{R^2}{r_H}\big(\tfrac{\rho_E}{\rho_E+\rho_H}\big)^2`, where Corollary 2 applies.

    That is for :math:`\alpha=1/\rho_E` and a condition (:func:`condition`) that holds by far. The paper's eq.
    12 drops the bracket, which is right only if also :math:`\rho_H\ll\rho_E`.

    >>> round(float(limiting_gain(Geography(10, 0.1, 0.9, 1.0, 0.5, 0.1))), 4)
    2.62
    """
    rho_h, rho_e = _double(env.rho_hard), _double(env.rho_easy)
    return 1 + _double(env.R).square() / env.r_hard * (rho_e / (rho_e + rho_h)).square()


def condition(env: Geography, shots: float | Tensor) -> Condition:
    r"""Both sides of :math:`\tfrac{\rho_H}{\rho_E}(1-\tfrac{\rho_H}{\rho_E})^2\gg\tfrac dm` (Corollary 2).

    Inputs of a geography have covariance :math:`\rho I`, whose effective dimension is ``d`` itself.

    >>> [round(float(x), 3) for x in condition(Geography(10, 0.1, 0.9, 1.0, 0.5, 0.1), shots=500)]
    [0.088, 0.02, 4.39, 10.0, 0.02]
    """
    q = _double(env.rho_hard) / env.rho_easy
    return condition_of(q, _double(env.dim), _double(env.dim), _double(shots))


def condition_of(ratio: Tensor, dim: Tensor, effective: Tensor, shots: Tensor) -> Condition:
    r"""The condition from :math:`\rho_H/\rho_E`, the dimension, the effective dimension and ``m``."""
    left, right = ratio * (1 - ratio).square(), dim / shots
    return Condition(left, right, left / right, effective, effective / shots)


def effective_dimension(covariances: Tensor) -> Tensor:
    r""":math:`\operatorname{tr}\Sigma/\|\Sigma\|` of every covariance (Remark 1): between 1 and ``d``.

    The paper calls :math:`\operatorname{tr}\Sigma` the effective dimension, for :math:`\|\Sigma\|=O(1)`.

    >>> effective_dimension(torch.diag(torch.tensor([2.0, 1.0, 1.0])))
    tensor(2.)
    """
    largest = torch.linalg.eigvalsh(covariances)[..., -1]
    return covariances.diagonal(dim1=-2, dim2=-1).sum(-1) / largest


def environment(env: Geography, tasks: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """``tasks`` hard and as many easy tasks drawn from a geography: covariances, optima, mixture weights.

    Args:
        env: the geography.
        tasks: of each kind.
        generator: where the optima are from.

    Raises:
        UserError: for an environment made of tensors; draw those one by one.
    """
    if any(isinstance(field, Tensor) for field in env):
        raise UserError("environment draws from a single geography: give plain numbers.")
    d = int(env.dim)
    draws = torch.randn(2, tasks, d, generator=generator, dtype=torch.float64)
    hard = float(env.R) + float(env.r_hard) ** 0.5 * draws[0]
    easy = float(env.r_easy) ** 0.5 * draws[1]
    eye = torch.eye(d, dtype=torch.float64)
    rho = torch.tensor([float(env.rho_hard)] * tasks + [float(env.rho_easy)] * tasks, dtype=torch.float64)
    share = float(env.hard_share) / tasks
    weights = torch.tensor([share] * tasks + [1 / tasks - share] * tasks, dtype=torch.float64)
    return rho[:, None, None] * eye, torch.cat([hard, easy]), weights


def _double(value: float | Tensor) -> Tensor:
    """Plain numbers in float64; tensors as they are."""
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


CLEAR = 10.0
"""How many times the left side of Corollary 2's condition must exceed the right one to count as "≫"."""


class LandscapeSolution(NamedTuple):
    r"""A solution :math:`cR\mathbf 1`: the vector, its coordinate, and its excess risks."""

    solution: list[float]
    coordinate: float
    risk: float
    risk_hard: float
    risk_easy: float


class Sides(NamedTuple):
    r"""Both sides of Corollary 2's condition, :math:`q(1-q)^2\gg d/m` with :math:`q=\rho_H/\rho_E`.

    Attributes:
        hardness: the left side.
        dimension_per_shot: the right side.
        ratio: the left over the right one.
        effective_dimension: :math:`\operatorname{tr}\Sigma/\|\Sigma\|`, at most ``d``.
        effective_per_shot: the same over ``m``.
    """

    hardness: float
    dimension_per_shot: float
    ratio: float
    effective_dimension: float
    effective_per_shot: float


class Unavoidable(NamedTuple):
    """What no initialisation avoids: the noise itself, and the noise that the inner step carries in."""

    noise: float
    step: float


class ClosedLandscape(NamedTuple):
    """An environment's landscape.

    Attributes:
        nal: where non-adaptive learning ends.
        maml: where MAML ends.
        gain: NAL's excess risk over MAML's.
        condition: both sides of Corollary 2's condition.
        holds: whether the left one exceeds the right one :data:`CLEAR` times.
        limiting_gain: what the gain tends to where it does, for a rate of 1/ρ_E.
        irreducible: in neither risk.
        inner_lr: the rate of the step.
        inner_shots: samples of the step in training.
    """

    nal: LandscapeSolution
    maml: LandscapeSolution
    gain: float
    condition: Sides
    holds: bool
    limiting_gain: float
    irreducible: Unavoidable
    inner_lr: float
    inner_shots: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        parts = {name: getattr(self, name)._asdict() for name in ("nal", "maml", "irreducible")}
        plain = {**self._asdict(), **parts, "condition": {**self.condition._asdict(), "holds": self.holds}}
        del plain["holds"]
        return {"source": "closed form", **plain}

    def __str__(self) -> str:
        lines = [f"{'':6}{'coordinate':>12}{'risk':>12}{'on hard':>12}{'on easy':>12}"]
        for name, place in (("NAL", self.nal), ("MAML", self.maml)):
            numbers = (place.coordinate, place.risk, place.risk_hard, place.risk_easy)
            lines.append(f"{name:6}" + "".join(f"{number:>12.4g}" for number in numbers))
        sides = self.condition
        size = "≫" if self.holds else ">" if sides.ratio > 1 else "<"
        lines += [
            f"gain {self.gain:.3f}: NAL's excess risk over MAML's, after a step of {self.inner_lr:.4g}",
            f"ρ_H/ρ_E(1−ρ_H/ρ_E)² = {sides.hardness:.4g} {size} d/m = {sides.dimension_per_shot:.4g} "
            f"(effective dimension tr Σ/‖Σ‖ = {sides.effective_dimension:g}: inputs are isotropic); "
            f"where ≫ and α = 1/ρ_E the gain tends to {self.limiting_gain:.3f}",
            f"irreducible, in neither risk: noise {self.irreducible.noise:.3g}, "
            f"through the step {self.irreducible.step:.3g}",
        ]
        return "\n".join(lines)


def closed_landscape(
    env: Geography, *, lr: float | None = None, shots: int, inner_shots: int | None = None, noise: float = 0.0
) -> ClosedLandscape:
    """Landscape's eqs. 8, 10 and 11 for one environment, as plain numbers.

    Args:
        env: of plain numbers.
        lr: α, for half the mean squared error; 1/ρ_E if omitted.
        shots: m, samples of the step at test.
        inner_shots: n₂, samples of the step in training; ``shots`` if omitted.
        noise: ν, standard deviation of the targets' noise.

    >>> table3 = Geography(dim=10, rho_hard=0.1, rho_easy=1.0, R=2.0, r_hard=1.0, r_easy=1.0)
    >>> landscape = closed_landscape(table3, shots=500)
    >>> round(landscape.nal.coordinate, 3), round(landscape.maml.coordinate, 3), landscape.holds
    (0.182, 1.573, False)
    """
    dim, share = int(env.dim), float(env.hard_share)
    rho_hard, rho_easy = float(env.rho_hard), float(env.rho_easy)
    rate, inner = lr or 1 / rho_easy, inner_shots or shots
    both, sides = geography(env, rate, shots, inner), sides_of(condition(env, shots))
    eye = torch.eye(dim, dtype=torch.float64)
    weights = torch.tensor([share, 1 - share], dtype=torch.float64)
    rest = irreducible(torch.stack([rho_hard * eye, rho_easy * eye]), rate, shots, noise, weights)
    return ClosedLandscape(
        nal=_plain(both.nal, dim),
        maml=_plain(both.maml, dim),
        gain=float(both.gain),
        condition=sides,
        holds=sides.ratio >= CLEAR,
        limiting_gain=float(limiting_gain(env)),
        irreducible=Unavoidable(*map(float, rest)),
        inner_lr=rate,
        inner_shots=inner,
    )


def _plain(placed: SolutionRisks, dim: int) -> LandscapeSolution:
    return LandscapeSolution([float(placed.coordinate)] * dim, *map(float, placed))


def sides_of(sides: Condition) -> Sides:
    """The same as plain numbers."""
    return Sides(*map(float, sides))
