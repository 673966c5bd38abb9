"""The cost model in numbers and in a picture: measured on this machine, extrapolated to hundreds of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from innerloop_studies.bench.cost_model import (
    Link,
    Step,
    all_reduce_seconds,
    efficiency,
    speed_up,
    step_seconds,
)
from innerloop_studies.bench.report_parts import CostModel, Extrapolated

if TYPE_CHECKING:
    from innerloop.report.plots.panels import Panel

HERE = "as between processes here"
LINKS = {
    "10 Gbit/s Ethernet": Link(30e-6, 1.1e9),
    "100 Gbit/s, low latency": Link(5e-6, 10e9),
}
"""Assumed, not measured: what arrives through the sockets of such a network."""

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PER_MACHINE = 32
"""Cores of a machine, where a rank is given one."""
BATCHES = (4, 64, 512)
"""Tasks of a step that stays the same, however many ranks share it."""
PER_CORE = 4
"""Tasks of a step for every core, where the batch grows with them."""


class Way(NamedTuple):
    """One way to lay a job out: a name, the link between ranks, and cores of a rank."""

    name: str
    link: Link
    cores: int = 1


def ways(here: Link) -> list[Way]:
    """A rank for every core, and one for every machine; on the measured link and on assumed ones."""
    every = [Way(f"{name}, a rank per core", link) for name, link in {HERE: here, **LINKS}.items()]
    whole = [
        Way(f"{name}, a rank per {PER_MACHINE} cores", link, PER_MACHINE) for name, link in LINKS.items()
    ]
    return every + whole


def extrapolated(step: Step, here: Link) -> list[Extrapolated]:
    """Milliseconds, speed-up over one core and efficiency of every way, number of cores and batch."""
    rows: list[Extrapolated] = []
    for way in ways(here):
        for cores in (count for count in RANKS if count % way.cores == 0):
            for tasks, grows in [*((tasks, False) for tasks in BATCHES), (PER_CORE * cores, True)]:
                given = (step, way.link, tasks, cores // way.cores, way.cores)
                rows.append(
                    {
                        "way": way.name,
                        "cores": cores,
                        "ranks": cores // way.cores,
                        "tasks": tasks,
                        "grows": grows,
                        "ms": 1e3 * step_seconds(*given),
                        "all_reduce_ms": 1e3 * all_reduce_seconds(given[3], step.size, way.link),
                        "speed_up": speed_up(*given),
                        "efficiency": efficiency(*given),
                    }
                )
    return rows


def cost_panels(models: Mapping[str, CostModel]) -> list[Panel]:
    """Of the models of ``bench ranks``: 5 inner steps, with what was measured; and 1, the harder case."""
    return [_fixed_batch(models["5"]), _grown_batch(models["1"])]


def _fixed_batch(model: CostModel) -> Panel:
    from innerloop.report.plots.panels import line, panel, points

    step = Step(**model["step"])
    cores = [float(count) for count in RANKS]
    slow, link = next(iter(LINKS.items()))
    fixed = [
        line(f"{tasks} tasks", cores, [speed_up(step, link, tasks, count) for count in RANKS])
        for tasks in BATCHES
    ]
    measured = model["measured_speed_up"]
    fixed += [
        line("one for every core", cores, cores),
        line(
            "4 tasks, measured here",
            [],
            [],
            points=points([float(n) for n in measured], list(measured.values())),
        ),
    ]
    where = f"cores ({slow}, a rank per core)"
    return panel(where, "speed-up over one core, 5 inner steps", fixed, log_x=True, log_y=True)


def _grown_batch(model: CostModel) -> Panel:
    from innerloop.report.plots.panels import line, panel

    step, here = Step(**model["step"]), Link(**model["link"])
    grown = []
    for way in ways(here):
        counts = [count for count in RANKS if count % way.cores == 0]
        values = [efficiency(step, way.link, PER_CORE * n, n // way.cores, way.cores) for n in counts]
        grown.append(line(way.name, [float(n) for n in counts], values))
    title = f"efficiency, {PER_CORE} tasks for every core, 1 inner step"
    return panel("cores", title, grown, log_x=True, limits=(0.0, 1.05))


def sentences(steps: int, model: CostModel) -> list[str]:
    """The model of this many inner steps, for people."""
    step, here = Step(**model["step"]), Link(**model["link"])
    name = f"{steps} inner step{'s' if steps > 1 else ''}"
    made = (
        f"{name}: a task takes {1e3 * step.task:.1f} ms (± {1e3 * step.spread:.1f}), the rest of a step "
        f"{1e3 * step.fixed:.2f} ms; {step.size / 1e6:.2f} MB are exchanged, here in "
        f"{1e6 * here.latency:.0f} µs and {here.bandwidth / 1e9:.1f} GB/s a link"
    )
    told, seen = speed_up(step, here, 4, 2), model["measured_speed_up"][2]
    check = f"{name}: two ranks are {told:.2f}× one by this model, and {seen:.2f}× measured"
    rows = [row for row in model["extrapolated"] if row["cores"] == 256 and row["grows"]]
    far = "; ".join(f"{row['way']} {100 * row['efficiency']:.0f} %" for row in rows)
    return [made, check, f"{name}, efficiency on 256 cores with {PER_CORE} tasks for each: {far}"]
