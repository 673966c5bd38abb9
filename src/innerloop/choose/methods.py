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


def _few_shot(words: str, outer: dict[str, Any], norm: str, **inner: Any) -> TrainingMethod:
    """A learner that is trained on few-shot tasks, and is its own head."""
    settings = {
        "tasks": {"family": "few-shot"},
        "model": {"norm": norm},
        "inner": {**inner, "loss": "cross-entropy"},
        "outer": outer,
        "eval": {"head": "learner"},
    }
    return TrainingMethod(words, settings, together=norm == "transductive")


_PROTONET = {"method": "protonet", "loss": "cross-entropy"}
_LOGISTIC = {"head": "logistic", "C": 3.0}

PICTURES: Mapping[str, TrainingMethod] = {
    "protonet": _few_shot("ProtoNet", _outer(5000, "adam", 3e-3), "running", method="protonet"),
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
    "r2d2": _few_shot("R2D2", _outer(5500, "radam", 3e-2), "running", method="r2d2"),
    "anil": _few_shot("ANIL", _outer(6000, "adam", 3e-3), "transductive", method="anil", lr=0.1, steps=5),
    "maml": _few_shot("MAML", _outer(3900, "adam", 2e-3), "transductive", method="maml", lr=0.3, steps=1),
}
"""On pictures, by name, in the order of tables."""

NETWORK: Mapping[str, Any] = {"kind": "conv4", "filters": 64, "pooling": "stride"}
"""Of all methods on pictures, where no recipe names another one."""

_MLP = {"kind": "mlp", "hidden": [40, 40], "activation": "relu"}
_CALM = {**_MLP, "weight_var": 1.0}  # He's 2 makes large inputs so steep that inner steps lead tasks astray
_ADAM = {"batch": 25, "optimiser": "adam", "lr": 1e-3, "steps": 10_000, "clip": 10.0}
_MSE = {"test_steps": 5, "loss": "mse"}


def _regression(words: str, model: Mapping[str, Any], objective: str, **inner: Any) -> TrainingMethod:
    """A learner of small dense networks on tasks of numbers."""
    outer = {**_ADAM, "objective": objective}
    return TrainingMethod(words, {"model": model, "inner": {**inner, **_MSE}, "outer": outer})


NUMBERS: Mapping[str, TrainingMethod] = {
    "maml": _regression("MAML", _CALM, "episodic", method="maml", lr=0.01, steps=1),
    "fomaml": _regression("first-order MAML", _CALM, "episodic", method="fomaml", lr=0.01, steps=1),
    "anil": _regression("ANIL", _MLP, "episodic", method="anil", lr=0.01, steps=5),
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
    "pooled": _regression(
        "one network for all tasks (NAL), fine-tuned on each", _CALM, "erm", method="maml", lr=3e-3
    ),
}
"""On tasks whose targets are numbers."""
