"""Commands that train a recipe and judge it, whose scores the pages print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

THREE = "seed=[0,1,2]"
OTHER_TASKS = "eval.seed=11"
"""Test tasks that were not used to choose any setting."""
MAML = ("outer.batch=16", "tasks.queries=5", "eval.queries=15", "outer.steps=4000", "outer.lr=2e-3")
PHOTOS = "photos/"
"""The folder of photographs that :mod:`innerloop_studies.recorded.photographs` writes."""
FOLDER = f"data.name={PHOTOS}"
AUGMENTED, PLAIN = "data.augment=lee2019", "data.augment=none"

EVALUATIONS: dict[str, Sequence[str]] = {
    "sine-maml": ("sweep", "sine-maml", THREE, OTHER_TASKS),
    "sine-erm": ("sweep", "sine-erm", THREE, OTHER_TASKS),
    "sine-imaml": ("sweep", "sine-imaml", THREE, "eval.seed=12"),
    "sine-minibatchprox": ("sweep", "sine-minibatchprox", THREE, "eval.seed=12"),
    "sine-anil-rates": ("sweep", "sine-anil", "inner.lr=[0.001,0.003,0.01,0.03]", "outer.steps=2000"),
    "omniglot-protonet": (
        *("train", "omniglot-protonet", "tasks.ways=20", "outer.steps=4000"),
        *("outer.schedule=cosine", OTHER_TASKS),
    ),
    "omniglot-maml": ("train", "omniglot-maml", *MAML, "outer.schedule=cosine", OTHER_TASKS),
    "omniglot-imaml": ("train", "omniglot-imaml-cpu"),
    "cifar-fs-supervised": ("train", "cifar-fs-supervised-thin", OTHER_TASKS),
    "cifar-fs-supervised-1000": ("train", "cifar-fs-supervised-thin", "outer.steps=1000", OTHER_TASKS),
    "photos-protonet": ("train", PHOTOS),
    "photos-protonet-plain": ("train", PHOTOS, PLAIN),
    "photos-supervised": ("train", "pictures-supervised", FOLDER),
    "photos-supervised-plain": ("train", "pictures-supervised", FOLDER, PLAIN),
    "photos-maml": ("train", "pictures-maml", FOLDER),
    "photos-maml-augmented": ("train", "pictures-maml", FOLDER, AUGMENTED),
}
"""What is typed after ``innerloop``, by the name of the file."""

RUN = "RUN"
ALSO: dict[str, Mapping[str, Sequence[str]]] = {
    "omniglot-maml": {"support": (RUN, "model.norm=support", OTHER_TASKS)},
    "photos-supervised": {"pretrained": ("--backbone", "efficientnet-lite0", "--against", RUN)},
}
"""Further judgements of what was trained, or of others on its tasks: what follows ``innerloop eval``, by what
they are called. ``RUN`` stands for the directory of the training."""

MODULE = "innerloop.experiment.run"
"""Whose source, recipes included, these numbers depend on."""
