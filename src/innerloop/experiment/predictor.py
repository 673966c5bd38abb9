"""The one way to predict: a trained network that learns new classes from a few pictures and labels others.

The command and the estimator are fronts of this, so that they give the same probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.evaluation.labelling import check_numbers, check_weights, in_parts, labelled
from innerloop.experiment.adaptation import Fields, Way, pack_state, unpack_state, way_to_adapt
from innerloop.experiment.look import Look
from innerloop.experiment.predictor_network import network_for
from innerloop.nets import Network
from innerloop.recipes.schema import Recipe

UNSURE_BELOW = 0.5


class Prediction(NamedTuple):
    """What is said of pictures.

    Attributes:
        labels: the most probable class of each.
        confidence: how probable that is.
        unsure: where it is not probable enough to be believed.
        probabilities: of all classes, ``(n, ways)``.
    """

    labels: list[Any]
    confidence: list[float]
    unsure: list[bool]
    probabilities: NDArray[np.float64]


class Predictor(NamedTuple):
    """A trained network and how it is to be used on new classes.

    Attributes:
        recipe: how it was trained, and how it adapts (``inner``, and the ``eval.head`` with its settings).
        network: the network.
        params: its trained weights, and what its learner owns.
        buffers: its statistics.
        look: how pictures must look.
        source: where it comes from, for messages.
        weights: which weights these are, in words.
    """

    recipe: Recipe
    network: Network
    params: Params
    buffers: Buffers
    look: Look
    source: str
    weights: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copies: a network is made of functions, which are made anew."""
        return _rebuilt, (self.outputs, self.recipe, self.params, self.buffers, *self[4:])

    @property
    def outputs(self) -> int:
        """How many classes its own last layer can tell apart."""
        return int(self.params[self.network.head_names[0]].shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """The floating point type that it computes in."""
        return self.params[self.network.head_names[0]].dtype

    def way(self, ways: int) -> Way:
        """How it learns so many classes."""
        return way_to_adapt(self.recipe, self.network, ways, self.outputs, self.source)

    def batch(self, pictures: Any) -> Tensor:
        """Pictures as the network wants them: see :meth:`innerloop.experiment.look.Look.bright`."""
        device = self.params[self.network.head_names[0]].device
        return self.look.batch(pictures, self.dtype, device)

    def adapt(self, pictures: Any, labels: Sequence[Any], names: Sequence[Any] | None = None) -> Adapted:
        """Learns classes from labelled pictures.

        Args:
            pictures: arrays, tensors or file names, as :meth:`batch` takes them.
            labels: one for each picture.
            names: the classes in order; by default the labels that there are, sorted as text.

        Raises:
            UserError: the labels do not fit the pictures, or there are too few or too many classes.
        """
        known = sorted(set(labels), key=str) if names is None else list(names)
        if len(known) < 2:
            raise UserError("adapting needs pictures of at least two classes: add some of another class.")
        x = self.batch(pictures)
        if len(x) != len(labels):
            raise UserError(f"adapt got {len(x)} pictures but {len(labels)} labels: give one label each.")
        place = {name: i for i, name in enumerate(known)}
        if strange := [label for label in labels if label not in place]:
            raise UserError(f"label {strange[0]!r} is none of the classes given: add it to their names.")
        y = torch.tensor([place[label] for label in labels], device=x.device)
        counts = torch.bincount(y, minlength=len(known)).tolist()
        if 0 in counts:
            raise UserError(f"class '{known[counts.index(0)]}' has no picture to learn from: add one.")
        check_weights({**self.params, **self.buffers}, self.source)
        way = self.way(len(known))
        with torch.no_grad():
            state = way.learner.adapt(self.params, self.buffers, x, y)
        return Adapted(self, known, state, counts)


class Adapted(NamedTuple):
    """A predictor that has learned some classes.

    Attributes:
        predictor: what it was before.
        names: the classes, in the order of the probabilities.
        state: what the learner made of the pictures.
        counts: how many pictures each class was learned from; ``None`` where nobody wrote it down.
    """

    predictor: Predictor
    names: list[Any]
    state: Any
    counts: list[int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copies: the state by its tensors, whatever its type."""
        packed = pack_state(self.state, self.predictor.params, self.predictor.buffers)
        return _readapted, (self.predictor, self.names, *packed, self.counts)

    @property
    def method(self) -> str:
        """How it learned them, in words."""
        return self.predictor.way(len(self.names)).words

    def probabilities(self, pictures: Any) -> NDArray[np.float64]:
        """``(n, ways)``: each picture on its own, or all together where the norm policy says so."""
        learner, ways = self.predictor.way(len(self.names)).learner, len(self.names)

        def soft(x: Tensor) -> Tensor:
            return learner.predict(self.state, x)[0][:, :ways].double().softmax(-1)

        made = in_parts(soft, self.predictor.batch(pictures), self.predictor.network.norm)
        check_numbers(made, self.predictor.source)
        return made.cpu().numpy()

    def predict(self, pictures: Any, unsure_below: float = UNSURE_BELOW) -> Prediction:
        """The most probable class of each picture; less probable ones than ``unsure_below`` are unsure."""
        made = self.probabilities(pictures)
        places, confidence, unsure = labelled(torch.from_numpy(made), unsure_below)
        return Prediction([self.names[i] for i in places], confidence, unsure, made)


def _rebuilt(
    outputs: int, recipe: Recipe, params: Params, buffers: Buffers, look: Look, source: str, weights: str
) -> Predictor:
    return Predictor(recipe, network_for(recipe, look, outputs), params, buffers, look, source, weights)


def _readapted(
    predictor: Predictor, names: list[Any], fields: Fields, tensors: Params, counts: list[int] | None
) -> Adapted:
    state = unpack_state(fields, tensors, predictor.params, predictor.buffers)
    return Adapted(predictor, names, state, counts)


def predict_arrays(
    predictor: Predictor,
    support: Any,
    labels: Sequence[Any] | NDArray[Any],
    queries: Any,
    unsure_below: float = UNSURE_BELOW,
) -> Prediction:
    """Labels pictures from a few labelled ones.

    Args:
        predictor: a trained network.
        support: pictures to learn from, ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)``, uint8 or floats
            in 0…1, of the size that training saw; or file names, which are brought to it.
        labels: their labels.
        queries: pictures to be labelled.
        unsure_below: predictions less probable than this are marked unsure.
    """
    return predictor.adapt(support, list_labels(labels)).predict(queries, unsure_below)


def list_labels(labels: Any) -> list[Any]:
    """Labels as a list of plain values, from a list, an array or a tensor."""
    return list(labels.tolist() if hasattr(labels, "tolist") else labels)
