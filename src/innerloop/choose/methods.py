"""Methods that may be raced on a problem, each as the settings by which it differs from the others.

Rates and optimisers are those with which a strided Conv4 of 64 filters did best on CIFAR-FS in trial runs of
a minute (the recipes ``cifar-fs-NAME-cpu``), and those of the recipes ``sine-NAME``. Importing this file
imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Settings = Mapping[str, Mapping[str, Any]]


class TrainingMethod(NamedTuple):
    """A method that can be raced."""

    words: str
    settings: Settings
    together: bool = False


def _outer(steps: int, optimiser: str, lr: float, **more: Any) -> dict[str, Any]:
    plain = {"objective": "episodic", "batch": 1, "schedule": "cosine", "clip": 10.0}
    return {**plain, "steps": steps, "optimiser": optimiser, "lr": lr, **more}


_LOGISTIC = {"head": "logistic", "C": 3.0}
_LEARNER = {"head": "learner"}
_PROTONET = {"method": "protonet", "loss": "cross-entropy"}

PICTURES: Mapping[str, TrainingMethod] = {
    "protonet": TrainingMethod(
        "ProtoNet",
        {
            "tasks": {"family": "few-shot"},
            "model": {"norm": "running"},
            "inner": _PROTONET,
            "outer": _outer(5000, "adam", 3e-3),
            "eval": _LEARNER,
        },
    ),
    "supervised": TrainingMethod(
        "supervised pre-training with a logistic head (RFS)",
        {
            "tasks": {"family": "supervised", "minibatch": 64},
            "model": {"norm": "running"},
            "inner": _PROTONET,
            "outer": _outer(9000, "radam", 1e-2, objective="erm"),
            "eval": _LOGISTIC,
        },
    ),
    "mtl": TrainingMethod(
        "multi-task training with a head per class, then a logistic head",
        {
            "tasks": {"family": "few-shot"},
            "model": {"norm": "running", "last_layer": "normalised"},
            "inner": _PROTONET,
            "outer": _outer(10_000, "radam", 1e-2, objective="multitask", heads="released"),
            "eval": _LOGISTIC,
        },
    ),
    "r2d2": TrainingMethod(
        "R2D2",
        {
            "tasks": {"family": "few-shot"},
            "model": {"norm": "running"},
            "inner": {"method": "r2d2", "loss": "cross-entropy"},
            "outer": _outer(5500, "radam", 3e-2),
            "eval": _LEARNER,
        },
    ),
    "anil": TrainingMethod(
        "ANIL",
        {
            "tasks": {"family": "few-shot"},
            "model": {"norm": "transductive"},
            "inner": {"method": "anil", "lr": 0.1, "steps": 5, "loss": "cross-entropy"},
            "outer": _outer(6000, "adam", 3e-3),
            "eval": _LEARNER,
        },
        together=True,
    ),
    "maml": TrainingMethod(
        "MAML",
        {
            "tasks": {"family": "few-shot"},
            "model": {"norm": "transductive"},
            "inner": {"method": "maml", "lr": 0.3, "steps": 1, "loss": "cross-entropy"},
            "outer": _outer(3900, "adam", 2e-3),
            "eval": _LEARNER,
        },
        together=True,
    ),
}
"""On pictures, by name, in the order of tables."""

NETWORK: Mapping[str, Any] = {"kind": "conv4", "filters": 64, "pooling": "stride"}
"""Of all methods on pictures, where no recipe names another one."""

_MLP = {"kind": "mlp", "hidden": [40, 40], "activation": "relu"}
_CALM = {**_MLP, "weight_var": 1.0}  # He's 2 makes large inputs so steep that inner steps lead tasks astray
_ADAM = {"batch": 25, "optimiser": "adam", "lr": 1e-3, "steps": 10_000, "clip": 10.0}

NUMBERS: Mapping[str, TrainingMethod] = {
    "maml": TrainingMethod(
        "MAML",
        {
            "model": _CALM,
            "inner": {"method": "maml", "lr": 0.01, "steps": 1, "test_steps": 5, "loss": "mse"},
            "outer": {**_ADAM, "objective": "episodic"},
        },
    ),
    "fomaml": TrainingMethod(
        "first-order MAML",
        {
            "model": _CALM,
            "inner": {"method": "fomaml", "lr": 0.01, "steps": 1, "test_steps": 5, "loss": "mse"},
            "outer": {**_ADAM, "objective": "episodic"},
        },
    ),
    "anil": TrainingMethod(
        "ANIL",
        {
            "model": _MLP,
            "inner": {"method": "anil", "lr": 0.01, "steps": 5, "test_steps": 5, "loss": "mse"},
            "outer": {**_ADAM, "objective": "episodic"},
        },
    ),
    "reptile": TrainingMethod(
        "Reptile",
        {
            "model": {"kind": "mlp", "hidden": [64, 64], "activation": "tanh"},
            "inner": {"method": "maml", "lr": 0.02, "steps": 10, "test_steps": 32, "loss": "mse"},
            "outer": {
                "objective": "reptile",
                "batch": 5,
                "optimiser": "sgd",
                "lr": 0.5,
                "steps": 10_000,
                "schedule": "cosine",
            },
        },
    ),
    "multitask": TrainingMethod(
        "multi-task training with a head per task",
        {
            "tasks": {"n_tasks": 100},
            "model": _MLP,
            "inner": {
                "method": "anil",
                "optimiser": "adam",
                "lr": 0.05,
                "test_steps": 100,
                "loss": "mse",
            },
            "outer": {**_ADAM, "objective": "multitask", "heads": "shared"},
            "eval": {"curve": False},
        },
    ),
    "pooled": TrainingMethod(
        "one network for all tasks (NAL), fine-tuned on each",
        {
            "model": _CALM,
            "inner": {"method": "maml", "lr": 3e-3, "test_steps": 5, "loss": "mse"},
            "outer": {**_ADAM, "objective": "erm"},
        },
    ),
}
"""On tasks whose targets are numbers."""
