"""From examples to labels: a network with given weights that learns classes from a few pictures.

The command and the estimator are fronts of this, so that they give the same probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.classify.backbones import Backbone, pack_backbone, unpack_backbone
from innerloop.classify.cross_validation import CurvePoint, HeldOut, copies_of, hold_out, learning_curve
from innerloop.classify.features import extract
from innerloop.classify.heads import (
    Adaptation,
    FittedHead,
    HeadSettings,
    check_numbers,
    check_weights,
    in_parts,
    method_for,
    pack_state,
    tempered_head,
    unpack_state,
)
from innerloop.classify.inputs import batch_of, place_labels, prepare_pictures
from innerloop.classify.sureness import Sureness, sureness_of
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from innerloop.data.folder import refuse_two_labels
from innerloop.data.pictures import Progress, silent
from innerloop.evaluation.features import CACHEABLE
from innerloop.evaluation.heads import HEADS, head_scores
from innerloop.experiment.data import Sizes
from innerloop.experiment.model import build_network
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.results import UNSURE_BELOW
from innerloop.nets.network import Network
from innerloop.solvers.problems import Linear
from innerloop.tasks.loading import standardiser


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


class Classifier(NamedTuple):
    """Classes: the settings that they were learned by, what became of the examples, and how sure that is."""

    names: list[Any]
    head: HeadSettings
    state: Any
    counts: list[int]
    examples: Examples | None = None
    sureness: Sureness | None = None


class Predictor(NamedTuple):
    """A network that learns classes of pictures from a few examples and labels others.

    Attributes:
        backbone: the network, its weights and what pictures go through before.
        head: how it learns classes.
        source: where it comes from, for messages.
        recipe: how it was trained, and so how it adapts itself; None for published weights, whose features
            are computed once and kept.
        classes: what it has learned; None before :meth:`fit`.
        arguments: of the ``FewShotClassifier`` that was saved.
    """

    backbone: Backbone
    head: HeadSettings
    source: str
    recipe: Recipe | None = None
    classes: Classifier | None = None
    arguments: dict[str, Any] = {}  # noqa: RUF012

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copies: a network is made of functions, which are made anew."""
        if self.recipe is None:
            network: Any = pack_backbone(self.backbone)
        else:
            network = (self.outputs, self.backbone._replace(network=None))  # type: ignore[arg-type]
        state, classes = None, self.classes
        if classes is not None:
            state = pack_state(classes.state, self.backbone.params, self.backbone.buffers)
            classes = classes._replace(state=None)
        return _restored, (network, tuple(self[1:4]), classes, state, self.arguments)

    def __repr__(self) -> str:
        return f"<network of {self.source}>"

    @property
    def network(self) -> Network:
        """The network itself."""
        return self.backbone.network

    @property
    def outputs(self) -> int:
        """How many classes its own last layer can tell apart."""
        return int(self._last_layer.shape[0])

    @property
    def dtype(self) -> torch.dtype:
        """The floating point type that it computes in."""
        return self._last_layer.dtype

    @property
    def _last_layer(self) -> Tensor:
        return self.backbone.params[self.network.head_names[0]]

    @property
    def unsure_below(self) -> float:
        """Below which probability it calls itself unsure, as it was saved."""
        return float(self.arguments.get("unsure_below", UNSURE_BELOW))

    # before classes are learned

    def method(self, ways: int) -> Adaptation:
        """How it learns this many classes."""
        return method_for(self.head, self.recipe, self.network, ways, self.outputs, self.source)

    def batch(self, pictures: Any) -> Tensor:
        """Pictures as the network wants them: files are brought to its size, arrays must have it.

        For published weights they are brought to its size, whatever they are.
        """
        how = self.backbone.preprocessing
        if self.recipe is None:
            return self.backbone.standardised(prepare_pictures(pictures, how), self.dtype)
        device = self._last_layer.device
        return self.scale(device)(batch_of(pictures, how, self.dtype).to(device))

    def scale(self, device: torch.device | str = "cpu") -> Callable[[Tensor], Tensor]:
        """The scaling that training used: a function of pictures in 0…1."""
        how = self.backbone.preprocessing
        return standardiser(how.mean, how.std, self.dtype, device)

    @property
    def alone(self) -> bool:
        """Whether a picture's features do not depend on its neighbours."""
        return self.network.norm in CACHEABLE

    def features(self, pictures: Any, progress: Progress = silent) -> Tensor:
        """Features ``(n, d)`` of pictures that are each seen on their own."""
        if self.recipe is None:
            return torch.from_numpy(extract(self.backbone, pictures, progress=progress).values)
        return in_parts(self.forward(), self.batch(pictures), self.network.norm).cpu()

    def forward(self) -> Callable[[Tensor], Tensor]:
        """From what the network sees to features."""
        if self.recipe is None:
            return self.backbone.forward()
        network, params, buffers = self.network, self.backbone.params, self.backbone.buffers
        return lambda x: network.features(params, buffers, x, "stored")[0].flatten(1)

    def fit(
        self,
        pictures: Any,
        labels: Sequence[Any],
        names: Sequence[Any] | None = None,
        *,
        calibrate: bool = True,
        progress: Progress = silent,
    ) -> Predictor:
        """Learns classes from labelled pictures, and forgets all others.

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
        y = place_labels(labels, known)
        counts = torch.bincount(y, minlength=len(known)).tolist()
        if 0 in counts:
            raise UserError(f"class '{known[counts.index(0)]}' has no picture to learn from: add one.")
        refuse_two_labels(pictures, labels)
        params, buffers = self.backbone.params, self.backbone.buffers
        check_weights({**params, **buffers}, self.source)
        method = self.method(len(known))
        if method.head and self.alone:
            z = self.features(pictures, progress)
            _check_lengths(z, labels)
            return self.fit_features(z, y, known, calibrate)
        x = self.batch(pictures)
        _check_lengths(x, labels)
        with torch.no_grad():
            state = method.learner.adapt(params, buffers, x, y.to(x.device))
        return self._replace(classes=Classifier(known, self.head, state, counts))

    def fit_more(
        self,
        known: Classifier,
        pictures: Any,
        labels: Sequence[Any],
        names: list[Any],
        calibrate: bool = True,
        progress: Progress = silent,
    ) -> Predictor:
        """Learns classes from examples that it has features of, and from more pictures.

        Args:
            known: classes with their examples.
            pictures: more examples.
            labels: one for each.
            names: the classes of all of them, in order.
            calibrate: whether to look how sure it is.
            progress: told how many features are computed.

        Raises:
            UserError: the classes were learned without features, or the labels do not fit.
        """
        if known.examples is None:
            raise UserError(
                "partial_fit keeps features of examples, which only heads on features have: set "
                "head='logistic' and fit again, or fit all examples at once."
            )
        more = self.features(pictures, progress)
        _check_lengths(more, labels)
        before = [known.names[i] for i in known.examples.y.tolist()]
        y = place_labels([*before, *labels], names)
        return self.fit_features(torch.cat([known.examples.z, more]), y, names, calibrate)

    def fit_features(self, z: Tensor, y: Tensor, names: list[Any], calibrate: bool = True) -> Predictor:
        """Learns classes from features of examples, and how sure that is.

        Args:
            z: features ``(n, d)``, as :meth:`features` gives them.
            y: their classes, places in ``names``; each has an example.
            names: of the classes.
            calibrate: whether to look how sure it is.
        """
        head = self.head._replace(kind=str(self.method(len(names)).head))
        fitted = tempered_head(z, y, len(names), head.kind, head.C, head.normalise)
        state = FittedHead(fitted.weights[0], fitted.bias[0], self.backbone.params, self.backbone.buffers)
        sure = None
        if calibrate:
            copies = copies_of(z, y, pictures=self.recipe is None)
            sure = sureness_of(z, y, names, head, head.seed, copies=copies)
        counts = torch.bincount(y, minlength=len(names)).tolist()
        return self._replace(classes=Classifier(names, self.head, state, counts, Examples(z, y), sure))

    # once classes are learned

    @property
    def learned(self) -> Classifier:
        """The classes, which must have been learned."""
        if self.classes is None:
            raise UserError(
                f"{self.source} has not learned your classes yet: add --support DIR, a folder with "
                "one folder of labelled pictures per class."
            )
        return self.classes

    @property
    def learned_by(self) -> Adaptation:
        """How the classes were learned."""
        classes = self.learned
        return self._replace(head=classes.head).method(len(classes.names))

    @property
    def learned_head(self) -> HeadSettings:
        """The settings of the head on features that the classes were learned by."""
        return self.learned.head._replace(kind=str(self.learned_by.head))

    @property
    def copies(self) -> Tensor | None:
        """The first copy of every example, where it has learned from features."""
        examples = self.learned.examples
        return None if examples is None else copies_of(*examples, pictures=self.recipe is None)

    @property
    def temperature(self) -> float:
        """What logits are divided by before a softmax makes probabilities of them."""
        sure = self.learned.sureness
        return 1.0 if sure is None else sure.temperature

    def hold_out(self) -> HeldOut | None:
        """What heads said of examples that they had not seen, as when it learned; None if nobody looked."""
        classes = self.learned
        if classes.examples is None or classes.sureness is None:
            return None
        head = self.learned_head
        return hold_out(*classes.examples, len(classes.names), head, head.seed, self.copies)

    def learning_curve(self, seed: int = 0) -> list[CurvePoint]:
        """Accuracy with 1, 2, 4 … of the examples of every class, on the others; nothing without features."""
        classes = self.learned
        if classes.examples is None:
            return []
        return learning_curve(
            *classes.examples, len(classes.names), self.learned_head, seed, copies=self.copies
        )

    def probabilities(self, pictures: Any) -> NDArray[np.float64]:
        """``(n, ways)``: each picture on its own, or all together where the norm policy says so."""
        return self._judge(pictures)[0].numpy()

    def _judge(self, pictures: Any, progress: Progress = silent) -> tuple[Tensor, Tensor]:
        """Probabilities, and which pictures are far from every class."""
        classes, method = self.learned, self.learned_by
        if method.head and self.alone:
            z = self.features(pictures, progress)
            made = (self.logits(z) / self.temperature).softmax(-1)
            sure = classes.sureness
            far = torch.zeros(len(z), dtype=torch.bool) if sure is None else sure.far(z)
        else:

            def soft(x: Tensor) -> Tensor:
                """Probabilities of some pictures."""
                scores = method.learner.predict(classes.state, x)[0]
                return scores[:, : len(classes.names)].double().softmax(-1)

            made = in_parts(soft, self.batch(pictures), self.network.norm).cpu()
            far = torch.zeros(len(made), dtype=torch.bool)
        check_numbers(made, self.source)
        return made, far

    def logits(self, z: Tensor) -> Tensor:
        """Scores ``(n, ways)`` of features ``(n, d)`` by the head on them, before the temperature."""
        head, state = self.learned_head, self.learned.state
        fitted = Linear(state.weight[None], state.bias[None], pairs=HEADS[head.kind].pairs)
        return head_scores(fitted, z[None].double(), head.normalise)[0].double()

    def predict(
        self, pictures: Any, unsure_below: float | None = None, progress: Progress = silent
    ) -> Prediction:
        """The most probable class of each picture.

        Args:
            pictures: as in :meth:`fit`.
            unsure_below: labels less probable than this are unsure, as are pictures that are unknown; by
                default as it was saved, else 0.5.
            progress: told how many features are computed.
        """
        made, far = self._judge(pictures, progress)
        limit = self.unsure_below if unsure_below is None else unsure_below
        best, unknown, names = made.max(-1), far.tolist(), self.learned.names
        confidence: list[float] = best.values.tolist()
        unsure = [p < limit or is_far for p, is_far in zip(confidence, unknown, strict=True)]
        return Prediction(
            [names[i] for i in best.indices.tolist()], confidence, unsure, made.numpy(), unknown
        )


def _restored(network: Any, fields: Any, classes: Classifier | None, state: Any, arguments: Any) -> Predictor:
    """What :meth:`Predictor.__reduce__` took apart."""
    head, source, recipe = fields
    if recipe is None:
        about, tensors = network
        backbone = unpack_backbone(about, tensors, source, trust=True)  # was open when it was pickled
    else:
        outputs, backbone = network
        backbone = backbone._replace(network=network_for(recipe, backbone.preprocessing, outputs))
    if classes is not None:
        kept, tensors = state
        classes = classes._replace(state=unpack_state(kept, tensors, backbone.params, backbone.buffers))
    return Predictor(backbone, head, source, recipe, classes, arguments)


def pretrained_predictor(backbone: Backbone, head: HeadSettings) -> Predictor:
    """A backbone with published weights."""
    return Predictor(backbone, head, backbone.name)


def sizes_for(how: Preprocessing, outputs: int, classes: int = 1) -> Sizes:
    """What pictures of this shape ask of a network; ``classes`` are those of the training."""
    side, _, channels = how.shape  # features of a Conv4 take any width, and its head is not used then
    return Sizes((channels, side, side), outputs, outputs, classes, labels=True)


def network_for(recipe: Recipe, how: Preprocessing, outputs: int) -> Network:
    """The network of a recipe for such pictures, with as many outputs as it was trained with."""
    model = recipe.model.model_copy(update={"outputs": None})
    return build_network(recipe.model_copy(update={"model": model}), sizes_for(how, outputs))


def _check_lengths(pictures: Tensor, labels: Sequence[Any]) -> None:
    """Refuses labels that are not one for each picture."""
    if len(pictures) != len(labels):
        raise UserError(f"adapt got {len(pictures)} pictures but {len(labels)} labels: give one label each.")
