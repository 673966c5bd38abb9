"""Is MAML worth it? Solutions, risks and gain of an environment of hard and easy tasks, in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from innerloop.theory.landscape.forms import irreducible
from innerloop.theory.landscape.geography import (
    Condition,
    Geography,
    Placed,
    condition,
    geography,
    limiting_gain,
)

CLEAR = 10.0
"""How many times the left side of Corollary 2's condition must exceed the right one to count as "≫"."""


class Place(NamedTuple):
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

    nal: Place
    maml: Place
    gain: float
    condition: Sides
    holds: bool
    limiting_gain: float
    irreducible: Unavoidable
    inner_lr: float
    inner_shots: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "source": "closed form",
            "nal": self.nal._asdict(),
            "maml": self.maml._asdict(),
            "gain": self.gain,
            "condition": {**self.condition._asdict(), "holds": self.holds},
            "limiting_gain": self.limiting_gain,
            "irreducible": self.irreducible._asdict(),
            "inner_lr": self.inner_lr,
            "inner_shots": self.inner_shots,
        }


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
        nal=_place(both.nal, dim),
        maml=_place(both.maml, dim),
        gain=float(both.gain),
        condition=sides,
        holds=sides.ratio >= CLEAR,
        limiting_gain=float(limiting_gain(env)),
        irreducible=Unavoidable(*map(float, rest)),
        inner_lr=rate,
        inner_shots=inner,
    )


def _place(placed: Placed, dim: int) -> Place:
    return Place([float(placed.coordinate)] * dim, *map(float, placed))


def sides_of(sides: Condition) -> Sides:
    """The same as plain numbers."""
    return Sides(*map(float, sides))
