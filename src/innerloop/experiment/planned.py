"""How a run is executed: decided once, by measurement, and kept in its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.execution.auto import choose_plan
from innerloop.execution.plan import Plan, compiler_works
from innerloop.experiment.parts import Parts
from innerloop.experiment.together import own_tasks
from innerloop.runs.directory import MANIFEST
from innerloop.runs.manifest import read_manifest, update_manifest
from innerloop.runs.progress import Progress


def check_kept_plan(run: Path, plan: Mapping[str, Any]) -> None:
    """A resumed run keeps its plan, so it needs the compiler that the plan was made with."""
    if plan.get("compile") == "full" and not (outcome := compiler_works()).works:
        raise UserError(
            f"{run} was compiled to C++, and here {outcome.reason}: resume it where a compiler works, or "
            "name one in $CXX."
        )


def planned(parts: Parts, run: Path, bar: Progress) -> Plan:
    """What the manifest says, else a measurement, which is written there before the first step.

    Args:
        parts: what is trained.
        run: its directory.
        bar: where people are told.

    Raises:
        UserError: the plan in the manifest was damaged.
    """
    recipe = parts.recipe
    recorded = read_manifest(run).get("plan")
    if recorded:
        known = Plan().as_dict()
        if lost := [name for name in known if name not in recorded]:
            raise UserError(f"{run / MANIFEST}: its 'plan' has no '{lost[0]}'. Was it edited by hand?")
        plan = Plan(**{name: recorded[name] for name in known})
        bar.line(f"execution as before: {plan}")
        return plan
    measured = choose_plan(
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
    )
    plan = measured.plan
    update_manifest(
        run, plan={**plan.as_dict(), "milliseconds": measured.milliseconds, "remarks": measured.remarks}
    )
    bar.line(f"execution: {plan} ({plan.reason})")
    for remark in measured.remarks:
        bar.line(remark)
    return plan
