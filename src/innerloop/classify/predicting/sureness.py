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
    """What :func:`pack_sureness` was given."""
    expected = told["expected"]
    if expected is not None:
        by_class = {names[i]: Share(*share) for i, *share in expected["by_class"]}
        expected = Expected(
            Share(*expected["accuracy"]),
            by_class,
            [Confused(names[a], names[b], share) for a, b, share in expected["confused"]],
            [name for name in names if name not in by_class],
        )
        if not all(
            0 <= round(part, 6) <= 1
            for share in (expected.accuracy, *by_class.values())
            for part in share[:3]
        ):
            raise ValueError("shares that are none")
    novelty = told["novelty"]
    if novelty is not None:
        threshold, false_alarms, examples = novelty
        novelty = Novelty(float(threshold), float(false_alarms), int(examples))
    temperature, threshold = float(told["temperature"]), 0.0 if novelty is None else novelty.threshold
    if not (0 < temperature < math.inf and 0 <= threshold < math.inf):
        raise ValueError(f"temperature {temperature:g}, threshold {threshold:g}")
    means = tensors["means"]
    if len(means) != len(names) or not bool(means.isfinite().all()):
        raise ValueError("means that are not those of the classes")
    return Sureness(temperature, expected, novelty, means)
