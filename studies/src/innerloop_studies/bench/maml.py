"""What the benchmarks of meta-gradients share: workloads, sides, their worker, and a row for every pair."""

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from innerloop.core import Loss, Params, TaskBatch, get_loss
from innerloop.core.resources import available_cores
from innerloop.learners import episodic, imaml, maml, protonet
from innerloop.nets import Network, conv4, mlp
from innerloop.tasks import get_family, make_sampler
from innerloop.training import Plan, meta_gradient
from innerloop_studies.bench import environments, harness, maml_peers
from innerloop_studies.bench.worker import Answer, Spec, Worker, flat, peak_mb

PLAIN = "plain-loop"
SLOWER = 3.0  # times as long as another way of the same peer: it is not measured further
JAX = "innerloop_studies.bench.jax_maml"

# ---- what is computed: parameters, tasks and settings, the same for all sides ----


class Workload(NamedTuple):
    """One meta-gradient to take."""

    kind: str
    network: Network
    params: Params
    batch: TaskBatch
    loss: Loss
    lr: float
    steps: int


def sine(steps: int, dtype: torch.dtype, tasks: int = 25, hidden: int = 40) -> Workload:
    """Finn's sinusoids, 10 support and 10 query points, MLP 1-40-40-1."""
    network = mlp(1, [hidden, hidden], 1)
    batch = make_sampler(get_family("sine"), seed=0, shots=10, queries=10, dtype=dtype).batch(0, tasks)
    assert isinstance(batch, TaskBatch)
    return _at_first_weights("mlp", network, batch, steps, dtype)


def pictures(
    kind: str,
    steps: int,
    dtype: torch.dtype,
    *,
    tasks: int = 4,
    ways: int = 5,
    shots: int,
    queries: int = 15,
    channels: int,
    size: int,
    **network: Any,
) -> Workload:
    """Conv4 on pictures of noise."""
    generator, shape = torch.Generator().manual_seed(1), (channels, size, size)
    support, query = (torch.randn(tasks, ways * n, *shape, generator=generator) for n in (shots, queries))
    y_support, y_query = (torch.arange(ways).repeat(n).repeat(tasks, 1) for n in (shots, queries))
    batch = TaskBatch(support, y_support, query, y_query, torch.arange(tasks))
    return _at_first_weights(kind, conv4(channels, size, ways, **network), batch, steps, dtype)


conv = partial(pictures, "conv", shots=1, channels=1, size=28, filters=64, pooling="stride")
"""Omniglot's shapes, 5-way 1-shot 15-query, Conv4-64 with strides of two."""
pooled = partial(pictures, "pooled", shots=5, channels=3, size=84, filters=32, pooling="max")
"""The field's canonical case: miniImageNet's shapes, 5-way 5-shot 15-query, Conv4-32 with max pooling."""
one_task = partial(pictures, "protonet", tasks=1, shots=5, channels=3, size=84, filters=64, pooling="max")
"""A training step of ProtoNet: the same of one task, Conv4-64."""


def jax_sides(base: Spec, environment: environments.Environment, folder: Path) -> list[harness.Side]:
    """JAX on one host device and on as many as cores share the tasks; pictures by either convolution."""
    work, dtype = workload(base), base.get("dtype", "float32")
    inputs = folder / f"{work.kind}-{work.steps}-{dtype}.npz"
    tensors = work.params | {f"task.{i}": field for i, field in enumerate(work.batch[:4])}
    np.savez(inputs, allow_pickle=False, **{name: value.numpy() for name, value in tensors.items()})
    sides = []
    for devices in sorted({1, math.gcd(available_cores(), work.batch.size)}):
        where = environments.jax_devices(environment, devices, dtype)
        for convolution in ("im2col", "lax") if work.kind != "mlp" else ("",):
            spec = {**base, "side": "jax", "inputs": str(inputs), "lr": work.lr, "convolution": convolution}
            name = "-".join(filter(None, ("jax", convolution, f"{devices}-devices")))
            sides += harness.on_threads([name], spec, [available_cores()], JAX, where)
    return sides


def _at_first_weights(
    kind: str, network: Network, batch: TaskBatch, steps: int, dtype: torch.dtype
) -> Workload:
    params, _ = network.init(torch.Generator().manual_seed(0))
    params = {name: value.to(dtype) for name, value in params.items()}
    batch = batch._replace(x_support=batch.x_support.to(dtype), x_query=batch.x_query.to(dtype))
    loss = get_loss("mse" if kind == "mlp" else "cross-entropy")
    return Workload(kind, network, params, batch, loss, 0.01, steps)


def workload(spec: Spec) -> Workload:
    """The workload that a worker was asked for; ``sizes`` makes it smaller for tests."""
    dtype = getattr(torch, spec.get("dtype", "float32"))
    factories: dict[str, Callable[..., Workload]] = {"sine": sine, "conv": conv, "pooled": pooled}
    factories["protonet"] = one_task
    return factories[spec["workload"]](spec["steps"], dtype, **spec.get("sizes", {}))


# ---- sides ----


def build(spec: Spec) -> Callable[[], Params]:
    """The side that ``spec`` asks for: takes the meta-gradient once, and returns it by parameter name."""
    work = workload(spec)
    if spec["side"] != "ours":
        torch.set_num_threads(spec["threads"])
        loss = F.mse_loss if work.kind == "mlp" else F.cross_entropy  # torch's own, as a user would
        given = loss, work.params, work.lr, work.steps, tuple(work.batch[:4])
        if work.kind == "protonet":
            return partial(maml_peers.protonet_gradient, loss, work.params, given[-1])
        if spec["side"] == PLAIN:
            return partial(maml_peers.meta_gradient, maml_peers.FORWARDS[work.kind], *given)
        return maml_peers.by_library(spec["side"], work.kind, *given)
    # the public way: a learner, an objective and a plan; of ``ranks``, which have met, each calls this
    options = {"compile": spec.get("compile", "off"), "ranks": spec.get("ranks", 1)}
    plan = Plan(spec["mode"], spec["threads"], **options)
    torch.set_num_threads(plan.intra_op)
    if work.kind == "protonet":
        learner = protonet(work.network, int(work.batch.y_support.max()) + 1)
    elif spec.get("implicit"):
        learner = imaml(work.network, work.loss, work.lr, work.steps)
    else:
        kinds = {name: spec.get(name, False) for name in ("first_order", "checkpoint")}
        learner = maml(work.network, work.loss, work.lr, work.steps, **kinds)
    gradient = meta_gradient(episodic(learner, work.loss).loss, plan)
    return lambda: gradient(work.params, {}, work.batch).grads


TINY = {
    "sine": {"tasks": 2, "hidden": 2},
    "conv": {"tasks": 2, "ways": 2, "queries": 1, "filters": 2},
    "pooled": {"tasks": 2, "ways": 2, "shots": 1, "queries": 1, "filters": 2, "size": 16},
    "protonet": {"ways": 2, "shots": 1, "queries": 1, "filters": 2, "size": 16},
}


def small(spec: Spec) -> Spec | None:
    """Settings of a call that imports whatever the side needs."""
    return {"sizes": TINY[spec["workload"]]} if spec.get("compile") != "full" else None


class GradientWorker(Worker):
    """A side of a comparison of meta-gradients; or a training run whose memory is looked at on the way."""

    def train(self, spec: Spec) -> Answer:
        """Sinusoid MAML by :func:`innerloop.training.fit`; the peak memory so far, every ``every`` steps."""
        from innerloop.training.loop import fit  # here: its memory is not that of a meta-gradient
        from innerloop.training.optimisers import make_optimiser
        from innerloop.training.state import initial_state

        work, seen = sine(1, torch.float32), dict[int, float]()
        objective = episodic(maml(work.network, work.loss, work.lr, work.steps), work.loss)
        sampler = make_sampler(get_family("sine"), seed=0, shots=10, queries=10)
        given = objective, initial_state(work.params, {}), sampler, make_optimiser("adam", 1e-3)
        plan = Plan(spec["mode"], spec["threads"], compile=spec["compile"])
        lengths = {"steps": spec["steps"], "batch": work.batch.size, "log_every": spec["every"]}
        fit(*given, plan=plan, log=lambda record: seen.update({record["step"]: peak_mb()}), **lengths)
        return {"peaks": seen}


# ---- cases ----


class Ours(NamedTuple):
    """One way of ours, and what is promised of it against whom."""

    name: str
    plan: Spec
    at_least: dict[str, float]
    threads: Sequence[int] | None = None


def run_cases(
    workload: str,
    cases: Sequence[tuple[int, Sequence[Ours]]],
    *,
    quick: bool,
    say: harness.Say,
    sizes: dict[str, int] | None = None,
    libraries: bool = True,
    rounds: int = 11,
    warm: int = harness.WARM,
    prefix: str = "",
    exact: Spec | None = None,
) -> harness.Report:
    """Runs every number of inner steps, with all ways of ours and all peers, on one thread and on all."""
    machine = harness.machine(quick)
    speeds = ", ".join(f"{g:.0f} on {n}" for n, g in machine["sgemm_gflops"].items())
    say(f"{machine['cpu']}, {machine['cores']} cores; sgemm reaches {speeds} thread(s), in GFLOP/s")
    peers, rows = [PLAIN], list[harness.Comparison]()
    for name in maml_peers.LIBRARIES if libraries else ():
        if find_spec(name) is not None:
            peers.append(name)
        else:
            say(f"{name} is not installed and left out: pip install 'innerloop[peers]'")
    jax = environments.find("jax", say)
    threads = [1] if quick else sorted({1, int(machine["cores"])})

    def sides_of(base: Spec, ways: Sequence[Ours], folder: str) -> list[harness.Side]:
        """Ours and all peers, for one number of inner steps."""
        sides = harness.on_threads(peers, base, threads)
        for way in ways:
            spec = {**base, "side": "ours", **way.plan}
            sides += harness.on_threads([way.name], spec, way.threads or threads)
        return sides + (jax_sides(base, jax, Path(folder)) if jax else [])

    for steps, ways in cases:
        base = {"workload": workload, "steps": steps, "sizes": sizes or {}}
        with tempfile.TemporaryDirectory() as folder:
            off, sides = None, sides_of(base, ways, folder)
            if exact is not None:
                precise = sides_of({**base, **exact, "dtype": "float64"}, ways, folder)
                with harness.started(precise, __name__, say) as run:
                    off = harness.disagreement(run.results, sides[0].name)
                    theirs = {side.spec["convolution"]: side.name for side in precise if side.module == JAX}
                    first = {key: float(run.answers[name]["first_call_s"]) for key, name in theirs.items()}
                slow = [name for name, seconds in first.items() if seconds > SLOWER * min(first.values())]
                for name in slow:
                    say(f"jax-{name} is left out: its first call took {first[name]:.0f} s on one task")
                sides = [side for side in sides if side.spec.get("convolution") not in slow]
            with harness.started(sides, __name__, say) as run:
                off = harness.disagreement(run.results, sides[0].name) if off is None else off
                same = f"the same meta-gradient{' in float64' if exact else ''}"
                say(f"{len(sides)} sides compute {same} (largest relative difference {off:.1g})")
                measured = run.measured(quick, (3, 0.05), (rounds, 0.5), warm=warm)
        for remark in harness.busy(measured.bystanders):
            say(f"{remark} meanwhile: measure again on an idle machine before quoting")
        with harness.Child(sides[0].name, __name__) as child:  # of its own: counting costs memory
            child.ask("setup", spec=sides[0].spec)
            flops = float(child.ask("flops")["flops"])
        rows += table(steps, ways, measured, off, [*peers, *(["jax"] if jax else [])], machine, flops, prefix)
    return {"cases": rows, "machine": machine}


def table(
    steps: int,
    ways: Sequence[Ours],
    measured: harness.Measured,
    off: float,
    peers: Sequence[str],
    machine: Answer,
    flops: float,
    prefix: str = "",
) -> list[harness.Comparison]:
    """One row for every way of ours and every peer."""
    rows: list[harness.Comparison] = []
    for way in ways:
        start = f"{way.name}@"
        ours = harness.better(measured.timings, start)
        gflops = flops / ours.ms / 1e6
        share = gflops / machine["sgemm_gflops"][str(ours.side.spec["threads"])]
        case = f"{prefix}{steps} step{'s' if steps > 1 else ''}, {way.name}"
        for name in peers:
            peer = harness.better(measured.timings, name)
            notes = [
                f"gradients differ by {off:.1g}",
                f"memory beyond libraries and data {ours.added_mb:.0f} MB, peer {peer.added_mb:.0f} MB",
                *([f"first call {ours.first_call_s:.0f} s"] if ours.first_call_s > 1 else []),
                *([f"the peer's {peer.first_call_s:.0f} s"] if peer.first_call_s > 1 else []),
            ]
            shown = peer.side.name.partition("@")[0]
            row = measured.row(case, name, way.at_least.get(name), notes, shown, start)
            rows.append({**row, "gflops": gflops, "sgemm_share": share})
    return rows


WORKER = GradientWorker(build, flat, small)
