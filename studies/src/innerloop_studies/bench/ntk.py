"""The empirical tangent kernel layer by layer, against per-sample gradients by ``vmap(grad)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from innerloop.kernels.empirical.kernel import empirical_ntk
from innerloop.nets.convolutional import conv4
from innerloop.nets.mlp import mlp
from innerloop.nets.network import apply
from innerloop_studies.bench import harness
from innerloop_studies.bench.harness import Comparison, Measured, Report, Say, better
from innerloop_studies.bench.worker import Spec, Worker, flat

TITLE = "the empirical tangent kernel of an MLP and a convolutional network, against vmap(grad)"
VERSION = 1

PEER = "vmap(grad)"


CASES = {
    "mlp": ("MLP, 10 hidden layers of 512, 200 inputs", 60.0, 6.0),
    "conv": ("Conv4-48, GroupNorm, 32×32, 100 inputs, sum of 10 outputs", 1.5, 5.0),
}
"""What is measured, and what is promised: how many times faster, and with how much less memory."""


def build(spec: Spec) -> Callable[[], Tensor]:
    """The side asked for by ``side``, ``case``, ``threads`` and ``sizes``; float32."""
    torch.set_num_threads(spec["threads"])
    sizes, draw = spec["sizes"], torch.Generator().manual_seed(0)
    if spec["case"] == "mlp":
        width, samples = sizes.get("width", 512), sizes.get("samples", 200)
        network, shape = mlp(width, [width] * sizes.get("depth", 10), 1), [width]
    else:
        filters, samples = sizes.get("width", 48), sizes.get("samples", 100)
        network, shape = conv4(3, 32, 10, filters=filters, norm="group"), [3, 32, 32]
    params, buffers = network.init(draw)
    x = torch.randn(samples, *shape, generator=draw)
    if spec["side"] == "ours":
        return lambda: empirical_ntk(network, params, x, buffers=buffers, method=spec["method"])

    def output(p: Any, sample: Any) -> Any:
        return apply(network, p, buffers, sample[None], "stored")[0].sum()

    def peer() -> Tensor:
        rows = vmap(grad(output), (None, 0))(params, x)
        total = torch.zeros(len(x), len(x))
        for name in list(rows):
            flat = rows.pop(name).flatten(1)
            total += flat @ flat.T
        return total

    return peer


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Both networks, each side at its better thread count."""
    rows = []
    for name in CASES:
        base = {"case": name, "sizes": sizes or {}, "method": "layerwise"}
        sides = harness.on_threads(("ours", PEER), base)
        with harness.started(sides, __name__, say) as both:
            off = harness.disagreement(both.results, f"{PEER}@1")
            measured = both.measured(quick, (3, 0.2), (7, 0.5))
        rows.append(_row(name, measured, off))
    return {"cases": rows, "machine": harness.machine(quick)}


def _row(name: str, measured: Measured, off: float) -> Comparison:
    """Memory is what was added by the kernel."""
    (title, faster, less_memory), timings = CASES[name], measured.timings
    ours, peer = (max(better(timings, who).added_mb, 1.0) for who in ("ours", PEER))
    promised = f"promised: {faster:g}× faster, {less_memory:g}× less added"
    notes = [f"memory added: {ours:.0f} against {peer:.0f} MB", promised, f"kernels agree to {off:.0e}"]
    return {**measured.row(title, PEER, faster, notes), "memory_ratio": peer / ours}


TINY = {"sizes": {"width": 8, "samples": 2, "depth": 2}}
WORKER = Worker(build, lambda kernel: flat([kernel]), lambda _: TINY)
