"""Who trains which candidate: processes here, other ranks, or any process that shares the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from innerloop.choose.pilot.keep import Sitting
from innerloop.choose.pilot.sharing import trained_together
from innerloop.choose.pilot.trials import Reached, Trial, carry_out
from innerloop.choose.pilot.workers import in_processes
from innerloop.training.execution.group import apart
from innerloop.training.execution.plain import plain_out

Left = Callable[[], float] | None


def carried_out(
    trials: Sequence[Trial], sitting: Sitting, tick: Callable[[Trial], None], left: Left = None
) -> list[Reached]:
    """The results of several trials, in their order; those that were kept are read."""
    if sitting.shared:
        return trained_together(trials, sitting.run, sitting.workers, tick)
    told: set[Path] = set()

    def count(trial: Trial) -> None:
        told.add(trial.file)
        tick(trial)

    def share(mine: list[Trial]) -> list[tuple[object, ...]]:
        return [tuple(result) for result in _carried_out(mine, sitting.workers, count, left)]

    results = [Reached(*each) for each in plain_out(share, trials, sitting.ranks)]
    for trial in trials:
        if trial.file not in told:
            tick(trial)
    return results


def _carried_out(
    trials: Sequence[Trial], workers: int, tick: Callable[[Trial], None], left: Left
) -> list[Reached]:
    results = {place: carry_out(trial) for place, trial in enumerate(trials) if trial.file.is_file()}
    for place in results:
        tick(trials[place])
    todo = [place for place in range(len(trials)) if place not in results]
    with apart():  # one process trains a candidate, whatever other ranks do
        for number, result in in_processes(carry_out, [trials[place] for place in todo], workers, left):
            results[todo[number]] = result
            tick(trials[todo[number]])
    return [results[place] for place in range(len(trials))]
