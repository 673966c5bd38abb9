"""Tangent kernels of networks, empirical and analytic, against ``vmap(grad)``, JAX and neural-tangents."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from innerloop.core.types import Params
from innerloop.kernels import conv_kernel, empirical_ntk, mlp_kernel
from innerloop.nets import Network, apply, conv4, mlp
from innerloop.nets.norms import groups_for
from innerloop_studies.bench import environments, harness
from innerloop_studies.bench.harness import Comparison, Measured, Report, Say, Side, better
from innerloop_studies.bench.worker import Spec, Worker, flat

TITLE = "tangent kernels of an MLP and a convolutional network, against vmap(grad), JAX and neural-tangents"
VERSION = 2

PEER = "vmap(grad)"
PEERS = ("jax", "neural-tangents")
JAX = "innerloop_studies.bench.jax_ntk"
_BY_HAND = {"jax": 1.1}
# its default, and what is fastest for dense layers; of products with vectors 2.3 s and 10 s were measured
_JACOBIAN, _STRUCTURED = "neural-tangents-JACOBIAN_CONTRACTION", "neural-tangents-STRUCTURED_DERIVATIVES"


class Case(NamedTuple):
    """What is measured, and what is promised: how many times faster than whom, with how much less memory."""

    title: str
    at_least: dict[str, float]
    less_memory: float | None = None
    output: str = "sum"
    outputs: int = 1
    depth: int = 0


CASES = {
    "mlp": Case(
        "MLP, 10 hidden layers of 512, 200 inputs",
        {PEER: 60.0, **_BY_HAND, _JACOBIAN: 100.0, _STRUCTURED: 1.0},
        6.0,
    ),
    "mlp trace": Case(
        "the same MLP with 10 outputs, mean of their kernels",
        {**_BY_HAND, _STRUCTURED: 1.0},
        output="trace",
        outputs=10,
    ),
    "conv": Case(
        "Conv4-48, GroupNorm, 32×32, 100 inputs, sum of 10 outputs",
        {PEER: 1.5, **_BY_HAND, _JACOBIAN: 1.0},
        5.0,
    ),
    "analytic mlp": Case("analytic, depth 11, 1,000 inputs of 512", {"neural-tangents": 1.0}, depth=11),
    "analytic conv": Case(
        "analytic, depth 4, global average pooling, 20 inputs of 16×16", {"neural-tangents": 1.0}, depth=4
    ),
}


def _problem(spec: Spec) -> tuple[Network, Params, Tensor]:
    """Network, parameters and inputs; float32."""
    case, sizes, draw = CASES[spec["case"]], spec["sizes"], torch.Generator().manual_seed(0)
    if spec["case"].endswith("conv"):
        filters, count, side = sizes.get("width", 48), (20 if case.depth else 100), 16 if case.depth else 32
        network, shape = conv4(3, side, 10, filters=filters, norm="group"), [3, side, side]
    else:
        width, count = sizes.get("width", 512), 1000 if case.depth else 200
        network, shape = mlp(width, [width] * sizes.get("depth", 10), case.outputs), [width]
    params, _ = network.init(draw)
    return network, params, torch.randn(sizes.get("samples", count), *shape, generator=draw)


def build(spec: Spec) -> Callable[[], Tensor]:
    """The side asked for by ``side``, ``case``, ``threads`` and ``sizes``."""
    torch.set_num_threads(spec["threads"])
    (network, params, x), case = _problem(spec), CASES[spec["case"]]
    if case.depth:
        kernel = (conv_kernel if x.ndim == 4 else mlp_kernel)(case.depth)
        return lambda: kernel(x, x).ntk
    if spec["side"] == "ours":
        options: dict[str, Any] = {"method": spec["method"], "output": case.output}
        return lambda: empirical_ntk(network, params, x, **options)

    def output(p: Any, sample: Any) -> Any:
        return apply(network, p, {}, sample[None], "stored")[0].sum()

    def peer() -> Tensor:
        rows = vmap(grad(output), (None, 0))(params, x)
        total = torch.zeros(len(x), len(x))
        for name in list(rows):
            flat = rows.pop(name).flatten(1)
            total += flat @ flat.T
        return total

    return peer


def sides_of(name: str, sizes: dict[str, int], folder: Path, found: dict[str, Any]) -> list[Side]:
    """Ours and all peers that are there; those in environments of their own read a file of numpy."""
    case, base = CASES[name], {"case": name, "sizes": sizes, "method": "layerwise"}
    _, params, x = _problem(base)
    given = {} if case.depth else params
    inputs = folder / f"{name}.npz"
    np.savez(inputs, allow_pickle=False, x=x.numpy(), **{k: p.numpy() for k, p in given.items()})
    told = {"inputs": str(inputs), "output": case.output, "depth": case.depth}
    told["groups"] = groups_for(len(params["norm0.weight"])) if "norm0.weight" in given else 0
    sides = harness.on_threads(["ours", *([PEER] if PEER in case.at_least else [])], base)
    for peer in case.at_least:
        where = next((where for start, where in found.items() if peer.startswith(start)), None)
        if where is not None:
            sides += harness.on_threads([peer], {**told, "way": peer.rpartition("-")[2]}, None, JAX, where)
    return sides


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Every case, each side at its better thread count."""
    rows, found = [], {name: environments.find(name, say) for name in PEERS}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            sides = sides_of(name, sizes or {}, Path(folder), found)
            with harness.started(sides, __name__, say) as all_sides:
                off = harness.disagreement(all_sides.results, "ours@1", what="kernels")
                rows += _rows(name, all_sides.measured(quick, (3, 0.2), (7, 0.5)), off)
    return {"cases": rows, "machine": harness.machine(quick)}


def _rows(name: str, measured: Measured, off: float) -> list[Comparison]:
    """One for every peer that took part; memory is what was added by the kernel."""
    case, rows = CASES[name], list[Comparison]()
    for peer, faster in case.at_least.items():
        if not any(side.startswith(f"{peer}@") for side in measured.timings):
            continue
        ours, other = (max(better(measured.timings, who).added_mb, 1.0) for who in ("ours", f"{peer}@"))
        notes = [f"memory added: {ours:.0f} against {other:.0f} MB", f"kernels agree to {off:.0e}"]
        if peer == PEER:
            notes.insert(1, f"promised: {faster:g}× faster, {case.less_memory:g}× less added")
        shown = peer.replace("-JAC", ", JAC").replace("-STR", ", STR")
        row = measured.row(case.title, f"{peer}@", faster, notes, shown)
        rows.append({**row, "memory_ratio": other / ours})
    return rows


TINY = {"sizes": {"width": 8, "samples": 2, "depth": 2}}
WORKER = Worker(build, lambda kernel: flat([kernel]), lambda _: TINY)
