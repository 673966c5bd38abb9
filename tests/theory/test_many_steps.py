"""Both forms for several inner steps: one step as before, several as real descent finds, how they fall."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.theory.rate import gradient_moments, split_moments, step_rates
from innerloop.theory.rate.forms import LARGEST, PLACES, SMALLEST
from oracles import rate as slow

CLASSES, SHOTS, QUERIES, DIM = 4, 2, 5, 12


def tasks(signal: float, count: int = 12, dim: int = DIM, seed: int = 0) -> tuple[Tensor, ...]:
    """Classes around centres of their own, ``signal`` times as far apart as samples of a class are."""
    made = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=made, dtype=torch.float64)

    centres = signal * draw(count, CLASSES, dim)
    labels, judged = (torch.arange(CLASSES).repeat(count, n) for n in (SHOTS, QUERIES))
    u, t = (
        centres.gather(1, y[..., None].expand(-1, -1, dim)) + draw(count, y.shape[1], dim)
        for y in (labels, judged)
    )
    return u, t, labels, judged


def test_one_step_gives_the_one_step_forms() -> None:
    stacks = tasks(1.0)
    rates = step_rates(*stacks, classes=CLASSES, steps=1)
    finest = math.log(LARGEST / SMALLEST) / (PLACES - 1) * (2 / (PLACES - 1)) ** 2  # of the last grid
    assert rates.gradient == pytest.approx(gradient_moments(*stacks, "cross-entropy").rate, rel=finest)
    trace = split_moments(*stacks[:2], "cross-entropy", CLASSES, centre=True).rate
    assert rates.trace == pytest.approx(trace, rel=finest)


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("dim", [DIM, 5])  # fewer features than samples: some curvatures are zero
def test_no_other_rate_does_better_in_real_descent(steps: int, dim: int) -> None:
    u, t, labels, judged = tasks(1.0, dim=dim)
    rate = step_rates(u, t, labels, judged, classes=CLASSES, steps=steps).gradient

    def after(alpha: float) -> float:
        each = zip(u, t, labels, judged, strict=True)
        return sum(slow.quadratic_steps(*task, CLASSES, alpha, steps) for task in each)

    assert all(after(rate) < after(rate * factor) for factor in (0.5, 0.98, 1.02, 2.0))
    assert after(rate) < after(0.0)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_trace_form_is_best_where_heads_are_drawn_and_right(steps: int) -> None:
    u, t, *_ = tasks(1.0, count=6)
    u, t = u - u.mean(1, keepdim=True), t - u.mean(1, keepdim=True)
    rate = step_rates(*tasks(1.0, count=6), classes=CLASSES, steps=steps).trace

    def expected(alpha: float) -> float:
        """The mean of ‖Φ_t (w_T − w*)‖² over isotropic w*, by forming what is left of w* after T steps."""
        total = 0.0
        for phi, seen in zip(u, t, strict=True):
            curvature = phi.T @ phi / (CLASSES * len(phi))
            moved = torch.eye(DIM, dtype=torch.float64) - torch.linalg.matrix_power(
                torch.eye(DIM, dtype=torch.float64) - alpha * curvature, steps
            )
            spanned = torch.linalg.pinv(phi) @ phi  # what no step can reach does not depend on the rate
            total += float((seen @ (spanned - moved)).square().sum())
        return total

    assert all(expected(rate) < expected(rate * factor) for factor in (0.5, 0.98, 1.02, 2.0))


def test_where_features_say_little_the_middle_falls_as_the_root_of_the_steps() -> None:
    stacks = tasks(0.15, count=400, dim=40)
    few, many = (step_rates(*stacks, classes=CLASSES, steps=steps) for steps in (8, 32))
    assert 3.2 < few.gradient / many.gradient < 4.8
    assert 1.0 <= few.trace / many.trace < 1.25
    root = math.sqrt(few.gradient * few.trace / (many.gradient * many.trace))
    assert 1.6 < root < 2.5  # four times the steps, half the rate


def test_a_rate_of_no_steps_is_refused() -> None:
    with pytest.raises(UserError, match="at least one"):
        step_rates(*tasks(1.0), classes=CLASSES, steps=0)
