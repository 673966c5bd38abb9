"""What ``innerloop predict`` tells, as plain values: the network, what it learned, how sure it is, labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from innerloop.evaluation.sureness.curve import CurvePoint, learning_curve
from innerloop.evaluation.sureness.heldout import HeldOut, hold_out
from innerloop.evaluation.sureness.heldout import Way as HeadWay
from innerloop.experiment.predicting.adapted import Adapted, Prediction


def network_told(adapted: Adapted, model: str | Path | None) -> dict[str, Any]:
    """Which network it was.

    Args:
        adapted: what learned the classes.
        model: the run or the file that was named, if one was.
    """
    predictor = adapted.predictor
    named: dict[str, Any] = {}
    if model is not None:
        named["run" if Path(predictor.source).is_dir() else "model"] = predictor.source
    if predictor.backbone is not None:
        named["backbone"] = predictor.backbone.about()
    return {**named, "weights": predictor.weights, "norm": predictor.network.norm}


def learned_told(adapted: Adapted) -> dict[str, Any]:
    """What it learned, and how sure it may be."""
    names = [plain_label(name) for name in adapted.names]
    return {
        "method": adapted.method,
        "classes": names,
        "support": {str(name): n for name, n in zip(names, adapted.counts or [], strict=False)},
        "expected": expected_told(adapted),
        "curve": [point._asdict() for point in _curve(adapted)],
    }


def rows_told(adapted: Adapted, files: Sequence[Path], made: Prediction) -> list[dict[str, Any]]:
    """A row for every picture.

    Args:
        adapted: the classes that were learned.
        files: the pictures.
        made: what was predicted for each.
    """
    names = [str(plain_label(name)) for name in adapted.names]
    return [
        {
            "file": str(file),
            "label": plain_label(label),
            "probability": sure,
            "unsure": unsure,
            "unknown": unknown,
            "probabilities": {name: float(value) for name, value in zip(names, row, strict=True)},
        }
        for file, label, sure, unsure, row, unknown in zip(files, *made, strict=True)
    ]


def expected_told(adapted: Adapted) -> dict[str, Any] | None:
    """How often it will be right; None where that is not known."""
    expected = None if adapted.sureness is None else adapted.sureness.expected
    if expected is None:
        return None
    whole = {
        name: {"accuracy": share.value, "low": share.low, "high": share.high, "examples": share.n}
        for name, share in {None: expected.accuracy, **expected.by_class}.items()
    }
    return {
        **whole.pop(None),
        "by_class": {str(name): share for name, share in whole.items()},
        "confused": [
            {"true": str(pair.true), "said": str(pair.said), "share": pair.share}
            for pair in expected.confused
        ],
    }


def left_out(adapted: Adapted) -> HeldOut | None:
    """What heads said of examples that they had not seen, as when it was learned; None if nobody looked."""
    if adapted.examples is None or adapted.sureness is None:
        return None
    way, seed = head_way(adapted), adapted.predictor.recipe.run.seed
    return hold_out(*adapted.examples, len(adapted.names), way, seed)


def _curve(adapted: Adapted) -> list[CurvePoint]:
    if adapted.examples is None or adapted.sureness is None:
        return []
    return learning_curve(*adapted.examples, len(adapted.names), head_way(adapted))


def head_way(adapted: Adapted) -> HeadWay:
    """How its head on features was fitted."""
    wanted = adapted.predictor.recipe.eval
    head = str(adapted.predictor.way(len(adapted.names)).head)
    return HeadWay(head, wanted.C, wanted.normalise_features)


def plain_label(label: Any) -> Any:
    """A label as Python has it."""
    return label.item() if isinstance(label, np.generic) else label
