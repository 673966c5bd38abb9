"""Choosing a plan by a short measurement, and saying why."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from innerloop.core.errors import UserError, spelt
from innerloop.core.types import Batch, Buffers, Params
from innerloop.execution.gradient_types import TaskDirection, TaskLoss
from innerloop.execution.gradients import InProcesses, meta_gradient
from innerloop.execution.plan import (
    Compile,
    Plan,
    available_cores,
    check_compiler,
    compiler_works,
    cpp_compiler,
    torch_threads,
)
from innerloop.execution.sending import WorkersError
from innerloop.execution.starting import start_method

# What compiling costs and brings, from `innerloop bench maml-sine` (docs/performance.md): used only to decide
# whether a run is long enough, never as a claim.
COMPILE_SECONDS = 45.0
COMPILE_SPEEDUP = 4.0
TRACE_SECONDS = 3.0
TRACE_SPEEDUP = 1.5
SPAWN_SECONDS = 10.0  # until workers that cannot be forked have started


class Measured(NamedTuple):
    """A plan, and the milliseconds per meta-step of every mode that was tried."""

    plan: Plan
    milliseconds: dict[str, float]
    remarks: list[str]


def seconds_per_call(call: Callable[[], Any], budget: float = 1.0) -> float:
    """The fastest of up to five calls after a warm-up, within a budget of seconds; one call if it is long."""
    start = time.perf_counter()
    call()
    spent = time.perf_counter() - start
    best, repeats = (spent, 2) if spent > budget else (float("inf"), 0)
    while repeats < 2 or (repeats < 5 and spent < budget):
        start = time.perf_counter()
        call()
        took = time.perf_counter() - start
        best, repeats, spent = min(best, took), repeats + 1, spent + took
    return best


def choose_plan(
    params: Params,
    buffers: Buffers,
    batch: Batch,
    *,
    loss: TaskLoss | None = None,
    direction: TaskDirection | None = None,
    steps: int,
    execution: str = "auto",
    compile: str = "auto",
    chunk: int | None = None,
    threads: int | None = None,
    allow_vmap: bool = True,
    weighted: bool = False,
) -> Measured:
    """The fastest way to take this meta-gradient on this machine, measured on a real batch.

    Args:
        params: where to measure.
        buffers: likewise.
        batch: a batch of the size that training will use.
        loss: the loss of one task, or
        direction: its pseudo-gradient.
        steps: length of the run: compiling must pay within it.
        execution: ``auto``, or a mode to keep to.
        compile: ``auto``, ``off``, ``trace`` or ``full``.
        chunk: tasks at a time under ``vmap``.
        threads: cores to use; all if omitted.
        allow_vmap: false for what cannot run under it (recomputed inner steps).
        weighted: whether tasks have weights: what is compiled here is then what training calls.
    """
    cores = threads or available_cores()

    def measure(plan: Plan, on: Batch = batch) -> float:
        """Seconds that one meta-gradient of the batch ``on`` takes under ``plan``."""
        with torch_threads(plan):
            run = meta_gradient(loss, plan, direction=direction)
            if isinstance(run, InProcesses):  # or a long call would be charged with it
                run.start(params, buffers, on)
            like = next(iter(params.values()))
            alike = like.new_full((on.size,), 1 / on.size) if weighted else None

            def call() -> None:
                run(params, buffers, on, alike)
                if like.device.type != "cpu":  # a graphics card works on after a call has returned
                    torch.accelerator.synchronize(like.device)

            return seconds_per_call(call)

    plans = _candidates(execution, cores, batch.size, allow_vmap, chunk)
    seconds, remarks = _time_all(plans, batch, measure, steps)
    best = min(seconds, key=lambda plan: seconds[plan])
    milliseconds = {_label(plan): 1000 * s for plan, s in seconds.items()}
    best = best._replace(reason=_why(milliseconds, execution))
    if best.mode != "vmap" or direction is not None:
        if compile in ("full", "trace"):
            remark = f"{{compile}}={compile} is for {{execution}}=vmap with a gradient; not used here"
            remarks.append(spelt(remark, ("compile", "execution")))
    else:
        images = batch.task(0).x_support.ndim > 3
        how, remark = _choose_compile(compile, steps, milliseconds[_label(best)] / 1000, images)
        remarks.append(remark)
        if how != "off":
            best, remark = _try_compiled(best, how, measure, milliseconds, forced=compile != "auto")
            remarks.append(remark)
    return Measured(best, milliseconds, [r for r in remarks if r])


def _time_all(
    plans: list[Plan], batch: Batch, measure: Callable[[Plan, Batch], float], steps: int
) -> tuple[dict[Plan, float], list[str]]:
    """Seconds per meta-step of every plan that is possible and not hopeless, and remarks on the others."""
    seconds: dict[Plan, float] = {}
    remarks: list[str] = []
    failures: dict[str, Exception] = {}
    for plan in plans:
        try:
            best_so_far = min(seconds.values(), default=float("inf"))
            if plan.mode == "processes" and _starts_in_vain(steps * best_so_far):
                remarks.append(f"{_label(plan)}: the run is too short to start processes for")
                continue
            if batch.size > 2 and seconds:
                two = measure(plan, batch.slice(0, 2))
                # under vmap more tasks may cost little more; a loop costs at least in proportion
                at_least = two if plan.mode == "vmap" else two * batch.size / 2 / 1.5
                if at_least > best_so_far:
                    took = f"{1000 * two:.3g} ms for two tasks"
                    remarks.append(f"{_label(plan)}: {took}, too slow to try on all")
                    continue
            seconds[plan] = measure(plan, batch)
        except (RuntimeError, NotImplementedError, WorkersError) as error:
            failures.setdefault(plan.mode, error)
    if not seconds:
        raise next(iter(failures.values()))
    remarks += [f"{mode} is not possible here ({_first_line(error)})" for mode, error in failures.items()]
    return seconds, remarks


def _starts_in_vain(total: float) -> bool:
    """Whether a run of this many seconds is over before workers have paid for their start."""
    return start_method() == "spawn" and total < 10 * SPAWN_SECONDS


def _candidates(execution: str, cores: int, tasks: int, allow_vmap: bool, chunk: int | None) -> list[Plan]:
    """What to measure. Small operations are often faster on one intra-op thread than on several."""
    if execution == "vmap" and not allow_vmap:
        raise UserError(
            "{checkpoint}=true needs {execution}=threads or {execution}=loop.",
            names=("checkpoint", "execution"),
        )
    if execution not in ("auto", "vmap", "threads", "processes", "loop"):
        raise UserError(
            f"unknown execution '{execution}'; there are auto, vmap, threads, processes and loop."
        )
    counts = sorted({1, cores})
    plans: list[Plan] = []
    for mode in ("threads", "processes"):
        if execution == mode or (execution == "auto" and cores > 1 and tasks > 1):
            plans.append(Plan(mode, cores))
    if execution in ("auto", "loop"):
        plans += [Plan("loop", n) for n in counts]
    if execution == "vmap" or (execution == "auto" and allow_vmap):
        plans += [Plan("vmap", n, chunk) for n in counts]
    return plans


def _label(plan: Plan) -> str:
    return f"{plan.mode}@{plan.threads}"


def _try_compiled(
    eager: Plan, how: Compile, measure: Callable[[Plan], float], milliseconds: dict[str, float], forced: bool
) -> tuple[Plan, str]:
    """Compiles and measures; back to eager steps if that fails or brings nothing, unless it was asked for."""
    plan, label = eager._replace(compile=how), f"{_label(eager)}+{how}"
    try:
        measure(plan)  # the first call compiles: it is paid once, and not part of a step
        milliseconds[label] = 1000 * measure(plan)
    except Exception as error:  # compilers fail in many ways, and eager steps always work
        if forced:
            raise UserError(
                f"{{compile}}={how} failed here ({_first_line(error)}): set {{compile}}=auto.",
                names=("compile",),
            ) from error
        return eager, f"compile={how} failed here ({_first_line(error)}); steps stay eager"
    if milliseconds[label] > milliseconds[_label(eager)] and not forced:
        return eager, f"compile={how} was measured ({milliseconds[label]:.3g} ms) and brought nothing"
    return (
        plan,
        f"compile={how}: {milliseconds[label]:.3g} ms instead of {milliseconds[_label(eager)]:.3g} ms",
    )


def _choose_compile(wanted: str, steps: int, eager: float, images: bool) -> tuple[Compile, str]:
    """What to compile, and the line that says why not more."""
    if wanted == "off":
        return "off", ""
    if wanted == "trace":
        return "trace", ""
    if wanted == "full":
        check_compiler(wanted)
        return "full", ""
    if images:
        remark = "not compiled: image networks are compiled only with {compile}=full or trace"
        return "off", spelt(remark, ("compile",))
    total = steps * eager
    why = f"{total:.0f} s of steps are too few to repay about {COMPILE_SECONDS:.0f} s of compiling"
    long_enough = total * (1 - 1 / COMPILE_SPEEDUP) > COMPILE_SECONDS
    if long_enough or cpp_compiler() is None:  # a compiler that is not needed is not tried
        compiler = compiler_works()
        if compiler.works:
            worth = f"{total:.0f} s of steps are worth about {COMPILE_SECONDS:.0f} s of compiling"
            return "full", f"compiled to C++: {worth}"
        why = compiler.reason
    if total * (1 - 1 / TRACE_SPEEDUP) > TRACE_SECONDS:
        return "trace", f"not compiled to C++: {why}; the graph is captured instead"
    return "off", f"not compiled: {why}"


def expected_speedup(wanted: str, steps: int, eager: float, images: bool) -> float:
    """How many times faster than eager steps those of a run will be, if it is compiled: for budgets only.

    Args:
        wanted: ``compile`` of :func:`choose_plan`.
        steps: of the run.
        eager: seconds of an eager step.
        images: whether inputs are pictures.

    >>> expected_speedup("off", 1000, 0.1, False)
    1.0
    """
    how, _ = _choose_compile(wanted, steps, eager, images)
    return {"full": COMPILE_SPEEDUP, "trace": TRACE_SPEEDUP}.get(how, 1.0)


def _why(milliseconds: dict[str, float], execution: str) -> str:
    table = ", ".join(f"{name} {ms:.3g} ms" for name, ms in milliseconds.items())
    if execution != "auto":
        return spelt(f"{{execution}}={execution} was asked for ({table} per meta-step)", ("execution",))
    return f"fastest of those measured: {table} per meta-step (mode@threads)"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
