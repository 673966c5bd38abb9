"""Episodes of pictures per second, on one thread, against a plain numpy gather per episode."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from innerloop.data.arrays import from_arrays
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop_studies.bench import harness
from innerloop_studies.bench.worker import Spec, Worker

TITLE = "Omniglot episodes to float tensors, one thread, against a numpy gather per episode"
VERSION = 1

WAYS, SHOTS, QUERIES, BATCH = 5, 1, 15, 32
CLASSES, DRAWINGS, SIDE = 1028, 20, 28  # Omniglot, training classes of Vinyals' split
PER_CALL = 128  # episodes that a timed call makes
AT_LEAST = {"one at a time": 1.3, f"in batches of {BATCH}": 2.0}


def pictures(classes: int) -> NDArray[np.uint8]:
    """Noise of Omniglot's shape, ``(classes, drawings, 28, 28)``: speed does not depend on what it shows."""
    return np.random.default_rng(0).integers(0, 256, (classes, DRAWINGS, SIDE, SIDE), dtype=np.uint8)


def numpy_gather(images: NDArray[np.uint8]) -> Callable[[], Any]:
    """The peer: random classes and drawings, one gather, one conversion to float tensors, per episode."""
    rng, scale = np.random.default_rng(1), np.float32(1 / 255)
    y_support, y_query = (torch.arange(WAYS).repeat_interleave(n) for n in (SHOTS, QUERIES))

    def episode() -> tuple[Any, ...]:
        classes = rng.choice(len(images), WAYS, replace=False)
        order = rng.random((WAYS, DRAWINGS)).argsort(1)[:, : SHOTS + QUERIES]
        x = images[classes[:, None], order] * scale
        support = torch.from_numpy(x[:, :SHOTS].reshape(-1, 1, SIDE, SIDE))
        return support, y_support, torch.from_numpy(x[:, SHOTS:].reshape(-1, 1, SIDE, SIDE)), y_query

    return lambda: [episode() for _ in range(PER_CALL)]


def ours(images: NDArray[np.uint8], size: int) -> Callable[[], Any]:
    """Our sampler, going on from episode to episode; file names stay addressable."""
    labels = np.repeat([f"character{c:04d}" for c in range(len(images))], DRAWINGS)
    names = sorted(set(labels.tolist()))
    source = from_arrays(images.reshape(-1, SIDE, SIDE), labels, splits={"train": names}, name="omniglot")
    sampler = few_shot_sampler(source, "train", seed=0, ways=WAYS, shots=SHOTS, queries=QUERIES)
    starts = itertools.count(0, PER_CALL)

    def call() -> Any:
        first = next(starts)
        if size == 1:
            return [sampler.episode(first + i) for i in range(PER_CALL)]
        return [sampler.batch(first // size + i, size) for i in range(PER_CALL // size)]

    # what is behind an episode can be asked for at any time
    assert len(sampler.files(7)["query"]) == WAYS * QUERIES
    return call


def build(spec: Spec) -> Callable[[], Any]:
    """The side asked for by ``side``, ``batch`` and ``classes``, on one thread."""
    torch.set_num_threads(1)
    images = pictures(spec.get("classes", CLASSES))
    return numpy_gather(images) if spec["side"] == "numpy" else ours(images, spec["batch"])


def run(quick: bool = False, say: harness.Say = print, sizes: dict[str, int] | None = None) -> harness.Report:
    """All sides take turns, each in a process of its own with one thread; times are of 1,000 episodes."""
    base = {"threads": 1, **(sizes or {})}
    sides = [harness.Side("numpy", {"side": "numpy", **base})]
    by_name = zip(AT_LEAST, (1, BATCH), strict=True)
    sides += [harness.Side(name, {"side": "ours", "batch": batch, **base}) for name, batch in by_name]
    with harness.started(sides, __name__, say) as all_sides:
        measured = all_sides.measured(quick, (3, 0.3), (15, 1.0), scale=lambda _: 1000 / PER_CALL)
    rows, ms = [], {name: one.ms for name, one in measured.timings.items()}
    for name, at_least in AT_LEAST.items():
        speeds = f"{1e6 / ms[name]:,.0f} episodes a second, the peer {1e6 / ms['numpy']:,.0f}"
        case = f"1,000 episodes, {WAYS}-way {SHOTS}-shot {QUERIES}-query, {name}"
        rows.append(measured.row(case, "numpy", at_least, [speeds], "numpy gather", name))
    return {"cases": rows, "machine": harness.machine()}


WORKER = Worker(build)
