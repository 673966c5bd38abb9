"""Is MAML worth it on given tasks? The predicted gain with a squared error, and hardness as a ranking."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.random import generator
from innerloop.theory.hardness import Hardness, head_rate, rank_tasks
from innerloop.theory.landscape.data import (
    TaskFits,
    bootstrap,
    estimated_dimension,
    fit_tasks,
    left_after_step,
    solutions,
)
from innerloop.theory.landscape.features import Step, View
from innerloop.theory.landscape.geography import Sides, condition_of, sides_of

LEAST = 2.0  # samples per feature below which predictions are mostly noise
GOOD = 10.0
LINEAR = 0.9  # share of a task's variance that a linear model must explain for the closed forms to apply
INPUTS = {"raw": "the inputs", "affine": "the inputs and a constant"}
"""Features that need no network, in words."""
_PLAIN = "applies reason inner_lr rate shots inner_shots left_after_step noise explained"
GEOGRAPHY = ("R", "r_hard", "r_easy", "rho_hard", "rho_easy")


class Estimate(NamedTuple):
    """A number, and its 95 % interval over tasks."""

    value: float
    low: float
    high: float


class EstimatedSolution(NamedTuple):
    """A solution with its excess risks."""

    solution: list[float]
    risk: Estimate
    risk_hard: Estimate
    risk_easy: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        risks = {"risk": self.risk, "risk_hard": self.risk_hard, "risk_easy": self.risk_easy}
        values = {name: risk.value for name, risk in risks.items()}
        intervals = {name: [risk.low, risk.high] for name, risk in risks.items()}
        return {"solution": self.solution, **values, "intervals": intervals}


class TaskLandscape(NamedTuple):
    """The landscape of tasks with a squared error.

    Attributes:
        view: what was looked at.
        nal: where non-adaptive learning ends.
        maml: where MAML ends.
        gain: NAL's excess risk over MAML's.
        condition: both sides of Corollary 2's condition.
        geography: R, the spreads of the optima and the scales of the inputs, by name.
        applies: whether the closed forms speak of these tasks, and there are samples enough for them.
        reason: why, in words.
        inner_lr: the rate of the step.
        rate: where it is from.
        shots: samples of the step at test.
        inner_shots: samples of it in training.
        left_after_step: the share of every task's excess loss that a step leaves.
        noise: standard deviation of the targets' noise.
        explained: the share of a task's variance that a linear model of the features explains.
        hardness: the tasks by hardness.
    """

    view: View
    nal: EstimatedSolution
    maml: EstimatedSolution
    gain: Estimate
    condition: Sides
    geography: dict[str, Estimate]
    applies: bool
    reason: str
    inner_lr: float
    rate: str
    shots: int
    inner_shots: int
    left_after_step: list[float]
    noise: float
    explained: float
    hardness: Hardness

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            **self.view.as_dict(),
            "nal": self.nal.as_dict(),
            "maml": self.maml.as_dict(),
            "gain": self.gain.value,
            "gain_interval": [self.gain.low, self.gain.high],
            "condition": self.condition._asdict(),
            "geography": {name: list(estimate) for name, estimate in self.geography.items()},
            **{name: getattr(self, name) for name in _PLAIN.split()},
            "hardness": self.hardness.as_dict(),
        }

    def __str__(self) -> str:
        if self.applies:
            lines = [str(self.view), *self._prediction(), f"because: {self.reason}"]
        else:
            lines = [*self.view.undecided(self.reason), *self._prediction()]
        return "\n".join([*lines, str(self.hardness)])

    def _prediction(self) -> list[str]:
        gain, sides = self.gain, self.condition
        named = ", ".join(f"{k} {v.value:.3g} ({v.low:.3g}–{v.high:.3g})" for k, v in self.geography.items())
        return [
            f"predicted gain {gain.value:.3f} (95 % over tasks: {gain.low:.3f} to {gain.high:.3f})",
            *(
                f"{name:5} risk {place.risk.value:.4g}, on hard tasks {place.risk_hard.value:.4g}, "
                f"on easy tasks {place.risk_easy.value:.4g}"
                for name, place in (("NAL", self.nal), ("MAML", self.maml))
            ),
            f"geography {named}",
            f"one step of {self.inner_lr:.4g} ({self.rate}) on {self.shots} samples",
            f"ρ_H/ρ_E(1−ρ_H/ρ_E)² = {sides.hardness:.3g} against d/m = {sides.dimension_per_shot:.3g}; "
            f"effective dimension tr Σ/‖Σ‖ = {sides.effective_dimension:.3g} of {self.view.z.shape[2]}, "
            f"over m {sides.effective_per_shot:.3g}",
        ]


def task_landscape(view: View, step: Step, seed: int = 0) -> TaskLandscape:
    """Estimates for tasks with a squared error and a model linear in the features.

    Args:
        view: the tasks.
        step: the step of adaptation; its rate is for half the mean squared error.
        seed: of the bootstrap.
    """
    z, y = view.z, view.y.double()
    lr, whose = step.lr, step.whose
    if lr is None:
        lr, whose = head_rate(z, classes=False), "1/λ_max of the features"
    fits = fit_tasks(z, y)
    left = left_after_step(fits, lr)
    draw = generator(seed, "bootstrap")
    ends = bootstrap(fits, left > left.median(), lr, step.shots, step.inner_shots, draw)
    numbers = {name: Estimate(*each) for name, each in ends.items()}
    nal, maml = solutions(fits, lr, step.inner_shots)
    per_feature = z.shape[1] / z.shape[2]
    explained = max(0.0, 1 - float(fits.noise.mean() / y.var(1).mean()))
    return TaskLandscape(
        view=view,
        nal=_place("nal", nal, numbers),
        maml=_place("maml", maml, numbers),
        gain=numbers["gain"],
        condition=_condition(fits, numbers, step.shots),
        geography={name: numbers[name] for name in GEOGRAPHY},
        applies=per_feature >= LEAST and explained >= LINEAR and view.linear,
        reason=_why(per_feature, view, explained),
        inner_lr=lr,
        rate=whose,
        shots=step.shots,
        inner_shots=step.inner_shots,
        left_after_step=left.tolist(),
        noise=float(fits.noise.mean().sqrt()),
        explained=explained,
        hardness=rank_tasks(z, y, view.support),
    )


def _place(name: str, solution: Tensor, numbers: dict[str, Estimate]) -> EstimatedSolution:
    risks = (numbers[f"{name}_{which}"] for which in ("risk", "hard", "easy"))
    return EstimatedSolution(solution.flatten().tolist(), *risks)


def _condition(fits: TaskFits, numbers: dict[str, Estimate], shots: int) -> Sides:
    dim = fits.covariances.shape[-1]
    scales = torch.tensor([numbers["rho_hard"].value, numbers["rho_easy"].value, dim, shots]).double()
    return sides_of(condition_of(scales[0] / scales[1], scales[2], estimated_dimension(fits), scales[3]))


def _why(per_feature: float, view: View, explained: float) -> str:
    if per_feature < LEAST:
        return f"{per_feature:.1f} samples per feature are too few, these numbers are mostly noise: give more"
    where = INPUTS.get(view.features, f"{view.features} features of the untrained network")
    if explained < LINEAR:
        return (
            "the closed forms are for targets that are linear in what adapts, and a linear model of "
            f"{where} explains {explained:.0%} of a task's variance; which features a network will learn is "
            "not known before it is trained, so only training tells"
        )
    if not view.linear:
        return (
            f"these targets are linear in {where}, but the network has hidden layers: the closed forms speak "
            "of a linear model, and what training does to features is not in them, so only training tells"
        )
    few = f"; {per_feature:.1f} samples per feature are few, 10 give a firmer number"
    return f"squared loss and a model linear in {where}" + ("" if per_feature >= GOOD else few)
