"""A supervised training step of ResNet-12, 32×32, batch 64: ours against eager float32 modules.

Run as a module (``python -m innerloop.bench.resnet``) it is the child process of one side.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.bench import harness, resnet_accuracy
from innerloop.bench.harness import Say, Side, Timing
from innerloop.bench.machine import QUIET
from innerloop.bench.worker import Worker, keep_freed_memory, serve
from innerloop.core.losses import get_loss
from innerloop.core.trees import global_norm
from innerloop.core.types import Params, TaskBatch
from innerloop.execution import Plan, meta_gradient
from innerloop.execution.plan import available_cores, set_intra_op_threads
from innerloop.nets.resnet12 import SLOPE, WIDTHS, resnet12
from innerloop.objectives import erm
from innerloop.objectives.mixed_precision import at_precision

CLASSES, AT_LEAST = 64, 1.9
AGREE = {"float32": 0.03, "bfloat16": 0.5}
"""Largest relative distance of our gradient from the peer's, which is itself 0.7 % away from float64's:
rounding moves values across the kinks of ReLU and max-pooling. That ours is right is tested in float64."""

Step = Callable[[], Params]
"""Takes one training step and returns the gradient that it used."""


class Layer(nn.Conv2d):
    """Convolution and batch norm, under our names."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised."""
        return self.norm(F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2))


class Block(nn.Module):
    """As everybody writes it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv0, self.conv1 = Layer(inputs, outputs, 3), Layer(outputs, outputs, 3)
        self.conv2, self.shortcut = Layer(outputs, outputs, 3), Layer(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Halves the map."""
        y = F.leaky_relu(self.conv0(x), SLOPE)
        y = self.conv2(F.leaky_relu(self.conv1(y), SLOPE)) + self.shortcut(x)
        return F.max_pool2d(F.leaky_relu(y, SLOPE), 2)


class ResNet12(nn.Module):
    """The peer."""

    def __init__(self, widths: Sequence[int], channels: int = 3, classes: int = CLASSES) -> None:
        super().__init__()
        for i, (inputs, outputs) in enumerate(itertools.pairwise([channels, *widths])):
            self.add_module(f"block{i}", Block(inputs, outputs))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        *blocks, head = self.children()
        for block in blocks:
            x = block(x)
        return head(x.mean((2, 3)))


def data(samples: int) -> tuple[Tensor, Tensor]:
    """Noise: speed does not depend on what pictures show."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(samples, 3, 32, 32, generator=draw), torch.randint(CLASSES, (samples,), generator=draw)


def sgd(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    """RFS's optimiser; the rate is zero, so that every step computes the same."""
    return torch.optim.SGD(params, lr=0.0, momentum=0.9, weight_decay=5e-4)


def build(spec: dict[str, Any]) -> tuple[Step, str]:
    """The side that ``spec`` asks for, and a remark on how it runs."""
    torch.set_num_threads(spec["threads"])
    widths, (x, y) = spec.get("widths", WIDTHS), data(spec.get("samples", 64))
    network = resnet12(3, 32, CLASSES, widths=widths, norm="running")
    params, buffers = network.init(torch.Generator().manual_seed(0))
    if spec["side"] == "eager":
        return eager(params, x, y, widths, spec["channels_last"]), "float32"
    plan = Plan("loop", spec["threads"])
    set_intra_op_threads(plan)
    choice = at_precision(erm(network, get_loss("cross-entropy")), spec["precision"])
    assert choice.objective.loss is not None
    gradient = meta_gradient(choice.objective.loss, plan)
    batch = TaskBatch(x[None], y[None], x[None, :0], y[None, :0], torch.zeros(1, dtype=torch.int64))
    optimiser = sgd(list(params.values()))

    def step() -> Params:
        found = gradient(params, buffers, batch)
        global_norm(found.grads)  # training reports it
        for name, leaf in params.items():
            leaf.grad = found.grads[name]
        optimiser.step()
        return found.grads

    return step, f"{choice.precision}: {choice.reason}"


def eager(params: Params, x: Tensor, y: Tensor, widths: Sequence[int], channels_last: bool) -> Step:
    """Modules, ``backward`` and the same optimiser."""
    model = ResNet12(widths)
    model.load_state_dict(params, strict=False)  # running statistics start alike anyway
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    optimiser = sgd(list(model.parameters()))

    def step() -> Params:
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    return step


class ResnetWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: dict[str, Any], gradient: str | None = None) -> dict[str, Any]:
        """Builds a side, steps once, and writes the gradient to a file."""
        keep_freed_memory()
        step, remark = build(spec)
        self.call = step
        start = time.perf_counter()
        grads = step()
        took = time.perf_counter() - start
        if gradient:
            flat = [grads[name].detach().flatten().numpy() for name in sorted(grads)]
            np.save(gradient, np.concatenate(flat))
        return {"first_call_s": took, "remark": remark}

    def accuracy(self, threads: int, precision: str, steps: int, seeds: int) -> dict[str, Any]:
        """Held-out accuracy of both sides after a short training (:mod:`innerloop.bench.resnet_accuracy`)."""
        torch.set_num_threads(threads)
        widths, classes = resnet_accuracy.WIDTHS, resnet_accuracy.CLASSES
        return resnet_accuracy.compare(lambda: ResNet12(widths, 1, classes), steps, seeds, precision)


def run(
    quick: bool = False, say: Say = print, precision: str = "auto", sizes: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Alternates all sides, each in its own process; ratios are within rounds.

    Args:
        quick: few repeats.
        say: receives lines for people.
        precision: ours; ``auto`` is what training uses.
        sizes: ``widths`` and ``samples``, for tests.
    """
    cores, sizes = available_cores(), sizes or {}
    counts = [cores] if quick else sorted({1, cores})
    base = {"side": "eager", "channels_last": False}
    sides = [Side(f"eager@{n}", {**base, "threads": n, **sizes}) for n in counts]
    sides.append(Side("eager, channels last", {**base, "channels_last": True, "threads": cores, **sizes}))
    sides.append(Side("ours", {"side": "ours", "precision": precision, "threads": cores, **sizes}))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        module = "innerloop.bench.resnet"
        children = {s.name: stack.enter_context(harness.Child(s.name, module)) for s in sides}
        answers, gradients = {}, {}
        for i, side in enumerate(sides):
            file = str(folder / f"{i}.npy")
            answers[side.name] = children[side.name].ask("setup", spec=side.spec, gradient=file)
            gradients[side.name] = np.load(file)
        remark = str(answers["ours"]["remark"])
        say(f"ours in {remark}")
        off = distance(gradients, remark.partition(":")[0])
        turns = (3, 1.0, 0.0) if quick else (5, 2.0, harness.PATIENCE)
        blocks = harness.take_turns(children, *turns)
        trained = children["ours"].ask(
            "accuracy",
            threads=cores,
            precision=remark.partition(":")[0],
            steps=sizes.get("steps", 20 if quick else 80),
            seeds=2 if quick else 5,
        )
    timings = {side.name: timing(side, blocks[side.name], answers[side.name]) for side in sides}
    others = [block["others"] for block in blocks["ours"] if block["others"] is not None]
    notes = f"gradients differ by {off:.1g}; {remark}; {accuracy_words(trained)}"
    rows = table(timings, notes, statistics.mean(others or [0.0]))
    return {"cases": rows, "machine": harness.machine()}


def accuracy_words(trained: dict[str, Any]) -> str:
    """The short training in a sentence."""
    ours, eager, off, half = (100 * trained[name] for name in ("ours", "eager", "difference", "ci95"))
    return (
        f"after {trained['steps']} steps on glyphs a thin one has {ours:.1f} % on held-out drawings, eager "
        f"{eager:.1f} % (difference {off:+.1f} ± {half:.1f} points, 95 % over {trained['seeds']} seeds)"
    )


def distance(gradients: dict[str, np.ndarray[Any, Any]], precision: str) -> float:
    """Of our gradient from eager float32's, relative.

    Raises:
        RuntimeError: if it is more than rounding: a faster wrong answer is no result.
    """
    reference = next(iter(gradients.values()))
    off = float(np.linalg.norm(gradients["ours"] - reference) / np.linalg.norm(reference))
    if not off <= AGREE[precision]:
        raise RuntimeError(f"our gradient differs from eager float32's by {off:.2g} of its norm")
    return off


def timing(side: Side, blocks: list[dict[str, Any]], first: dict[str, Any]) -> Timing:
    """What was measured of a side."""
    rounds = [statistics.median(block["seconds"]) * 1e3 for block in blocks]
    peak = max(block["peak_mb"] for block in blocks)
    return Timing(side, rounds, peak, 0.0, sum(len(b["seconds"]) for b in blocks), first["first_call_s"])


def table(timings: dict[str, Timing], notes: str, others: float) -> list[dict[str, Any]]:
    """Ours against eager float32 at its better thread count, and against the same channels-last."""
    ours = timings["ours"]
    peers = {
        "eager": min((t for n, t in timings.items() if n.startswith("eager@")), key=lambda t: t.ms),
        "eager, channels last": timings["eager, channels last"],
    }
    if others > QUIET:
        notes += f"; others kept {others:.1f} cores busy"
    return [
        {
            "case": "ResNet-12 step, 32×32, batch 64",
            "peer": name,
            "ours_ms": ours.ms,
            "peer_ms": peer.ms,
            "ratio": harness.ratio(ours, peer),
            "ours_mb": ours.peak_mb,
            "peer_mb": peer.peak_mb,
            "threads": f"{ours.side.spec['threads']} / {peer.side.spec['threads']}",
            "repeats": min(ours.repeats, peer.repeats),
            "at_least": AT_LEAST if name == "eager" else None,
            "notes": notes,
        }
        for name, peer in peers.items()
    ]


if __name__ == "__main__":
    serve(ResnetWorker())
