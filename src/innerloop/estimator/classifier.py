"""``FewShotClassifier``: meta-train on many classes, then learn new ones from a few pictures."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.random import generator
from innerloop.data import from_arrays
from innerloop.data.augment import episode_transform, lee2019
from innerloop.estimator.files import read_model, write_model
from innerloop.estimator.heads import AdaptedModule, LinearHead, Prediction, confident, fit_head
from innerloop.estimator.labels import pack_labels, unpack_labels
from innerloop.estimator.pictures import as_batch
from innerloop.evaluation.heads import check_head
from innerloop.evaluation.labelling import (
    check_numbers,
    check_weights,
    in_parts,
    query_features,
    support_features,
)
from innerloop.execution import Plan
from innerloop.execution.plan import available_cores
from innerloop.learners import protonet
from innerloop.nets import Network, conv4
from innerloop.nets.norms import check_policy
from innerloop.objectives import episodic
from innerloop.tasks.episodes import Shape
from innerloop.tasks.few_shot import Kind, few_shot_sampler
from innerloop.training import fit, initial_state, make_optimiser


class FewShotClassifier:
    """Learns features from many classes, then new classes from a few pictures each.

    ``fit`` meta-trains a Conv4 as a prototypical network on labelled pictures of *other* classes; ``adapt``
    takes a few pictures of each new class; ``predict`` labels pictures. Arguments are kept as given, as in
    scikit-learn.

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
        head: ``logistic``, ``svm``, ``ridge``, ``centroid`` or ``cosine``; ``adapt`` fits it on features.
        C: inverse penalty of the first three.
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
        check_head(self.head)
        check_policy(self.norm)
        names = [str(label) for label in np.unique(np.asarray(y))]
        source = from_arrays(X, y, splits={"train": names})
        self.shape_ = tuple(source.images.shape[1:])
        network = self._network()
        transform = episode_transform(self.seed, lee2019(self.shape_[0])) if self.augment else None
        ways = min(self.ways, source.n_classes)
        sampler = few_shot_sampler(
            source,
            "train",
            seed=self.seed,
            kinds=[Kind(Shape(ways, self.shots, self.queries))],
            transform=transform,
        )
        loss = get_loss("cross-entropy")
        objective = episodic(protonet(network, ways), loss)
        params, buffers = network.init(generator(self.seed, "init"))
        plan = Plan("threads" if self.batch > 1 else "loop", available_cores())
        state = fit(
            objective,
            initial_state(params, buffers),
            sampler,
            make_optimiser("adam", self.lr),
            steps=self.steps,
            batch=self.batch,
            plan=plan,
        )
        self.params_, self.buffers_ = state.params, state.buffers
        for name in ("head_", "classes_", "task_buffers_"):
            vars(self).pop(name, None)
        return self

    def _network(self) -> Network:
        side, _, channels = self.shape_
        pooling = "max" if side >= 16 else "stride"
        return conv4(channels, side, 1, self.filters, pooling, self.norm)

    # a new task

    def adapt(self, X: Any, y: Sequence[Any] | NDArray[Any]) -> Self:
        """Learns new classes from a few pictures each; forgets the classes of an earlier ``adapt``."""
        self._check("params_", "fit it first, or load a saved one")
        check_head(self.head)
        labels = list(y.tolist() if hasattr(y, "tolist") else y)
        names = sorted(set(labels), key=str)
        if len(names) < 2:
            raise UserError("adapt needs pictures of at least two classes.")
        x = as_batch(X, self.shape_)
        if len(x) != len(labels):
            raise UserError(f"adapt got {len(x)} pictures but {len(labels)} labels: give one label each.")
        targets = torch.tensor([names.index(label) for label in labels])
        check_weights(self.params_, "this FewShotClassifier")
        with torch.no_grad():
            z, after = support_features(self._network(), self.params_, self.buffers_, x)
            self.head_ = fit_head(z, targets, len(names), self.head, self.C, self.normalise)
        self.task_buffers_, self.classes_ = after, names
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the adapted classes, in the order of ``classes_``: ``(n, ways)``."""
        return self._probabilities(X).double().numpy()

    def predict(self, X: Any) -> list[Any]:
        """The most probable label of each picture."""
        return self.predict_sure(X).labels

    def predict_sure(self, X: Any) -> Prediction:
        """Labels, how probable each is, and which are too improbable to be believed.

        The classifier only knows the classes it was adapted to: a picture of anything else gets one of them,
        and need not look unsure.
        """
        return confident(self._probabilities(X), list(self.classes_), self.unsure_below)

    def score(self, X: Any, y: Sequence[Any]) -> float:
        """The share of pictures labelled right."""
        predicted, truth = self.predict(X), list(y)
        if len(predicted) != len(truth):
            raise UserError(
                f"score got {len(predicted)} pictures but {len(truth)} labels: give one label each."
            )
        return float(np.mean([p == t for p, t in zip(predicted, truth, strict=True)]))

    def _probabilities(self, X: Any) -> Tensor:
        self._check("head_", "adapt it to your classes first")
        network = self._network()

        def probabilities(x: Tensor) -> Tensor:
            return self.head_.logits(query_features(network, self.params_, self.task_buffers_, x)).softmax(-1)

        out = in_parts(probabilities, as_batch(X, self.shape_), self.norm)
        check_numbers(out, "this FewShotClassifier")
        return out

    def _check(self, attribute: str, fix: str) -> None:
        if not hasattr(self, attribute):
            raise UserError(f"this FewShotClassifier is not ready: {fix}.")

    # keeping it

    def save(self, path: str | Path) -> Path:
        """Writes one ``.safetensors`` file (no pickle) with weights, settings and, if adapted, the head."""
        self._check("params_", "fit it first")
        tensors = {"params": self.params_, "buffers": self.buffers_}
        about: dict[str, Any] = {"settings": self.get_params(), "shape": self.shape_}
        if hasattr(self, "head_"):
            head = {"weight": self.head_.weight, "bias": self.head_.bias}
            tensors |= {"task": self.task_buffers_, "head": head}
            about |= {"classes": pack_labels(self.classes_), "normalised": self.head_.normalise}
        return write_model(Path(path), tensors, about)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what :meth:`save` wrote; labels come back as they were (from older files: as text)."""
        about, tensors = read_model(Path(path))
        model = cls(**about["settings"])
        model.shape_ = tuple(about["shape"])
        model.params_, model.buffers_ = tensors["params"], tensors.get("buffers", {})
        if "classes" in about:
            head = tensors["head"]
            model.classes_, model.task_buffers_ = unpack_labels(about["classes"]), tensors.get("task", {})
            normalised = bool(about.get("normalised", model.normalise))
            model.head_ = LinearHead(head["weight"], head["bias"], normalised)
        return model

    def export(self, path: str | Path) -> Path:
        """Writes the adapted classifier by ``torch.export``: pictures in 0…1 → probabilities."""
        self._check("head_", "adapt it to your classes first")
        path = Path(path).with_suffix(".pt2")
        side, _, channels = self.shape_
        module = AdaptedModule(self._network().features, self.params_, self.task_buffers_, self.head_)
        example = torch.zeros(2, channels, side, side)
        batch = torch.export.Dim("batch", min=1)
        program = torch.export.export(module, (example,), dynamic_shapes=({0: batch},))
        torch.export.save(program, path)
        return path
