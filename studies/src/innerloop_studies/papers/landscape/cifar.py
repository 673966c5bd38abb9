"""FS-CIFAR100's easy and hard tasks, and the training runs behind Tables 2 and 5 (Landscape, §5 and C.5).

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from innerloop_studies.papers.landscape.images import ADAM, SGD, Budget, Training

if TYPE_CHECKING:
    from innerloop.data.source import ImageSource
    from innerloop.tasks.episodes import Shape
    from innerloop.tasks.few_shot import Kind

EASY, HARD, QUERIES = (2, 50), (20, 5), 10
NAL_SHOTS = 5
"""Pictures per class that NAL sees besides the ten targets: 15 in all, of easy and hard tasks alike (C.5)."""
TRAIN_IMAGES = 450


class Arm(NamedTuple):
    """A line of the table: a method with its outer optimiser and rate."""

    method: str
    training: Training


ARMS = {
    "NAL": Arm("NAL", SGD["NAL"]),
    "MAML": Arm("MAML", SGD["MAML"]),
    "NAL by Adam": Arm("NAL", ADAM["NAL"]),
    "MAML by Adam": Arm("MAML", ADAM["MAML"]),
}


def trained(scale: str, share: float, method: str, budget: Budget, seed: int) -> dict[str, float]:
    """Accuracies in percent of one arm, trained with this share of hard tasks."""
    from innerloop_studies.papers.landscape.images import judge_all

    arm = ARMS[method]
    return judge_all(arm.method, *tasks_of(scale, share, arm.method), budget, seed, arm.training)


def untrained(scale: str, share: float, method: str, budget: Budget) -> dict[str, float]:
    """The same before training, after one step in each task."""
    from innerloop_studies.papers.landscape.images import judge_first

    return judge_first(method, *tasks_of(scale, share, method), budget._replace(test_steps=1), 0)


def shapes(scale: str) -> dict[str, Shape]:
    """Ways, shots and queries of easy and of hard tasks."""
    from innerloop.tasks.episodes import Shape

    if scale == "smoke":
        return {"easy": Shape(2, 4, 2), "hard": Shape(4, 1, 2)}
    return {"easy": Shape(*EASY, QUERIES), "hard": Shape(*HARD, QUERIES)}


def learned_shapes(scale: str, method: str) -> dict[str, Shape]:
    """The same in training: NAL, which does not adapt, sees equally many pictures of every class."""
    shots = 1 if scale == "smoke" else NAL_SHOTS
    return {
        name: shape._replace(shots=shots) if method == "NAL" else shape
        for name, shape in shapes(scale).items()
    }


def tasks_of(
    scale: str, share: float, method: str
) -> tuple[tuple[ImageSource, list[Kind]], dict[str, tuple[ImageSource, Kind]]]:
    """What is trained on, and what is judged on."""
    from innerloop.tasks.few_shot import Kind

    sources, learned = sources_of(scale), learned_shapes(scale, method)
    kinds = [
        Kind(learned["hard"], share=share, name="hard"),
        Kind(learned["easy"], share=1 - share, name="easy"),
    ]
    judged = {
        f"{part} {name}": (sources[part], Kind(shape, name=name))
        for part in ("train", "test")
        for name, shape in shapes(scale).items()
    }
    return (sources["learn"], kinds), judged


@functools.lru_cache(maxsize=1)
def sources_of(scale: str) -> dict[str, ImageSource]:
    """``learn``: 450 pictures of each training class; ``train``: its other 150; ``test``: unseen classes.

    Oreshkin's split of CIFAR-100 keeps superclasses together: 12 to train on, 4 for validation, 4 to test
    on. Landscape's 80 training classes are the first two parts. The glyphs are split by alphabet.
    """
    import numpy as np

    from innerloop.data.glyphs import glyphs
    from innerloop.data.opening import open_source

    whole = glyphs() if scale == "smoke" else open_source("fc100")
    images, most = 12 if scale == "smoke" else TRAIN_IMAGES, int(whole.counts.min())
    classes = np.concatenate([whole.splits["train"], whole.splits["validation"]])
    return {
        "learn": subset(whole, classes, 0, images),
        "train": subset(whole, classes, images, most),
        "test": subset(whole, whole.splits["test"], 0, most),
    }


def subset(source: ImageSource, classes: Any, start: int, stop: int) -> ImageSource:
    """Pictures ``start`` to ``stop`` of some classes as a source of its own."""
    import numpy as np

    from innerloop.data.source import NumberedFiles

    rows = np.concatenate([np.arange(source.starts[c] + start, source.starts[c] + stop) for c in classes])
    return source._replace(
        images=np.ascontiguousarray(source.images[rows]),
        starts=np.arange(len(classes) + 1, dtype=np.int64) * (stop - start),
        class_names=tuple(source.class_names[c] for c in classes),
        splits={},
        groups=None,
        group_names=(),
        files=NumberedFiles("row {row}"),
        content_sha256="",
    )
