"""How sure a head may be, as plain data and tensors. Names of classes are told by their places."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from innerloop.evaluation.sureness.assured import Sureness
from innerloop.evaluation.sureness.expected import Confused, Expected, Share
from innerloop.evaluation.sureness.novelty import Novelty


def pack_sureness(sure: Sureness, names: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Plain data, and tensors by name."""
    told: dict[str, Any] = {"temperature": sure.temperature, "expected": None, "novelty": None}
    place = {name: i for i, name in enumerate(names)}
    if sure.expected is not None:
        told["expected"] = {
            "accuracy": list(sure.expected.accuracy),
            "by_class": [[place[name], *share] for name, share in sure.expected.by_class.items()],
            "confused": [[place[c.true], place[c.said], c.share] for c in sure.expected.confused],
        }
    if sure.novelty is not None:
        told["novelty"] = list(sure.novelty)
    return told, {"means": sure.means}


def unpack_sureness(told: Mapping[str, Any], tensors: Mapping[str, Tensor], names: Sequence[Any]) -> Sureness:
    """What :func:`pack_sureness` was given.

    Args:
        told: plain data.
        tensors: by name.
        names: of the classes, in the order of their places.

    Raises:
        ValueError: a temperature or a threshold that would turn the labels around.
    """
    expected = told["expected"]
    if expected is not None:
        by_class = {names[i]: Share(*share) for i, *share in expected["by_class"]}
        expected = Expected(
            Share(*expected["accuracy"]),
            by_class,
            [Confused(names[a], names[b], share) for a, b, share in expected["confused"]],
            [name for name in names if name not in by_class],
        )
    novelty = None if told["novelty"] is None else Novelty(*told["novelty"])
    temperature, threshold = float(told["temperature"]), 0.0 if novelty is None else float(novelty.threshold)
    if not (math.isfinite(temperature) and temperature > 0 and math.isfinite(threshold)):
        raise ValueError(f"temperature {temperature:g}, threshold {threshold:g}")
    return Sureness(temperature, expected, novelty, tensors["means"])
