r"""What a meta-step costs on many ranks, from what was measured on few.

With :math:`T` tasks a step and :math:`R` ranks of :math:`c` cores each, the busiest core has
:math:`k = \lceil\lceil T/R\rceil/c\rceil` tasks, and a step takes

.. math:: t(R) = k\,t_\text{task} + t_\text{fixed} + \sigma\sqrt{2k\ln\min(T, Rc)} + t_\text{ring}(R),\qquad
    t_\text{ring}(R) = 2(R-1)\Bigl(\ell + \frac{n}{R\,b}\Bigr).

The third term is what all wait for the slowest of the cores that have tasks, if the times of tasks are
independent and normal with a deviation of :math:`\sigma`: an upper bound of the expected maximum. The last is
a ring all-reduce of :math:`n` bytes over links of latency :math:`\ell` and bandwidth :math:`b`. It does not
overlap with tasks: gradients are exchanged when they are finished. Imports no torch.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Step(NamedTuple):
    """What a meta-step costs, in seconds of one core."""

    task: float
    fixed: float
    spread: float
    size: float


class Link(NamedTuple):
    """What connects neighbours of the ring: seconds until something arrives, and bytes a second."""

    latency: float
    bandwidth: float


class Exchange(NamedTuple):
    """One measured all-reduce: of how many bytes, among how many ranks, in how many seconds."""

    ranks: int
    size: float
    seconds: float


def all_reduce_seconds(ranks: int, size: float, link: Link) -> float:
    """The time of a ring: every rank sends ``size / ranks`` bytes to its neighbour, 2 (ranks − 1) times."""
    return 2 * (ranks - 1) * (link.latency + size / ranks / link.bandwidth)


def busiest(tasks: int, ranks: int, cores: int = 1) -> int:
    """The most tasks that one core has to do."""
    return math.ceil(math.ceil(tasks / ranks) / cores)


def step_seconds(step: Step, link: Link, tasks: int, ranks: int, cores: int = 1) -> float:
    """The time of a step of ``tasks`` tasks on ``ranks`` ranks of ``cores`` cores each."""
    share = busiest(tasks, ranks, cores)
    computing = share * step.task + step.fixed
    waiting = step.spread * math.sqrt(2 * share * math.log(min(tasks, ranks * cores)))
    return computing + waiting + all_reduce_seconds(ranks, step.size, link)


def speed_up(step: Step, link: Link, tasks: int, ranks: int, cores: int = 1) -> float:
    """How many times faster the same step is than on one core."""
    return step_seconds(step, link, tasks, 1) / step_seconds(step, link, tasks, ranks, cores)


def efficiency(step: Step, link: Link, tasks: int, ranks: int, cores: int = 1) -> float:
    """The speed-up per core."""
    return speed_up(step, link, tasks, ranks, cores) / (ranks * cores)


def fitted(exchanges: Sequence[Exchange]) -> Link:
    r"""The link whose ring is nearest to what was measured: least squares of :math:`t_\text{ring}/t - 1`."""
    rows = np.array([[2 * (e.ranks - 1), 2 * (e.ranks - 1) * e.size / e.ranks] for e in exchanges])
    times = np.array([e.seconds for e in exchanges])
    unit = np.abs(rows / times[:, None]).max(0)  # or bytes and seconds are too far apart for the solver
    (latency, per_byte), *_ = np.linalg.lstsq(rows / times[:, None] / unit, np.ones(len(times)), rcond=None)
    return Link(max(0.0, float(latency / unit[0])), float(unit[1] / max(per_byte, 1e-300)))


def task_and_fixed(seconds: dict[int, float]) -> tuple[float, float]:
    """Seconds of a task, and what does not depend on their number: the line nearest to what is given."""
    tasks, times = np.array(list(seconds), dtype=float), np.array(list(seconds.values()))
    slope, rest = np.polyfit(tasks, times, 1)
    return float(slope), float(rest)


# ---- in numbers and in a picture: measured on this machine, extrapolated to hundreds of ranks ----

HERE = "as between processes here"
LINKS = {"10 Gbit/s Ethernet": Link(30e-6, 1.1e9), "100 Gbit/s, low latency": Link(5e-6, 10e9)}
"""Assumed, not measured: what arrives through the sockets of such a network."""

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
PER_MACHINE = 32  # cores of a machine, where a rank is given one
BATCHES = (4, 64, 512)  # tasks of a step that stays the same, however many ranks share it
PER_CORE = 4  # tasks of a step for every core, where the batch grows with them


class Way(NamedTuple):
    """One way to lay a job out: a name, the link between ranks, and cores of a rank."""

    name: str
    link: Link
    cores: int = 1


def ways(here: Link) -> list[Way]:
    """A rank for every core, and one for every machine; on the measured link and on assumed ones."""
    every = [Way(f"{name}, a rank per core", link) for name, link in {HERE: here, **LINKS}.items()]
    per = f"a rank per {PER_MACHINE} cores"
    return every + [Way(f"{name}, {per}", link, PER_MACHINE) for name, link in LINKS.items()]


def extrapolated(step: Step, here: Link) -> list[dict[str, Any]]:
    """Milliseconds, speed-up over one core and efficiency of every way, number of cores and batch."""
    rows: list[dict[str, Any]] = []
    for way in ways(here):
        for cores in (count for count in RANKS if count % way.cores == 0):
            for tasks, grows in [*((tasks, False) for tasks in BATCHES), (PER_CORE * cores, True)]:
                ranks = cores // way.cores
                row = {"way": way.name, "cores": cores, "ranks": ranks, "tasks": tasks, "grows": grows}
                given, ring = (step, way.link, tasks, ranks, way.cores), (ranks, step.size, way.link)
                row |= {"ms": 1e3 * step_seconds(*given), "all_reduce_ms": 1e3 * all_reduce_seconds(*ring)}
                rows.append(row | {"speed_up": speed_up(*given), "efficiency": efficiency(*given)})
    return rows


def panels(models: Mapping[str, Any]) -> list[Any]:
    """Of the models of ``bench ranks``: 5 inner steps, with what was measured; and 1, the harder case."""
    from innerloop.report.plots.panels import line, panel, points

    step, cores = Step(**models["5"]["step"]), [float(count) for count in RANKS]
    measured, (slow, link) = models["5"]["measured_speed_up"], next(iter(LINKS.items()))
    by_batch = {n: [speed_up(step, link, n, count) for count in RANKS] for n in BATCHES}
    fixed = [line(f"{tasks} tasks", cores, values) for tasks, values in by_batch.items()]
    seen = points([float(n) for n in measured], list(measured.values()))
    fixed += [line("one for every core", cores, cores), line("4 tasks, measured here", [], [], points=seen)]
    step, grown = Step(**models["1"]["step"]), []
    for way in ways(Link(**models["1"]["link"])):
        counts = [count for count in RANKS if count % way.cores == 0]
        values = [efficiency(step, way.link, PER_CORE * n, n // way.cores, way.cores) for n in counts]
        grown.append(line(way.name, [float(n) for n in counts], values))
    title, where = f"efficiency, {PER_CORE} tasks for every core", f"cores ({slow}, a rank per core)"
    return [
        panel(where, "speed-up over one core, 5 inner steps", fixed, log_x=True, log_y=True),
        panel("cores", f"{title}, 1 inner step", grown, log_x=True, limits=(0.0, 1.05)),
    ]


def sentences(steps: int, model: dict[str, Any]) -> list[str]:
    """The model of this many inner steps, for people."""
    step, here = Step(**model["step"]), Link(**model["link"])
    name = f"{steps} inner step{'s' if steps > 1 else ''}"
    made = f"{name}: a task takes {1e3 * step.task:.1f} ms (± {1e3 * step.spread:.1f}), the rest of a step "
    made += f"{1e3 * step.fixed:.2f} ms; {step.size / 1e6:.2f} MB are exchanged, here in "
    made += f"{1e6 * here.latency:.0f} µs and {here.bandwidth / 1e9:.1f} GB/s a link"
    told, seen = speed_up(step, here, 4, 2), model["measured_speed_up"][2]
    check = f"{name}: two ranks are {told:.2f}× one by this model, and {seen:.2f}× measured"
    rows = [row for row in model["extrapolated"] if row["cores"] == 256 and row["grows"]]
    far = "; ".join(f"{row['way']} {100 * row['efficiency']:.0f} %" for row in rows)
    return [made, check, f"{name}, efficiency on 256 cores with {PER_CORE} tasks for each: {far}"]
