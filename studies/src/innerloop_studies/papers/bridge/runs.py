"""The training runs behind Bridge's picture tables: trained, timed, and judged on test tasks.

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from innerloop.core.statistics import Interval
from innerloop.core.types import Buffers, Params
from innerloop.experiment.fitting import fit_parts, judge
from innerloop.experiment.parts import Parts, build
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.validation import validation_of
from innerloop.training.execution.plan import Plan
from innerloop.training.state import TrainState
from innerloop_studies.papers.bridge.picture_run import PictureRun, ValidationPoint
from innerloop_studies.reproduce.short_runs import plan_for


class Watch:
    """Processor seconds of this process, without those in which it was :meth:`paused`.

    Not the clock on the wall: two runs and whatever else is going on share the machine.
    """

    def __init__(self) -> None:
        self.start, self.elsewhere = time.process_time(), 0.0

    def seconds(self) -> float:
        """Seconds so far."""
        return time.process_time() - self.start - self.elsewhere

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What runs inside does not count."""
        begun = time.process_time()
        yield
        self.elsewhere += time.process_time() - begun


def trained(recipe: Mapping[str, Any], shots: Sequence[int], penalties: Sequence[float]) -> dict[str, Any]:
    """One run: its curve over training time, and scores of the best weights on every test task."""
    wanted = make_recipe(recipe)
    parts, plan = build(wanted), plan_for(wanted)
    curve, best, seconds = _fit(parts, plan)
    run = PictureRun(
        curve,
        seconds,
        steps=wanted.outer.steps,
        best_step=best.step,
        best_seconds=next((point.seconds for point in curve if point.step == best.step), seconds),
        scores={str(n): _scores(parts, best, plan, shots=n) for n in shots},
        penalties={f"{value:g}": _scores(parts, best, plan, C=1 / value) for value in penalties},
    )
    return run.as_dict()


def _fit(parts: Parts, plan: Plan) -> tuple[list[ValidationPoint], TrainState, float]:
    """Trains; the curve, the best state by validation, and the seconds that training took."""
    watch, best = Watch(), [parts.first]
    curve: list[ValidationPoint] = []
    validation = validation_of(parts, plan)

    def score(params: Params, buffers: Buffers) -> Interval:
        """Validation, whose time is not counted."""
        with watch.paused():
            return validation.score(params, buffers)

    def log(record: dict[str, Any]) -> None:
        """Keeps a point of the curve."""
        if "validation" in record:
            score_and_interval = record["validation"], record["ci95"]
            curve.append(ValidationPoint(record["step"], *score_and_interval, watch.seconds()))

    def save(state: TrainState, tags: tuple[str, ...]) -> None:
        """Keeps the best state."""
        if "best" in tags:
            best[0] = state

    fit_parts(parts, plan=plan, validation=validation._replace(score=score), log=log, save=save)
    return curve, best[0], watch.seconds()


def _judged_as(parts: Parts, **eval_settings: Any) -> Parts:
    """The same model, judged in another way."""
    wanted = parts.recipe.eval.model_copy(update=eval_settings)
    return Parts(parts.recipe.model_copy(update={"eval": wanted}), sizes=parts.sizes)


def _scores(parts: Parts, state: TrainState, plan: Plan, **eval_settings: Any) -> list[float]:
    """Accuracy on every test task, in order: the same tasks for all methods."""
    changed = _judged_as(parts, **eval_settings)
    return judge(changed, state.params, state.buffers, "test", parts.recipe.eval.episodes, plan).scores
