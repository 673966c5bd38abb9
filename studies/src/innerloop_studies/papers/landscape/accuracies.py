"""Accuracies of Landscape's picture tables: every arm on every kind of tasks, as intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from innerloop.core.statistics import Interval, mean_interval

AnyJob = TypeVar("AnyJob")
Accuracies = Mapping[str, Mapping[str, Interval]]
"""In percent, by name of the arm and kind of tasks."""


def over_seeds(
    part: Callable[[AnyJob], dict[str, float]],
    jobs: Sequence[AnyJob],
    name: Callable[[AnyJob], str],
    say: Callable[[str], None],
) -> Accuracies:
    """Carries out every training run and gathers its accuracies by name, as intervals over seeds."""
    from innerloop_studies.reproduce.parts import two_at_a_time

    values: dict[str, list[dict[str, float]]] = {}
    for job, by_kind in two_at_a_time(part, jobs):
        values.setdefault(name(job), []).append(by_kind)
        shown = ", ".join(f"{kind} {value:.1f}" for kind, value in by_kind.items())
        say(f"{name(job)}, seed {len(values[name(job)]) - 1}: {shown}")
    return {
        one: {kind: mean_interval([run[kind] for run in runs]) for kind in runs[0]}
        for one, runs in values.items()
    }


def bar(interval: Interval) -> tuple[float, float]:
    """The value of a bar and the half-width of its interval, as they are drawn."""
    return interval.mean, interval.ci95


def plain_accuracies(accuracies: Accuracies) -> dict[str, Any]:
    """The same as plain data.

    >>> plain_accuracies({"MAML": {"test hard": Interval(50.0, 1.0, 3)}})
    {'MAML': {'test hard': {'mean': 50.0, 'ci95': 1.0, 'n': 3}}}
    """
    return {
        name: {kind: interval._asdict() for kind, interval in kinds.items()}
        for name, kinds in accuracies.items()
    }
