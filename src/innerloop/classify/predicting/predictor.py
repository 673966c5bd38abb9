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

from innerloop.classify.features.backbone import Backbone
from innerloop.classify.features.extracting import extract
from innerloop.classify.features.files import packed_backbone, unpacked_backbone
from innerloop.classify.features.items import listed
from innerloop.classify.predicting.adaptation import Way, way_to_adapt
from innerloop.classify.predicting.adapted import UNSURE_BELOW, Adapted, Examples, Prediction
from innerloop.classify.predicting.labels import check_lengths, list_labels, places_of
from innerloop.classify.predicting.network import network_for
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params
from innerloop.data.folder_look import refuse_two_labels
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.preparing import prepare
from innerloop.evaluation.features import CACHEABLE
from innerloop.evaluation.labelling import FittedHead, check_weights, in_parts, tempered_head
from innerloop.evaluation.sureness.assured import sureness_of
from innerloop.evaluation.sureness.copies import copies_of
from innerloop.evaluation.sureness.heldout import Way as HeadWay
from innerloop.experiment.look import Look
from innerloop.experiment.recipe.schema import Recipe
from innerloop.nets.network import Network


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
        """Pictures as the network wants them: see :meth:`innerloop.experiment.look.Look.bright`.

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


def predict_arrays(
    predictor: Predictor,
    support: Any,
    labels: Sequence[Any] | NDArray[Any],
    queries: Any,
    unsure_below: float = UNSURE_BELOW,
) -> Prediction:
    """Labels pictures from a few labelled ones."""
    return predictor.adapt(support, list_labels(labels)).predict(queries, unsure_below)
