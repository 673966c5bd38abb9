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

from innerloop.classify.backbones import Backbone, packed_backbone, unpacked_backbone
from innerloop.classify.features import extract
from innerloop.classify.heads import Fields, Way, pack_state, unpack_state, way_to_adapt
from innerloop.classify.items import Look, check_lengths, list_labels, listed, places_of
from innerloop.classify.left_out import Way as HeadWay
from innerloop.classify.left_out import copies_of
from innerloop.classify.sureness import Sureness, sureness_of
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.data.folder_look import refuse_two_labels
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.preparing import prepare
from innerloop.evaluation.features import CACHEABLE
from innerloop.evaluation.heads import HEADS, head_scores
from innerloop.evaluation.labelling import (
    FittedHead,
    check_numbers,
    check_weights,
    in_parts,
    labelled,
    tempered_head,
)
from innerloop.experiment.model import build_network
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.sizes import Sizes
from innerloop.nets.network import Network
from innerloop.solvers.problems import Linear


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
        backbone: the same network as one whose features are computed once and kept, if it came pretrained.
    """

    recipe: Recipe
    network: Network
    params: Params
    buffers: Buffers
    look: Look
    source: str
    weights: str = ""
    backbone: Backbone | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copies: a network is made of functions, which are made anew."""
        if self.backbone is not None:
            return _reopened, (*packed_backbone(self.backbone), self.recipe, self.source)
        return _rebuilt, (self.outputs, self.recipe, self.params, self.buffers, *self[4:7])

    def __repr__(self) -> str:
        return f"<network of {self.source}>"

    @property
    def outputs(self) -> int:
        """How many classes its own last layer can tell apart."""
        return int(self.params[self.network.head_names[0]].shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """The floating point type that it computes in."""
        return self.params[self.network.head_names[0]].dtype

    def way(self, ways: int) -> Way:
        """How it learns this many classes."""
        return way_to_adapt(self.recipe, self.network, ways, self.outputs, self.source)

    def batch(self, pictures: Any) -> Tensor:
        """Pictures as the network wants them: see :meth:`innerloop.classify.items.Look.bright`.

        For a pretrained backbone they are brought to its size, whatever they are.
        """
        if self.backbone is not None:
            ready = [prepare(item.picture(), self.backbone.preprocessing) for item in listed(pictures)]
            return self.backbone.standardised(np.stack(ready), self.dtype)
        device = self.params[self.network.head_names[0]].device
        return self.look.batch(pictures, self.dtype, device)

    @property
    def alone(self) -> bool:
        """Whether a picture's features do not depend on its neighbours."""
        return self.network.norm in CACHEABLE

    def features(self, pictures: Any, progress: Progress = silent) -> Tensor:
        """Features ``(n, d)`` of pictures that are each seen on their own."""
        if self.backbone is not None:
            return torch.from_numpy(extract(self.backbone, pictures, progress=progress).values)

        def stored(x: Tensor) -> Tensor:
            """Features with the norm layers' stored statistics."""
            return self.network.features(self.params, self.buffers, x, "stored")[0].flatten(1)

        return in_parts(stored, self.batch(pictures), self.network.norm).cpu()

    def adapt(
        self,
        pictures: Any,
        labels: Sequence[Any],
        names: Sequence[Any] | None = None,
        *,
        calibrate: bool = True,
        progress: Progress = silent,
    ) -> Adapted:
        """Learns classes from labelled pictures.

        Args:
            pictures: arrays, tensors or file names, as :meth:`batch` takes them.
            labels: one for each picture.
            names: the classes in order; by default the labels that there are, sorted as text.
            calibrate: whether a head is also judged on examples that it has not seen, for its sureness.
            progress: told how many features are computed, where they are those of a backbone.

        Raises:
            UserError: the labels do not fit the pictures, or there are too few or too many classes.
        """
        known = sorted(set(labels), key=str) if names is None else list(names)
        if len(known) < 2:
            raise UserError("adapting needs pictures of at least two classes: add some of another class.")
        y = places_of(labels, known)
        counts = torch.bincount(y, minlength=len(known)).tolist()
        if 0 in counts:
            raise UserError(f"class '{known[counts.index(0)]}' has no picture to learn from: add one.")
        refuse_two_labels(pictures, labels)
        check_weights({**self.params, **self.buffers}, self.source)
        way = self.way(len(known))
        seen = self.features(pictures, progress) if way.head and self.alone else self.batch(pictures)
        check_lengths(seen, labels)
        if way.head and self.alone:
            return self.fit_head(seen, y, known, calibrate)
        with torch.no_grad():
            state = way.learner.adapt(self.params, self.buffers, seen, y.to(seen.device))
        return Adapted(self, known, state, counts)

    def adapt_more(
        self,
        known: Tensor,
        known_labels: Sequence[Any],
        pictures: Any,
        labels: Sequence[Any],
        names: list[Any],
        calibrate: bool = True,
        progress: Progress = silent,
    ) -> Adapted:
        """Learns classes from features of examples and from more pictures.

        Args:
            known: features of examples.
            known_labels: one for each.
            pictures: more examples.
            labels: one for each.
            names: the classes of all of them, in order.
            calibrate: whether to look how sure it is.
            progress: told how many features are computed.
        """
        more = self.features(pictures, progress)
        check_lengths(more, labels)
        y = places_of([*known_labels, *labels], names)
        return self.fit_head(torch.cat([known, more]), y, names, calibrate)

    def fit_head(self, z: Tensor, y: Tensor, names: list[Any], calibrate: bool = True) -> Adapted:
        """Learns classes from features of examples, and how sure that is.

        Args:
            z: features ``(n, d)``, as :meth:`features` gives them.
            y: their classes, places in ``names``; each has an example.
            names: of the classes.
            calibrate: whether to look how sure it is.
        """
        head, wanted = str(self.way(len(names)).head), self.recipe.eval
        way = HeadWay(head, wanted.C, wanted.normalise_features)
        fitted = tempered_head(z, y, len(names), *way)
        state = FittedHead(fitted.weights[0], fitted.bias[0], self.params, self.buffers)
        sure = None
        if calibrate:
            copies = copies_of(z, y, pictures=self.backbone is not None)
            sure = sureness_of(z, y, names, way, self.recipe.run.seed, copies=copies)
        counts = torch.bincount(y, minlength=len(names)).tolist()
        return Adapted(self, names, state, counts, Examples(z, y), sure)


def _rebuilt(
    outputs: int,
    recipe: Recipe,
    params: Params,
    buffers: Buffers,
    look: Look,
    source: str,
    weights: str,
) -> Predictor:
    return Predictor(recipe, network_for(recipe, look, outputs), params, buffers, look, source, weights)


def _reopened(about: dict[str, Any], tensors: dict[str, Tensor], recipe: Recipe, source: str) -> Predictor:
    backbone = unpacked_backbone(about, tensors, source, trust=True)  # was open when it was pickled
    return of_backbone(backbone, recipe)._replace(source=source)


def of_backbone(backbone: Backbone, recipe: Recipe) -> Predictor:
    """A pretrained backbone as a predictor."""
    how = backbone.preprocessing
    return Predictor(
        recipe,
        backbone.network,
        backbone.params,
        backbone.buffers,
        Look(how.shape, *how.scale()),
        backbone.name,
        backbone.weights,
        backbone,
    )


UNSURE_BELOW = 0.5


class Prediction(NamedTuple):
    """What is said of pictures.

    Attributes:
        labels: the most probable class of each.
        confidence: how probable that is.
        unsure: where it is not probable enough to be believed, or the picture is unknown.
        probabilities: of all classes, ``(n, ways)``.
        unknown: where the picture is far from every class, and perhaps of none of them.
    """

    labels: list[Any]
    confidence: list[float]
    unsure: list[bool]
    probabilities: NDArray[np.float64]
    unknown: list[bool]


class Examples(NamedTuple):
    """What classes were learned from: features ``(n, d)``, and the place of the class of each."""

    z: Tensor
    y: Tensor


class Adapted(NamedTuple):
    """A predictor that has learned some classes."""

    predictor: Predictor
    names: list[Any]
    state: Any
    counts: list[int] | None = None
    examples: Examples | None = None
    sureness: Sureness | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copies: the state by its tensors, whatever its type."""
        packed = pack_state(self.state, self.predictor.params, self.predictor.buffers)
        return _readapted, (self.predictor, self.names, *packed, *self[3:])

    @property
    def method(self) -> str:
        """How it learned them, in words."""
        return self.predictor.way(len(self.names)).words

    @property
    def copies(self) -> Tensor | None:
        """The first copy of every example, where it has learned from features."""
        if self.examples is None:
            return None
        return copies_of(*self.examples, pictures=self.predictor.backbone is not None)

    @property
    def temperature(self) -> float:
        """What logits are divided by before a softmax makes probabilities of them."""
        return 1.0 if self.sureness is None else self.sureness.temperature

    def probabilities(self, pictures: Any) -> NDArray[np.float64]:
        """``(n, ways)``: each picture on its own, or all together where the norm policy says so."""
        return self._judged(pictures)[0].numpy()

    def _judged(self, pictures: Any, progress: Progress = silent) -> tuple[Tensor, Tensor]:
        """Probabilities, and which pictures are far from every class."""
        predictor, ways = self.predictor, len(self.names)
        way = predictor.way(ways)
        if way.head and predictor.alone:
            z = predictor.features(pictures, progress)
            made = (self.logits(z) / self.temperature).softmax(-1)
            far = torch.zeros(len(z), dtype=torch.bool) if self.sureness is None else self.sureness.far(z)
        else:

            def soft(x: Tensor) -> Tensor:
                """Probabilities of some pictures."""
                return way.learner.predict(self.state, x)[0][:, :ways].double().softmax(-1)

            made = in_parts(soft, predictor.batch(pictures), predictor.network.norm).cpu()
            far = torch.zeros(len(made), dtype=torch.bool)
        check_numbers(made, predictor.source)
        return made, far

    def logits(self, z: Tensor) -> Tensor:
        """Scores ``(n, ways)`` of features ``(n, d)`` by the head on them, before the temperature."""
        predictor = self.predictor
        head = HEADS[str(predictor.way(len(self.names)).head)]
        fitted = Linear(self.state.weight[None], self.state.bias[None], pairs=head.pairs)
        return head_scores(fitted, z[None].double(), predictor.recipe.eval.normalise_features)[0].double()

    def predict(
        self, pictures: Any, unsure_below: float = UNSURE_BELOW, progress: Progress = silent
    ) -> Prediction:
        """The most probable class of each picture.

        Unsure if less probable than ``unsure_below``, or unknown.
        """
        made, far = self._judged(pictures, progress)
        places, confidence, improbable = labelled(made, unsure_below)
        unknown = far.tolist()
        unsure = [a or b for a, b in zip(improbable, unknown, strict=True)]
        return Prediction([self.names[i] for i in places], confidence, unsure, made.numpy(), unknown)


def _readapted(
    predictor: Predictor, names: list[Any], fields: Fields, tensors: Params, *more: Any
) -> Adapted:
    state = unpack_state(fields, tensors, predictor.params, predictor.buffers)
    return Adapted(predictor, names, state, *more)


def sizes_for(look: Look, outputs: int, classes: int = 1) -> Sizes:
    """What pictures of this look ask of a network; ``classes`` are those of the training."""
    side, _, channels = look.shape  # features of a Conv4 take any width, and its head is not used then
    return Sizes((channels, side, side), outputs, outputs, classes, labels=True)


def network_for(recipe: Recipe, look: Look, outputs: int) -> Network:
    """The network of a recipe for pictures of this look, with as many outputs as it was trained with."""
    model = recipe.model.model_copy(update={"outputs": None})
    return build_network(recipe.model_copy(update={"model": model}), sizes_for(look, outputs))


def predict_arrays(
    predictor: Predictor,
    support: Any,
    labels: Sequence[Any] | NDArray[Any],
    queries: Any,
    unsure_below: float = UNSURE_BELOW,
) -> Prediction:
    """Labels pictures from a few labelled ones."""
    return predictor.adapt(support, list_labels(labels)).predict(queries, unsure_below)
