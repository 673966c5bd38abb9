"""What a model is, as plain data: it travels in the metadata of an export, and a card puts it into words."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from innerloop._version import __version__
from innerloop.classify.predicting.adapted import Adapted
from innerloop.classify.predicting.told import LearnedTold, learned_told, plain_label
from innerloop.classify.takeaway.graph import Graph, preparation_of
from innerloop.core.files import plain
from innerloop.nets.hugging_face import PREFIX, is_hugging_face
from innerloop.nets.pretrained import UNKNOWN
from innerloop.runs.manifest import version_of

FORMAT = "innerloop-export-1"
About = dict[str, Any]


def about_model(adapted: Adapted, unsure_below: float, learned: LearnedTold | None = None) -> About:
    """What was learned from what, by which network, and how sure it may be."""
    told, sure = (learned or learned_told(adapted)).as_dict(), adapted.sureness
    novelty = None if sure is None or sure.novelty is None else sure.novelty._asdict()
    return plain(
        {
            "classes": [plain_label(name) for name in adapted.names],
            "examples": told["support"],
            "method": told["method"],
            "normalise": adapted.predictor.recipe.eval.normalise_features,
            "expected": told["expected"],
            "curve": told["curve"],
            "copies": [len(row["examples"]) for row in told["copies"]],
            "calibrated": sure is not None and sure.expected is not None,
            "temperature": adapted.temperature,
            "unsure_below": unsure_below,
            "novelty": novelty,
            "network": _network(adapted),
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": _versions(),
        }
    )


def _network(adapted: Adapted) -> dict[str, Any]:
    """The backbone with its licence, or what a recipe trained."""
    predictor = adapted.predictor
    recipe, how = predictor.recipe, preparation_of(predictor)
    common = {"pictures": str(how), "norm": predictor.network.norm}
    if predictor.backbone is not None:
        about = predictor.backbone.about()
        return {**about, "name": _alone(about["name"]), "weights": _alone(about["weights"]), **common}
    return {
        "name": _alone(recipe.model.kind),
        "recipe": recipe.name,
        "weights": predictor.weights or UNKNOWN,
        "seen": _alone(recipe.data.name or recipe.tasks.family),
        "licence": UNKNOWN,
        "preprocessing": how.as_dict(),
        **common,
    }


def _alone(name: str) -> str:
    """A name without where on this machine it is: who gets the file need not know.

    >>> _alone("/home/me/birds"), _alone("hf:./nets/dino"), _alone("hf:facebook/dinov2-small")
    ('birds', 'hf:dino', 'hf:facebook/dinov2-small')
    """
    kind = PREFIX if is_hugging_face(name) else ""
    place = name.removeprefix(kind)
    return kind + Path(place).name if place.startswith(("/", ".", "~")) or Path(place).is_absolute() else name


def _versions() -> dict[str, str]:
    installed = {name: version_of(name) for name in ("torch", "numpy", "pillow", "onnx", "onnxruntime")}
    kept = {name: version for name, version in installed.items() if version is not None}
    return {"innerloop": __version__, "python": platform.python_version(), **kept}


def about_graph(graph: Graph) -> About:
    """What goes into a graph, what comes out of it, and what is left to the caller."""
    height, width, channels = graph.shape
    sides: list[int | str] = [height, width] if graph.fixed else ["height", "width"]
    return {
        "format": FORMAT,
        "input": {
            "name": "pictures",
            "type": "uint8",
            "shape": ["batch", *sides, channels],
            "colour": "rgb" if channels == 3 else "grey",
            "resized": not graph.fixed,
            "how": str(graph.preparation._replace(mean=None, std=None)),
        },
        "outputs": {
            "logits": "float32 (batch, classes): scores before the temperature",
            "probabilities": "float32 (batch, classes): a softmax of the scores over the temperature",
            "unknown": "bool (batch): farther from every class than examples are from theirs",
            "unsure": "bool (batch): less probable than unsure_below, or unknown",
        },
    }
