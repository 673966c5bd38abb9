"""A supervised training step of ResNet-12, 32×32, batch 64: ours against eager float32 modules."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core import Buffers, Params, TaskBatch, get_loss, mean_interval, paired_difference
from innerloop.core.resources import available_cores
from innerloop.core.trees import global_norm
from innerloop.data.glyphs import glyphs
from innerloop.learners.objectives.episodic import erm
from innerloop.learners.objectives.mixed_precision import at_precision, check_bfloat16
from innerloop.nets.network import Network
from innerloop.nets.resnet12 import SLOPE, WIDTHS, resnet12
from innerloop.training import Gradient, Plan, meta_gradient
from innerloop_studies.bench import environments, harness
from innerloop_studies.bench.harness import Array, Report, Say, Side
from innerloop_studies.bench.worker import Answer, Spec, Worker, flat

TITLE = "a training step of ResNet-12, 32×32, batch 64, against eager float32 and JAX"
VERSION = 2
PEERS = ("jax",)
JAX = "innerloop_studies.bench.jax_resnet"
CLASSES = 64
AT_LEAST = 1.9
AGREE = {"float32": 0.03, "bfloat16": 0.5}
"""Largest relative distance of our gradient from the peer's, which is itself 0.7 % away from float64's:
rounding moves values across the kinks of ReLU and max-pooling. That ours is right is tested in float64."""
Step = Callable[[], Params]  # takes one training step and returns the gradient that it used


# ---- the peer: modules, ``backward`` and an optimiser, in eager float32 ----


class Layer(nn.Conv2d):
    """Convolution and batch norm, under our names."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised."""
        return self.norm(F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2))


class ResidualBlock(nn.Module):
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
            self.add_module(f"block{i}", ResidualBlock(inputs, outputs))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        *blocks, head = self.children()
        for block in blocks:
            x = block(x)
        return head(x.mean((2, 3)))


def sgd(params: Sequence[Tensor], rate: float = 0.0) -> torch.optim.Optimizer:
    """RFS's optimiser; where steps are timed, the rate is zero, so that every step computes the same."""
    return torch.optim.SGD(params, lr=rate, momentum=0.9, weight_decay=5e-4)


def eager(model: ResNet12, params: Params, rate: float = 0.0) -> Callable[[Tensor, Tensor], Params]:
    """Steps by ``backward`` and an optimiser, from these weights; running statistics start alike anyway."""
    model.load_state_dict(params, strict=False)
    optimiser = sgd(list(model.parameters()), rate)

    def step(x: Tensor, y: Tensor) -> Params:
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    return step


# ---- both sides ----


def functional(
    loss: Any, params: Params, threads: int, rate: float = 0.0
) -> Callable[[Buffers, Tensor, Tensor], Gradient]:
    """Steps from these weights, which change in place, by our gradient and the same optimiser."""
    gradient, optimiser = meta_gradient(loss, Plan("loop", threads)), sgd(list(params.values()), rate)

    def step(buffers: Buffers, x: Tensor, y: Tensor) -> Gradient:
        one_task = TaskBatch(x[None], y[None], x[None, :0], y[None, :0], torch.zeros(1, dtype=torch.int64))
        made = gradient(params, buffers, one_task)
        global_norm(made.grads)  # training reports it
        for name, leaf in params.items():
            leaf.grad = made.grads[name]
        optimiser.step()
        return made

    return step


def pictures(sizes: Spec) -> tuple[Tensor, Tensor, Network]:
    """Noise, for speed does not depend on what pictures show; its labels; and our network."""
    samples, draw = sizes.get("samples", 64), torch.Generator().manual_seed(1)
    x = torch.randn(samples, 3, 32, 32, generator=draw)
    y = torch.randint(CLASSES, (samples,), generator=draw)
    return x, y, resnet12(3, 32, CLASSES, widths=sizes.get("widths", WIDTHS), norm="running")


def build(spec: Spec) -> tuple[Step, str]:
    """The side that ``spec`` asks for, and a remark on how it runs."""
    torch.set_num_threads(spec["threads"])
    x, y, network = pictures(spec)
    params, buffers = network.init(torch.Generator().manual_seed(0))
    if spec["side"] == "eager":
        model = ResNet12(spec.get("widths", WIDTHS))
        if spec["channels_last"]:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            x = x.contiguous(memory_format=torch.channels_last)
        return partial(eager(model, params), x, y), "float32"
    choice = at_precision(erm(network, get_loss("cross-entropy")), spec["precision"])
    step = functional(choice.objective.loss, params, spec["threads"])
    torch.set_num_threads(Plan("loop", spec["threads"]).intra_op)
    return lambda: step(buffers, x, y).grads, f"{choice.precision}: {choice.reason}"


class ResnetWorker(Worker):
    """Also says how a side runs, and what both reach after a short training."""

    def __init__(self) -> None:
        super().__init__(self._step, flat)
        self.remark = ""

    def _step(self, spec: Spec) -> Step:
        step, self.remark = build(spec)
        return step

    def remarks(self, outcome: Any) -> Answer:  # noqa: ARG002
        """The precision, and why."""
        return {"remark": self.remark}

    def accuracy(self, threads: int, precision: str, steps: int, seeds: int) -> Answer:
        """Held-out accuracy of both sides after a short training."""
        torch.set_num_threads(threads)
        return compare_trained(steps, seeds, precision)._asdict()


# ---- whether the faster step trains as well: held-out accuracy of both sides, seed by seed ----

GLYPHS, THIN, SAMPLES, RATE = 40, (16, 32, 64, 64), 64, 0.05


class ShortTraining(NamedTuple):
    """Both sides after a short training."""

    ours: float
    eager: float
    difference: float
    ci95: float
    seeds: int
    steps: int

    def __str__(self) -> str:
        ours, eager, off, half = (100 * share for share in self[:4])
        return (
            f"after {self.steps} steps on glyphs a thin one has {ours:.1f} % on held-out drawings, eager "
            f"{eager:.1f} % (difference {off:+.1f} ± {half:.1f} points, 95 % over {self.seeds} seeds)"
        )


def drawings() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two alphabets of the embedded glyphs: 14 drawings of each character to learn from, 6 held out."""
    images = glyphs().images[: GLYPHS * 20].reshape(GLYPHS, 20, 1, 28, 28).astype(np.float32) / 255
    x = F.pad(torch.from_numpy(images), (2, 2, 2, 2))
    y = torch.arange(GLYPHS)[:, None].expand(-1, 20)
    parts = x[:, :14], y[:, :14], x[:, 14:], y[:, 14:]
    return tuple(part.flatten(0, 1) for part in parts)  # type: ignore[return-value]


def trained_accuracy(seed: int, steps: int, precision: str | None) -> float:
    """Held-out accuracy after our training in this precision, or after the modules' from the same weights."""
    x, y, x_test, y_test = drawings()
    network = resnet12(1, 32, GLYPHS, widths=THIN, norm="running", drop_rate=0.0)
    params, buffers = network.init(torch.Generator().manual_seed(seed))
    draw = torch.Generator().manual_seed(seed)
    minibatches = [torch.randint(len(x), (SAMPLES,), generator=draw) for _ in range(steps)]
    if precision is None:
        model = ResNet12(THIN, 1, GLYPHS)
        eager_step = eager(model, params, RATE)
        for rows in minibatches:
            eager_step(x[rows], y[rows])
        with torch.no_grad():
            outputs = model.eval()(x_test)
    else:
        loss = at_precision(erm(network, get_loss("cross-entropy")), precision).objective.loss
        step = functional(loss, params, torch.get_num_threads(), RATE)
        for rows in minibatches:
            buffers = step(buffers, x[rows], y[rows]).buffers
        with torch.no_grad():
            z, _ = network.features(params, buffers, x_test, "stored")
            outputs = network.head(params, z)
    return float((outputs.argmax(1) == y_test).float().mean())


def compare_trained(steps: int = 80, seeds: int = 5, precision: str = "float32") -> ShortTraining:
    """Both sides over seeds, and the difference within seeds with its 95 % interval."""
    mine, theirs = ([trained_accuracy(i, steps, how) for i in range(seeds)] for how in (precision, None))
    difference = paired_difference(mine, theirs)
    means = mean_interval(mine).mean, mean_interval(theirs).mean
    return ShortTraining(*means, difference.mean, difference.ci95, seeds, steps)


# ---- the benchmark ----


def run(
    quick: bool = False, say: Say = print, precision: str = "auto", sizes: dict[str, Any] | None = None
) -> Report:
    """Alternates all sides, each in its own process; ratios are within rounds."""
    if precision == "bfloat16":
        check_bfloat16()  # here, in one sentence, rather than in the process of a side
    cores, sizes = available_cores(), sizes or {}
    plain = {"side": "eager", "channels_last": False, **sizes}
    sides = harness.on_threads(["eager"], plain, [cores] if quick else None)
    sides.append(Side("eager, channels last", {**plain, "channels_last": True, "threads": cores}))
    sides.append(Side("ours", {"side": "ours", "precision": precision, "threads": cores, **sizes}))
    jax = environments.find("jax", say)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        if jax:
            sides += jax_sides(sizes, environments.jax_devices(jax, 1), Path(folder))
        both = stack.enter_context(harness.started(sides, __name__, say))
        remark = str(both.answers["ours"]["remark"])
        say(f"ours in {remark}")
        used = remark.partition(":")[0]
        off = distance(both.results, used)
        measured = both.measured(quick, (3, 1.0), (5, 2.0))
        steps, seeds = sizes.get("steps", 20 if quick else 80), 2 if quick else 5
        asked = {"threads": cores, "precision": used, "steps": steps, "seeds": seeds}
        trained = ShortTraining(**both.children["ours"].ask("accuracy", **asked))
    notes, case = [f"gradients differ by {off:.1g}", remark, str(trained)], "ResNet-12 step, 32×32, batch 64"
    rows = [measured.row(case, "eager@", AT_LEAST, notes, "eager")]
    rows.append(measured.row(case, "eager, channels last", None, notes))
    if jax:
        best = harness.better(measured.timings, "jax")
        told = [best.side.name.partition("@")[0], f"its first call {best.first_call_s:.0f} s", *notes[:2]]
        rows.append(measured.row(case, "jax", None, told))
    return {"cases": rows, "machine": harness.machine()}


def distance(gradients: dict[str, Array], precision: str) -> float:
    """Of our gradient from eager float32's, relative; JAX's is in float32, too."""
    reference = next(iter(gradients))
    float32 = {name: one for name, one in gradients.items() if name != "ours"}
    harness.disagreement(float32, reference, AGREE["float32"], "gradients")
    both = {name: gradients[name] for name in (reference, "ours")}
    return harness.disagreement(both, reference, AGREE[precision], "gradients")


def jax_sides(sizes: dict[str, Any], environment: environments.Environment, folder: Path) -> list[Side]:
    """JAX, by products of patches and by its own convolution."""
    x, y, network = pictures(sizes)
    arrays = {**network.init(torch.Generator().manual_seed(0))[0], "x": x, "y": y}
    inputs = folder / "resnet.npz"
    np.savez(inputs, allow_pickle=False, **{name: value.numpy() for name, value in arrays.items()})
    sides = []
    for convolution in ("im2col", "lax"):
        spec = {"side": "jax", "inputs": str(inputs), "convolution": convolution, "slope": SLOPE}
        sides += harness.on_threads([f"jax-{convolution}"], spec, [available_cores()], JAX, environment)
    return sides


WORKER = ResnetWorker()
