"""How a run is executed: decided once, by measurement, and kept in its manifest."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.formatting import duration
from innerloop.core.resources import available_cores
from innerloop.experiment.parts import Parts
from innerloop.experiment.ranks import own_tasks, ranks_here
from innerloop.runs.directory import MANIFEST
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.progress import Progress
from innerloop.training.execution.auto import PlanChoice, choose_plan, same_results
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.probes import check_compiler, compiler_works

SLOWDOWN = 3.0
"""Times as long as measured from which plans are measured again: steps vary by a third, and by twice beside
other work."""
WINDOW_STEPS = 10
WINDOW_SECONDS = 10.0
"""Of steps at least before their pace is looked at."""


def check_kept_plan(run: Path, plan: Mapping[str, Any]) -> None:
    """A resumed run keeps its plan, so it needs the compiler that the plan was made with."""
    if plan.get("compile") == "native":
        check_compiler("native")
    if plan.get("compile") == "full" and not (outcome := compiler_works()).works:
        raise UserError(
            f"{run} was compiled to C++, and here {outcome.reason}: resume it where a compiler works, or "
            "name one in $CXX."
        )


Again = Callable[[Plan, str], PlanChoice | None]
"""``(plan, why)``: a faster plan with the same results, if there is one; :func:`measured_again` of a run."""


class Slowdown:
    """Has plans measured again if steps take several times as long as they did, and says what came of it."""

    def __init__(self, plan: Plan, expected: float | None, say: Callable[[str], None], again: Again) -> None:
        # steps of several ranks draw their tasks too, and wait for the slowest
        self.plan, self._expected, self._say = plan, expected if ranks_here() == 1 else None, say
        self._again, self._steps = again, list[float]()

    def __call__(self, seconds: float) -> Plan | None:
        """Hears how long one more gradient took; looks at them in windows of ten seconds."""
        if self._expected is None:
            return None
        self._steps.append(seconds)
        if len(self._steps) < WINDOW_STEPS or sum(self._steps) < WINDOW_SECONDS:
            return None
        usual = statistics.median(self._steps)  # one step during which the machine slept is no slowdown
        self._steps.clear()
        if usual < SLOWDOWN * self._expected:
            return None
        times = f"{usual / self._expected:.0f} times as long as when it was measured ({self.plan})"
        slow = f"a step takes {duration(usual)}, {times}"
        faster = self._again(self.plan, slow)
        if faster is None:
            advice = (
                ", or start again with run.threads=1, which needs one core" if self.plan.threads > 1 else ""
            )
            self._say(f"warning: {slow}: other programs seem to use the cores; stop them{advice}")
            self._expected = None
            return None
        self.plan, self._expected = faster.plan, faster.milliseconds[faster.plan.label] / 1000
        self._say(f"warning: {slow}: measured again, and goes on by {self.plan} ({self.plan.reason})")
        return self.plan


def plan_of(parts: Parts, run: Path, bar: Progress, left: int) -> tuple[Plan, float | None]:
    """What the manifest says, else what is measured and written there; and seconds of a step, if known."""
    recorded = read_manifest(run).get("plan")
    if recorded:
        known = Plan().as_dict()
        if lost := [name for name in known if name not in recorded]:
            raise UserError(f"{run / MANIFEST}: its 'plan' has no '{lost[0]}'. Was it edited by hand?")
        plan = Plan(**{name: recorded[name] for name in known})
        bar.line(f"execution as before: {plan}")
        return plan, _expected(plan, recorded.get("milliseconds") or {}, left, bar)
    measured = measured_plan(parts, bar.line)
    plan = measured.plan
    update_manifest(
        run, plan={**plan.as_dict(), "milliseconds": measured.milliseconds, "remarks": measured.remarks}
    )
    bar.line(f"execution: {plan} ({plan.reason})")
    for remark in measured.remarks:
        bar.line(remark)
    return plan, _expected(plan, measured.milliseconds, left, bar)


def measured_again(parts: Parts, run: Path, plan: Plan, why: str) -> PlanChoice | None:
    """A faster plan with the same results, which the manifest has from then on; None if there is none."""
    asked = parts.recipe.run
    plans = same_results(plan, asked.threads or available_cores(), asked.execution)
    if len(plans) == 1:
        return None
    found = measured_plan(parts, lambda _: None, plans)
    if found.plan.label == plan.label:
        return None
    before = read_manifest(run).get("plan") or {}
    measured = {**(before.get("milliseconds") or {}), **found.milliseconds}
    remarks = [*(before.get("remarks") or []), f"measured again: {why}", *found.remarks]
    update_manifest(run, plan={**found.plan.as_dict(), "milliseconds": measured, "remarks": remarks})
    return found


def measured_plan(
    parts: Parts, say: Callable[[str], None], plans: Sequence[Plan] | None = None
) -> PlanChoice:
    """The fastest way to train these parts here, by their recipe; ``say`` is told of what is measured."""
    recipe = parts.recipe
    return choose_plan(
        parts.params,
        parts.buffers,
        parts.data.train.batch(0, own_tasks(recipe.outer.batch)),
        loss=parts.objective.loss,
        direction=parts.objective.direction,
        steps=recipe.outer.steps,
        execution=recipe.run.execution,
        compile=recipe.run.compile,
        chunk=recipe.run.chunk,
        threads=recipe.run.threads,
        allow_vmap=not recipe.inner.checkpoint,
        weighted=recipe.outer.hard_weight != 1 and parts.data.train.hard is not None,
        native=parts.network.descend is not None and not recipe.inner.checkpoint,
        plans=plans,
        say=say,
    )


def _expected(plan: Plan, milliseconds: Mapping[str, float], left: int, bar: Progress) -> float | None:
    """Seconds of a step as it was measured; says how long those that are left will take."""
    if plan.label not in milliseconds:
        return None
    seconds = milliseconds[plan.label] / 1000
    if left:
        bar.line(f"about {duration(round(seconds * left))} for {left:,} steps, and validation besides")
    return seconds
