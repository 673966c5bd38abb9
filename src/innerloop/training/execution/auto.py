"""Choosing a plan by a short measurement, and saying why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import torch

from innerloop.core.errors import UserError, spell
from innerloop.core.resources import available_cores
from innerloop.core.types import Batch, Buffers, Params
from innerloop.nets.ops.engine import calls as native_calls
from innerloop.training.execution.gradient_types import TaskDirection, TaskLoss
from innerloop.training.execution.gradients import InProcesses, meta_gradient
from innerloop.training.execution.plan import Compile, Mode, Plan, torch_threads
from innerloop.training.execution.probes import (
    check_compiler,
    compiler_works,
    cpp_compiler,
    native_library,
    native_works,
)
from innerloop.training.execution.timing import (
    THREADS_GAIN,
    first_line,
    pace_words,
    seconds_per_call,
    time_plans,
)

# What compiling costs and brings, from `innerloop bench maml-sine` (docs/performance.md): used only to decide
# whether a run is long enough, never as a claim.
COMPILE_SECONDS = 45.0
COMPILE_SPEEDUP = 4.0
NATIVE_SECONDS = 20.0
NATIVE_SPEEDUP = 1.5
IMAGE_MODES = ("threads", "loop")
"""In which native layers of pictures run; inner steps on numbers are all taken at once, under ``vmap``."""
TRACE_SECONDS = 3.0
TRACE_SPEEDUP = 1.5


class PlanChoice(NamedTuple):
    """A plan, and the milliseconds per meta-step of every mode that was tried."""

    plan: Plan
    milliseconds: dict[str, float]
    remarks: list[str]


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
    native: bool = False,
    plans: Sequence[Plan] | None = None,
    say: Callable[[str], None] | None = None,
) -> PlanChoice:
    """The fastest way to take this meta-gradient on this machine, measured on a real batch.

    Several threads inside operations are taken only if they are 1.3 times as fast as any other way. Measuring
    takes 2 % of the run, at least 5 s and at most 20 s; a mode that is slower than another is left early.

    Args:
        params: where to measure.
        buffers: likewise.
        batch: a batch of the size that training will use.
        loss: the loss of one task, or
        direction: its pseudo-gradient.
        steps: length of the run: compiling must pay within it.
        execution: ``auto``, or a mode to keep to.
        compile: ``auto``, ``off``, ``trace``, ``full`` or ``native``.
        chunk: tasks at a time under ``vmap``.
        threads: cores to use; all if omitted.
        allow_vmap: false for what cannot run under it (recomputed inner steps).
        weighted: whether tasks have weights: what is compiled here is then what training calls.
        native: whether the network has native code for its layers, which is built where that repays.
        plans: the only ones to choose among, whatever ``execution``, ``compile`` and ``native`` are.
        say: receives a line for every mode while it is measured, if that takes longer than a second.
    """
    cores = threads or available_cores()

    def measure(plan: Plan, on: Batch, budget: float, best: float) -> float:
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

            return seconds_per_call(call, budget, best)

    images = batch.task(0).x_support.ndim > 3
    if images and batch.size == 1 and execution == compile == "auto":
        allow_vmap = False  # one task has no others to be run with, and nothing is compiled
    candidates = list(plans or _candidates(execution, cores, batch.size, allow_vmap, chunk))
    if compile == "native" and not plans:
        candidates = _on_native_layers(candidates, images)
    before = native_calls()
    seconds, remarks = time_plans(candidates, batch, measure, steps, say)
    if compile == "native" and native_calls() == before:
        remarks.append("these inner steps have no native code: it is not used")
    best = _worth_its_threads(seconds)
    milliseconds = {plan.label: 1000 * s for plan, s in seconds.items()}
    best = best._replace(reason=_why(best, milliseconds, execution))
    if plans:
        return PlanChoice(best, milliseconds, remarks)
    if native and compile == "auto" and execution in ("auto", *(IMAGE_MODES if images else ("vmap",))):
        workers = cores if execution != "loop" and batch.size > 1 else 1
        mode: Mode = "threads" if workers > 1 or execution == "threads" else "loop"
        plan = Plan(mode, workers, None, "native") if images else Plan("vmap", 1, chunk, "native")
        best, remark = _try_native(
            best, plan, lambda one: measure(one, batch, 1.0, min(seconds.values())), milliseconds, steps, say
        )
        remarks.append(remark)
    if best.compile == "native":
        pass
    elif best.mode != "vmap" or direction is not None:
        if compile in ("full", "trace"):
            remark = f"{{compile}}={compile} is for {{execution}}=vmap with a gradient; not used here"
            remarks.append(spell(remark, ("compile", "execution")))
    else:
        how, remark = _choose_compile(compile, steps, milliseconds[best.label] / 1000, images)
        remarks.append(remark)
        if how != "off":
            if say is not None and how == "full":
                say("compiling steps to C++: up to a minute")
            best, remark = _try_compiled(
                best, how, lambda plan: measure(plan, batch, 1.0, inf), milliseconds, forced=compile != "auto"
            )
            remarks.append(remark)
    return PlanChoice(best, milliseconds, [r for r in remarks if r])


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


def same_results(plan: Plan, cores: int, execution: str = "auto") -> list[Plan]:
    """Plans with this one's results to the last bit: whole tasks, on one intra-op thread each.

    >>> [one.label for one in same_results(Plan("threads", 2), 2)]
    ['threads@2', 'loop@1', 'processes@2']
    >>> [one.label for one in same_results(Plan("vmap", 2), 2)]
    ['vmap@2']
    """
    if plan.mode == "vmap" or plan.intra_op > 1:
        return [plan]
    others = [Plan("loop", 1, compile=plan.compile)]
    for n in (n for n in sorted({cores // 2, cores}) if n > 1):
        others.append(Plan("threads", n, compile=plan.compile))
        if plan.compile != "native":
            others.append(Plan("processes", n))
    known = [one for one in others if one.label != plan.label and execution in ("auto", one.mode)]
    return [plan, *known]


def _on_native_layers(plans: list[Plan], images: bool) -> list[Plan]:
    """The same plans on native layers, where they can use them."""
    check_compiler("native")
    modes = IMAGE_MODES if images else ("vmap",)
    native = [plan._replace(compile="native") for plan in plans if plan.mode in modes]
    if not native:
        wanted = " or ".join(f"{{execution}}={mode}" for mode in modes)
        raise UserError(f"{{compile}}=native needs {wanted} here.", names=("compile", "execution"))
    return native


def _worth_its_threads(seconds: dict[Plan, float]) -> Plan:
    """The fastest plan; one with several intra-op threads only if that is worth it."""
    best = min(seconds, key=lambda plan: seconds[plan])
    steady = [plan for plan in seconds if plan.intra_op == 1]
    if best.intra_op == 1 or not steady:
        return best
    other = min(steady, key=lambda plan: seconds[plan])
    return best if seconds[other] >= THREADS_GAIN * seconds[best] else other


def _try_native(
    usual: Plan,
    plan: Plan,
    measure: Callable[[Plan], float],
    milliseconds: dict[str, float],
    steps: int,
    say: Callable[[str], None] | None,
) -> tuple[Plan, str]:
    """Measures native layers, and builds them first where they are missing and the run repays that."""
    before = milliseconds[usual.label]
    library = native_library()
    if library is None:
        return usual, "layers are torch's: native ones need a C++ compiler, and none was found"
    built = library.is_file()
    if steps * before / 1000 * (1 - 1 / NATIVE_SPEEDUP) < (1.0 if built else NATIVE_SECONDS):
        return usual, ""  # measuring, or building, would take longer than it saves
    if say is not None and not built:
        say(f"compiling native layers for this machine, once: about {NATIVE_SECONDS:.0f} s")
    outcome = native_works()
    if not outcome.works:
        return usual, f"layers are torch's, which is slower: {outcome.reason}"
    calls = native_calls()
    measured = 1000 * measure(plan)
    if native_calls() == calls:
        return usual, ""  # these inner steps have none
    milliseconds[plan.label] = measured
    took, usually = (pace_words(milliseconds[one.label]) for one in (plan, usual))
    if milliseconds[plan.label] > before:
        return usual, f"native layers were measured ({took}) and brought nothing"
    return plan._replace(reason=f"native layers: {took} per meta-step instead of {usually}"), ""


def _try_compiled(
    eager: Plan, how: Compile, measure: Callable[[Plan], float], milliseconds: dict[str, float], forced: bool
) -> tuple[Plan, str]:
    """Compiles and measures; back to eager steps if that fails or brings nothing, unless it was asked for."""
    plan = eager._replace(compile=how)
    try:
        measure(plan)  # the first call compiles: it is paid once, and not part of a step
        milliseconds[plan.label] = 1000 * measure(plan)
    except Exception as error:  # compilers fail in many ways, and eager steps always work
        if forced:
            raise UserError(
                f"{{compile}}={how} failed here ({first_line(error)}): set {{compile}}=auto.",
                names=("compile",),
            ) from error
        return eager, f"compile={how} failed here ({first_line(error)}); steps stay eager"
    took, before = (pace_words(milliseconds[one.label]) for one in (plan, eager))
    if milliseconds[plan.label] > milliseconds[eager.label] and not forced:
        return eager, f"compile={how} was measured ({took}) and brought nothing"
    return plan, f"compile={how}: {took} instead of {before}"


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
        return "off", spell(remark, ("compile",))
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

    >>> expected_speedup("off", 1000, 0.1, False)
    1.0
    """
    how, _ = _choose_compile(wanted, steps, eager, images)
    return {"full": COMPILE_SPEEDUP, "trace": TRACE_SPEEDUP}.get(how, 1.0)


def _why(chosen: Plan, milliseconds: dict[str, float], execution: str) -> str:
    table = ", ".join(f"{name} {pace_words(ms)}" for name, ms in milliseconds.items())
    if execution != "auto":
        return spell(f"{{execution}}={execution} was asked for ({table} per meta-step)", ("execution",))
    if milliseconds[chosen.label] > min(milliseconds.values()):
        table = f"more threads inside operations would be less than {THREADS_GAIN:g} times as fast: {table}"
    else:
        table = f"fastest of those measured: {table}"
    return f"{table} per meta-step (mode@threads)"
