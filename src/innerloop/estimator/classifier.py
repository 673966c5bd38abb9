"""``FewShotClassifier``: meta-train on many classes, then learn new ones from a few pictures."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from innerloop.core.errors import UserError
from innerloop.data import from_arrays
from innerloop.estimator.export import export
from innerloop.estimator.training import train
from innerloop.evaluation.heads import check_head
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.experiment.classifier_recipe import arguments_of, recipe_for, with_adaptation
from innerloop.experiment.look import Look
from innerloop.experiment.predictor import Adapted, Prediction, Predictor, list_labels
from innerloop.experiment.predictor_files import write_predictor
from innerloop.experiment.predictor_loading import load_model
from innerloop.nets.norms import check_policy

OTHER_HEADS = ("learner", FINE_TUNING)


class FewShotClassifier:
    """Learns features from many classes, then new classes from a few pictures each.

    ``fit`` meta-trains a Conv4 as a prototypical network on labelled pictures of *other* classes; ``adapt``
    takes a few pictures of each new class; ``predict`` labels pictures. Arguments are kept as given, as in
    scikit-learn. ``load`` also takes a run of ``innerloop train``, and ``innerloop predict`` what ``save``
    writes: they predict in the same way.

    Args:
        filters: channels of the Conv4.
        norm: norm policy; ``running`` predicts each picture on its own.
        ways: classes per training episode.
        shots: support pictures per class in training.
        queries: query pictures per class in training.
        steps: meta-steps.
        batch: episodes per meta-step.
        lr: meta learning rate.
        augment: pad-crop, flip and colour jitter in training (not for handwriting: flips make other letters).
        head: ``logistic``, ``svm``, ``svc``, ``ridge``, ``centroid`` or ``cosine``: ``adapt`` fits it on
            features; ``finetune`` moves the whole network; ``learner`` adapts as it was trained to (after
            ``fit``: as a prototypical network; after ``load`` of a run: by its own method).
        C: inverse penalty of the first four.
        normalise: divide features by their norm.
        unsure_below: predictions less probable than this are marked unsure.
        seed: of everything.

    >>> from innerloop.data.glyphs import glyphs
    >>> source = glyphs()
    >>> X, y = source.images[:4000], np.repeat(np.arange(200), 20)
    >>> model = FewShotClassifier(filters=8, steps=2, batch=1).fit(X, y)
    >>> new = source.images[8000:8040]                   # two characters it has never seen
    >>> model.adapt(new[[0, 1, 20, 21]], ["a", "a", "b", "b"]).predict(new[[5, 25]]) in (
    ...     [["a", "b"], ["a", "a"], ["b", "b"], ["b", "a"]])
    True
    """

    def __init__(
        self,
        *,
        filters: int = 64,
        norm: str = "running",
        ways: int = 5,
        shots: int = 5,
        queries: int = 10,
        steps: int = 1000,
        batch: int = 4,
        lr: float = 1e-3,
        augment: bool = False,
        head: str = "logistic",
        C: float = 1.0,
        normalise: bool = True,
        unsure_below: float = 0.5,
        seed: int = 0,
    ) -> None:
        self.filters, self.norm, self.ways, self.shots, self.queries = filters, norm, ways, shots, queries
        self.steps, self.batch, self.lr, self.augment = steps, batch, lr, augment
        self.head, self.C, self.normalise = head, C, normalise
        self.unsure_below, self.seed = unsure_below, seed

    # scikit-learn's manners

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        del deep
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Changes arguments; unknown ones are refused."""
        unknown = sorted(set(params) - set(self.get_params()))
        if unknown:
            raise UserError(f"FewShotClassifier has no parameter '{unknown[0]}'.")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"FewShotClassifier({', '.join(changed)})"

    # training

    def fit(self, X: Any, y: Any) -> Self:
        """Meta-trains on labelled pictures of many classes (not the ones to be told apart later).

        Args:
            X: pictures, ``(N, H, W)``, ``(N, H, W, C)`` or ``(N, C, H, W)``; uint8, or floats in 0…1.
            y: their labels.

        What an earlier ``adapt`` learned is forgotten: its head belongs to the old features.
        """
        self._check_head()
        check_policy(self.norm)
        names = [str(label) for label in np.unique(np.asarray(y))]
        source = from_arrays(X, y, splits={"train": names})
        height, width, channels = source.images.shape[1:]
        ways = min(self.ways, max(source.n_classes, 2))
        recipe = recipe_for({**self.get_params(), "ways": ways}, height)
        look = Look((height, width, channels))
        self.predictor_ = Predictor(
            recipe, *train(source, recipe, look), look, "this FewShotClassifier", f"last (step {self.steps})"
        )
        for name in ("adapted_", "classes_"):
            vars(self).pop(name, None)
        return self

    # a new task

    def adapt(self, X: Any, y: Sequence[Any] | NDArray[Any]) -> Self:
        """Learns new classes from a few pictures each; forgets the classes of an earlier ``adapt``."""
        self.adapted_ = self._predictor("fit it first, or load a saved one").adapt(X, list_labels(y))
        self.classes_ = self.adapted_.names
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the adapted classes, in the order of ``classes_``: ``(n, ways)``."""
        return self._adapted().probabilities(X)

    def predict(self, X: Any) -> list[Any]:
        """The most probable label of each picture."""
        return self.predict_sure(X).labels

    def predict_sure(self, X: Any) -> Prediction:
        """Labels, how probable each is, and which are too improbable to be believed.

        The classifier only knows the classes it was adapted to: a picture of anything else gets one of them,
        and need not look unsure.
        """
        return self._adapted().predict(X, self.unsure_below)

    def score(self, X: Any, y: Sequence[Any]) -> float:
        """The share of pictures labelled right."""
        predicted, truth = self.predict(X), list(y)
        if len(predicted) != len(truth):
            raise UserError(
                f"score got {len(predicted)} pictures but {len(truth)} labels: give one label each."
            )
        return float(np.mean([p == t for p, t in zip(predicted, truth, strict=True)]))

    def _predictor(self, fix: str) -> Predictor:
        """What was trained, adapting as the arguments say now."""
        if not hasattr(self, "predictor_"):
            raise UserError(f"this FewShotClassifier is not ready: {fix}.")
        self._check_head()
        recipe = with_adaptation(self.predictor_.recipe, self.get_params())
        return self.predictor_._replace(recipe=recipe)

    def _adapted(self) -> Adapted:
        if not hasattr(self, "adapted_"):
            raise UserError("this FewShotClassifier is not ready: adapt it to your classes first.")
        return self.adapted_

    def _check_head(self) -> None:
        check_head(self.head, OTHER_HEADS)

    # keeping it

    def save(self, path: str | Path) -> Path:
        """Writes one ``.safetensors`` file (no pickle): weights, recipe and, if adapted, the classes.

        ``load`` and ``innerloop predict`` read it.
        """
        predictor = self._predictor("fit it first")
        return write_predictor(Path(path), predictor, getattr(self, "adapted_", None), self.get_params())

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Reads what :meth:`save` wrote, or a run of ``innerloop train`` on pictures.

        Labels come back as they were (from the oldest files: as text). A run adapts as it was trained to,
        until another ``head`` is set; ``fit`` trains a Conv4 all the same.

        Args:
            path: a file; or a run: its directory, the beginning of its name, or ``last``.
            trust: whether code from outside that the file or the run names may be imported.
        """
        loaded = load_model(path, trust=trust)
        model = cls().set_params(**(loaded.arguments or arguments_of(loaded.predictor.recipe)))
        model.predictor_ = loaded.predictor
        if loaded.adapted is not None:
            model.adapted_, model.classes_ = loaded.adapted, loaded.adapted.names
        return model

    def export(self, path: str | Path) -> Path:
        """Writes the adapted classifier by ``torch.export``: pictures in 0…1 → probabilities."""
        return export(self._adapted(), Path(path))
