"""A trained run as a backbone: its features are computed, kept and used like those of pretrained weights."""

from __future__ import annotations

from pathlib import Path

from innerloop.classify.features.backbone import Backbone
from innerloop.classify.predicting.loading import load_model
from innerloop.classify.predicting.predictor import Predictor
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.evaluation.features import CACHEABLE
from innerloop.experiment.look import Look


def run_backbone(source: str | Path, *, trust: bool = False) -> Backbone:
    """The network of a run on pictures, or of a saved classifier, for features.

    Args:
        source: a run (its path, the beginning of its name, or ``last``), or a saved file.
        trust: whether code that it names may be imported.

    Raises:
        UserError: there is no such thing, or its features of a picture depend on other pictures.
    """
    return backbone_of(load_model(source, trust=trust).predictor)


def backbone_of(predictor: Predictor) -> Backbone:
    """A predictor's network, with the look of the pictures that it was trained on."""
    recipe, norm = predictor.recipe, predictor.network.norm
    if norm not in CACHEABLE:
        raise UserError(
            f"{predictor.source} normalises by the pictures of a task (model.norm={norm}), so that a picture "
            f"has no features of its own: train it with model.norm={' or '.join(CACHEABLE)}."
        )
    words = f"{predictor.source}, {predictor.weights}" if predictor.weights else predictor.source
    seen = f"{recipe.data.name}, training classes"
    model = recipe.model.model_dump(exclude={"kind", "init"})
    return Backbone(
        recipe.model.kind,
        predictor.network,
        predictor.params,
        predictor.buffers,
        look_as_preprocessing(predictor.look),
        words,
        seen,
        "that of its training data",
        model,
    )


def look_as_preprocessing(look: Look) -> Preprocessing:
    """How picture files are brought to what training saw.

    >>> look_as_preprocessing(Look((28, 28, 1))).shape
    (28, 28, 1)
    """
    height, width, _ = look.shape
    return Preprocessing(
        (height, width),
        "fill",
        resample="lanczos",
        mean=None if look.mean is None else tuple(look.mean),
        std=None if look.std is None else tuple(look.std),
        colour=look.colour,
    )
