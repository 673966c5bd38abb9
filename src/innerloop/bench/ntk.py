"""The empirical tangent kernel layer by layer, against per-sample gradients by ``vmap(grad)``.

Run as a module (``python -m innerloop.bench.ntk``) it is the child process of one side.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from innerloop.bench import harness
from innerloop.bench.harness import Say, Side, Timing
from innerloop.bench.machine import QUIET
from innerloop.bench.worker import Worker, keep_freed_memory, peak_mb, serve
from innerloop.execution.plan import available_cores

MODULE = "innerloop.bench.ntk"
PEER = "vmap(grad)"


class Case(NamedTuple):
    """What is measured, and what is promised: so many times faster, so many times less memory added."""

    title: str
    faster: float
    less_memory: float


CASES = {
    "mlp": Case("MLP, 10 hidden layers of 512, 200 inputs", 60.0, 6.0),
    "conv": Case("Conv4-48, GroupNorm, 32×32, 100 inputs, sum of 10 outputs", 1.5, 5.0),
}


def workload(case: str, sizes: dict[str, int]) -> tuple[Any, Any, Any, Any]:
    """Network, parameters, buffers and inputs, float32."""
    import torch

    from innerloop.nets import conv4, mlp

    draw = torch.Generator().manual_seed(0)
    shape: tuple[int, ...]
    if case == "mlp":
        width, samples = sizes.get("width", 512), sizes.get("samples", 200)
        network, shape = mlp(width, [width] * sizes.get("depth", 10), 1), (width,)
    else:
        filters, samples = sizes.get("width", 48), sizes.get("samples", 100)
        network, shape = conv4(3, 32, 10, filters=filters, norm="group"), (3, 32, 32)
    params, buffers = network.init(draw)
    return network, params, buffers, torch.randn(samples, *shape, generator=draw)


def build(spec: dict[str, Any], samples: int | None = None) -> Callable[[], Any]:
    """The side asked for by ``side``, ``case`` and ``sizes``."""
    network, params, buffers, x = workload(spec["case"], spec["sizes"])
    x = x[:samples]
    if spec["side"] == "ours":
        from innerloop.kernels.empirical import empirical_ntk

        return lambda: empirical_ntk(network, params, x, buffers=buffers, method=spec["method"])
    from torch.func import grad, vmap

    from innerloop.nets.network import apply

    def output(p: Any, sample: Any) -> Any:
        return apply(network, p, buffers, sample[None], "stored")[0].sum()

    def peer() -> Any:
        rows = vmap(grad(output), (None, 0))(params, x)
        total = None
        for name in list(rows):
            flat = rows.pop(name).flatten(1)
            part = flat @ flat.T
            total = part if total is None else total.add_(part)
        return total

    return peer


class NtkWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:
        """Builds a side, runs it once, and writes its kernel to a file."""
        import numpy as np
        import torch

        keep_freed_memory()
        torch.set_num_threads(spec["threads"])
        build({**spec, "sizes": {"width": 8, "samples": 2, "depth": 2}})()  # what it imports counts as there
        self.call = build(spec)
        self.empty_mb = peak_mb()
        start = time.perf_counter()
        found = self.call()
        took = time.perf_counter() - start
        if gradient:
            np.save(gradient, found.double().numpy())
        return {"first_call_s": took}


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Both networks.

    Args:
        quick: few repeats.
        say: receives lines for people.
        sizes: ``width``, ``samples`` and ``depth``, for tests.
    """
    rows = [one_case(case, quick, say, sizes or {}) for case in CASES]
    return {"cases": rows, "machine": harness.machine(patience=0 if quick else None)}


def one_case(case: str, quick: bool, say: Say, sizes: dict[str, int]) -> dict[str, Any]:
    """One comparison, each side at its better thread count."""
    import numpy as np

    base = {"case": case, "sizes": sizes, "method": "layerwise"}
    sides = [
        Side(f"{who}@{n}", {**base, "side": who, "threads": n})
        for who in ("ours", PEER)
        for n in sorted({1, available_cores()})
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        children = {s.name: stack.enter_context(harness.Child(s.name, MODULE)) for s in sides}
        first = {}
        for i, side in enumerate(sides):
            asked = children[side.name].ask("setup", spec=side.spec, gradient=str(folder / f"{i}.npy"))
            first[side.name] = float(asked["first_call_s"])
        kernels = {side.name: np.load(folder / f"{i}.npy") for i, side in enumerate(sides)}
        off = harness.disagreement(kernels, f"{PEER}@1")
        blocks = harness.take_turns(children, *((3, 0.2, 0.0) if quick else (7, 0.5, harness.PATIENCE)))
    timings = {s.name: _timing(s, blocks[s.name], first[s.name]) for s in sides}
    seen = [b["others"] for b in blocks[sides[0].name] if b.get("others") is not None]
    row = _row(CASES[case], timings, off, statistics.mean(seen) if seen else 0.0)
    say(f"{row['case']}: {row['ratio']:.1f}×, memory {row['memory_ratio']:.1f}×; {row['notes']}")
    return row


def _timing(side: Side, blocks: list[dict[str, Any]], first: float) -> Timing:
    rounds = [statistics.median(block["seconds"]) * 1e3 for block in blocks]
    peak, empty = max(block["peak_mb"] for block in blocks), blocks[0]["empty_mb"]
    return Timing(side, rounds, peak, empty, sum(len(b["seconds"]) for b in blocks), first)


def _row(case: Case, timings: dict[str, Timing], off: float, others: float) -> dict[str, Any]:
    """The comparison of both sides' better thread counts; memory is what was added by the kernel."""
    ours = min((t for n, t in timings.items() if n.startswith("ours")), key=lambda t: t.ms)
    peer = min((t for n, t in timings.items() if n.startswith(PEER)), key=lambda t: t.ms)
    added = {t.side.name: max(t.peak_mb - t.empty_mb, 1.0) for t in (ours, peer)}
    notes = [
        f"memory added: {added[ours.side.name]:.0f} against {added[peer.side.name]:.0f} MB",
        f"promised: {case.faster:g}× faster, {case.less_memory:g}× less added",
        f"kernels agree to {off:.0e}",
    ]
    if others > QUIET:
        notes.append(f"others kept {others:.1f} cores busy")
    return {
        "case": case.title,
        "peer": PEER,
        "ours_ms": ours.ms,
        "peer_ms": peer.ms,
        "ratio": harness.ratio(ours, peer),
        "ours_mb": ours.peak_mb,
        "peer_mb": peer.peak_mb,
        "memory_ratio": added[peer.side.name] / added[ours.side.name],
        "threads": f"{ours.side.spec['threads']} / {peer.side.spec['threads']}",
        "repeats": min(ours.repeats, peer.repeats),
        "at_least": case.faster,
        "notes": "; ".join(notes),
    }


if __name__ == "__main__":
    serve(NtkWorker())
