"""Labelling new pictures with a trained run: adapt to labelled folders, then predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.data import open_source, read_picture
from innerloop.data.pictures import Colour, is_picture
from innerloop.evaluation.heads import HEADS, fit_heads, head_scores
from innerloop.evaluation.labelling import (
    check_numbers,
    check_weights,
    in_parts,
    labelled,
    query_features,
    support_features,
)
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.experiment.data import build_data
from innerloop.experiment.learner import test_steps
from innerloop.experiment.loading import load_run
from innerloop.experiment.pictures import IMAGE_FAMILIES
from innerloop.experiment.run_data import data_record
from innerloop.experiment.weights import for_test
from innerloop.experiment.words import recipe_words
from innerloop.learners import Learner, protonet
from innerloop.learners.fine_tune import fine_tune
from innerloop.recipes.schema import Recipe
from innerloop.runs.manifest import read_manifest
from innerloop.tasks.few_shot import standardiser

UNSURE_BELOW = 0.5


class Pictures(NamedTuple):
    """What pictures must become to fit the run: side, colour, and how they are scaled."""

    size: int
    colour: Colour
    mean: list[float] | None
    std: list[float] | None

    def batch(self, arrays: np.ndarray[Any, Any], dtype: torch.dtype) -> Tensor:
        """``(n, C, H, W)`` as training saw them, from uint8 ``(n, H, W, C)``."""
        x = torch.from_numpy(np.moveaxis(arrays, -1, 1).copy()).to(dtype) / 255
        return standardiser(self.mean, self.std, dtype)(x)


@recipe_words()
def predict_pictures(
    run: Path,
    support: Path,
    queries: Sequence[Path],
    overrides: Sequence[str] = (),
    unsure_below: float = UNSURE_BELOW,
    *,
    trust: bool = False,
) -> dict[str, Any]:
    """Adapts the run to the classes of a folder and labels pictures.

    Args:
        run: a run on pictures.
        support: a folder with one folder of labelled pictures per class.
        queries: picture files, or folders of them.
        overrides: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        unsure_below: predictions less probable than this are marked unsure.
        trust: whether code that the run's recipe names may be imported.

    Returns:
        ``classes``, ``method``, and ``predictions``: file, label, probability, unsure, and all probabilities.
    """
    loaded = load_run(run, overrides, trust=trust)
    parts, recipe = loaded.parts, loaded.parts.recipe
    if recipe.tasks.family not in IMAGE_FAMILIES:
        raise UserError(f"{run} was trained on {recipe.tasks.family} tasks, not on pictures.")
    weights, used = loaded.weights()
    params, buffers = for_test(*weights)
    check_weights({**params, **buffers}, str(run))
    look = _look(recipe, run)
    files = list_pictures(queries)
    source = open_source(support, size=look.size, colour=look.colour, min_images=1, splits="all")
    y = torch.from_numpy(np.repeat(np.arange(source.n_classes), source.counts))
    dtype = next(iter(params.values())).dtype
    xs = look.batch(np.asarray(source.images), dtype)
    xq = look.batch(np.stack([read_picture(f, look.size, look.colour) for f in files]), dtype)
    method, predict = _predictor(recipe, parts, params, buffers, xs, y, source.n_classes)
    probabilities = in_parts(predict, xq, parts.network.norm)[:, : source.n_classes].double()
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    check_numbers(probabilities, str(run))
    names = list(source.class_names)
    best = labelled(probabilities, unsure_below)
    return {
        "run": str(run),
        "method": method,
        "weights": used,
        "norm": parts.network.norm,
        "classes": names,
        "support": {name: int(n) for name, n in zip(names, source.counts, strict=True)},
        "predictions": [
            {
                "file": str(file),
                "label": names[place],
                "probability": sure,
                "unsure": unsure,
                "probabilities": {name: float(value) for name, value in zip(names, row, strict=True)},
            }
            for file, place, sure, unsure, row in zip(files, *best, probabilities, strict=True)
        ],
    }


def _predictor(
    recipe: Recipe, parts: Any, params: Params, buffers: Buffers, xs: Tensor, y: Tensor, ways: int
) -> tuple[str, Any]:
    """How the run adapts: its own learner where it can tell that many classes apart, else a head."""
    learner: Learner | None = None
    method: str = recipe.inner.method
    if recipe.eval.head == "learner" and method == "protonet":
        learner = protonet(parts.network, ways)
    elif recipe.eval.head == "learner" and recipe.tasks.family == "few-shot" and method != "none":
        outputs = params[parts.network.head_names[0]].shape[0]
        if ways > outputs:
            raise UserError(
                f"the run tells {outputs} classes apart, the folder has {ways}: give fewer class folders, or "
                "add eval.head=logistic to fit a new last layer."
            )
        learner = parts.learner_after(test_steps(recipe))
    elif recipe.eval.head == FINE_TUNING:
        wanted = recipe.eval
        learner = fine_tune(parts.network, ways, wanted.head_lr, wanted.head_steps, wanted.normalise_features)
        method = f"finetune, {wanted.head_steps} steps"
    if learner is not None:
        chosen = learner
        with torch.no_grad():
            adapted = chosen.adapt(params, buffers, xs, y)
        return method, lambda x: chosen.predict(adapted, x)[0][:, :ways].softmax(-1)
    with torch.no_grad():
        z, after = support_features(parts.network, params, buffers, xs)
    name = "logistic" if recipe.eval.head == "learner" else recipe.eval.head
    head, normalise = HEADS[name], recipe.eval.normalise_features
    fitted = fit_heads(z[None].double(), y[None], ways, name, recipe.eval.C, normalise)

    def predict(x: Tensor) -> Tensor:
        q = query_features(parts.network, params, after, x)
        return (head.temperature * head_scores(fitted, q[None].double(), normalise)[0]).softmax(-1)

    return f"{name} head" + (f", C={recipe.eval.C:g}" if head.penalised else ""), predict


def _look(recipe: Recipe, run: Path) -> Pictures:
    """Size, colour and scale from the manifest; from the data itself for runs that did not record them."""
    recorded = read_manifest(run).get("data") or data_record(build_data(recipe))
    height, _, channels = recorded["shape"]
    return Pictures(height, "grey" if channels == 1 else "rgb", recorded["mean"], recorded["std"])


def list_pictures(paths: Sequence[Path]) -> list[Path]:
    """Files as given, and the pictures in folders, sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and is_picture(p.name))
            if not inside:
                raise UserError(f"{path} has no pictures in it.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"there is no picture '{path}'.")
    if not found:
        raise UserError("give at least one picture to label.")
    return found
