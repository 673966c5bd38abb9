"""A supervised training step of ResNet-12, 32×32, batch 64: ours against eager float32 modules.

Run as a module (``python -m innerloop_studies.bench.resnet``) it is the child process of one side.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.core.cores import available_cores
from innerloop.core.losses import get_loss
from innerloop.core.trees import global_norm
from innerloop.core.types import Params, TaskBatch
from innerloop.learners.objectives.erm import erm
from innerloop.learners.objectives.mixed_precision import at_precision, check_bfloat16
from innerloop.nets.resnet12 import WIDTHS, resnet12
from innerloop.training.execution.gradients import meta_gradient
from innerloop.training.execution.plan import Plan
from innerloop_studies.bench import harness, resnet_accuracy
from innerloop_studies.bench.harness import Say
from innerloop_studies.bench.messages import Answer, Spec
from innerloop_studies.bench.resnet_accuracy import ShortTraining
from innerloop_studies.bench.resnet_eager import CLASSES, ResNet12, Step, eager, sgd
from innerloop_studies.bench.rows import Report, Row, Side, Timing, better, busy, comparison, on_threads
from innerloop_studies.bench.worker import Worker, keep_freed_memory, serve

WHAT = "a training step of ResNet-12, 32×32, batch 64, against eager float32"
VERSION = 1

MODULE = "innerloop_studies.bench.resnet"
AT_LEAST = 1.9
AGREE = {"float32": 0.03, "bfloat16": 0.5}
"""Largest relative distance of our gradient from the peer's, which is itself 0.7 % away from float64's:
rounding moves values across the kinks of ReLU and max-pooling. That ours is right is tested in float64."""


def data(samples: int) -> tuple[Tensor, Tensor]:
    """Noise: speed does not depend on what pictures show."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(samples, 3, 32, 32, generator=draw), torch.randint(CLASSES, (samples,), generator=draw)


def build(spec: Spec) -> tuple[Step, str]:
    """The side that ``spec`` asks for, and a remark on how it runs."""
    torch.set_num_threads(spec["threads"])
    widths, (x, y) = spec.get("widths", WIDTHS), data(spec.get("samples", 64))
    network = resnet12(3, 32, CLASSES, widths=widths, norm="running")
    params, buffers = network.init(torch.Generator().manual_seed(0))
    if spec["side"] == "eager":
        return eager(params, x, y, widths, spec["channels_last"]), "float32"
    plan = Plan("loop", spec["threads"])
    torch.set_num_threads(plan.intra_op)
    choice = at_precision(erm(network, get_loss("cross-entropy")), spec["precision"])
    assert choice.objective.loss is not None
    gradient = meta_gradient(choice.objective.loss, plan)
    batch = TaskBatch(x[None], y[None], x[None, :0], y[None, :0], torch.zeros(1, dtype=torch.int64))
    optimiser = sgd(list(params.values()))

    def step() -> Params:
        """One training step."""
        gradients = gradient(params, buffers, batch)
        global_norm(gradients.grads)  # training reports it
        for name, leaf in params.items():
            leaf.grad = gradients.grads[name]
        optimiser.step()
        return gradients.grads

    return step, f"{choice.precision}: {choice.reason}"


class ResnetWorker(Worker):
    """Answers like the other benchmarks' worker, for these sides."""

    def setup(self, spec: Spec, gradient: str | None = None) -> Answer:
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

    def accuracy(self, threads: int, precision: str, steps: int, seeds: int) -> Answer:
        """Held-out accuracy of both sides after a short training."""
        torch.set_num_threads(threads)
        widths, classes = resnet_accuracy.WIDTHS, resnet_accuracy.CLASSES
        made = resnet_accuracy.compare(lambda: ResNet12(widths, 1, classes), steps, seeds, precision)
        return made._asdict()


def run(
    quick: bool = False, say: Say = print, precision: str = "auto", sizes: dict[str, Any] | None = None
) -> Report:
    """Alternates all sides, each in its own process; ratios are within rounds."""
    if precision == "bfloat16":
        check_bfloat16()  # here, in one sentence, rather than in the process of a side
    cores, sizes = available_cores(), sizes or {}
    counts = [cores] if quick else sorted({1, cores})
    plain = {"side": "eager", "channels_last": False, **sizes}
    sides = [
        *on_threads("eager", plain, counts),
        Side("eager, channels last", {**plain, "channels_last": True, "threads": cores}),
        Side("ours", {"side": "ours", "precision": precision, "threads": cores, **sizes}),
    ]
    with harness.started(sides, MODULE) as both:
        remark = str(both.answers["ours"]["remark"])
        say(f"ours in {remark}")
        used = remark.partition(":")[0]
        off = distance(both.results, used)
        measurement = harness.measured(both, *((3, 1.0, 0.0) if quick else (5, 2.0, harness.PATIENCE)))
        steps, seeds = sizes.get("steps", 20 if quick else 80), 2 if quick else 5
        asked = {"threads": cores, "precision": used, "steps": steps, "seeds": seeds}
        trained = ShortTraining(**both.children["ours"].ask("accuracy", **asked))
    notes = [f"gradients differ by {off:.1g}", remark, accuracy_words(trained), *busy(measurement.bystanders)]
    return {"cases": table(measurement.timings, notes), "machine": harness.machine()}


def accuracy_words(trained: ShortTraining) -> str:
    """The short training in a sentence."""
    ours, eager, off, half = (100 * share for share in trained[:4])
    return (
        f"after {trained.steps} steps on glyphs a thin one has {ours:.1f} % on held-out drawings, eager "
        f"{eager:.1f} % (difference {off:+.1f} ± {half:.1f} points, 95 % over {trained.seeds} seeds)"
    )


def distance(gradients: dict[str, harness.Array], precision: str) -> float:
    """Of our gradient from eager float32's, relative."""
    reference = next(iter(gradients.values()))
    off = float(np.linalg.norm(gradients["ours"] - reference) / np.linalg.norm(reference))
    if not off <= AGREE[precision]:
        raise RuntimeError(f"our gradient differs from eager float32's by {off:.2g} of its norm")
    return off


def table(timings: dict[str, Timing], notes: list[str]) -> list[Row]:
    """Ours against eager float32 at its better thread count, and against the same channels-last."""
    case, ours, last = "ResNet-12 step, 32×32, batch 64", timings["ours"], "eager, channels last"
    return [
        comparison(case, "eager", ours, better(timings, "eager@"), AT_LEAST, notes),
        comparison(case, last, ours, timings[last], None, notes),
    ]


if __name__ == "__main__":
    serve(ResnetWorker())
