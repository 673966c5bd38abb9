"""What a predictor has learned from examples, and what it says of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innerloop.classify.predicting.adaptation import Fields, pack_state, unpack_state
from innerloop.core.types import Params
from innerloop.data.layouts.layout import Progress, silent
from innerloop.evaluation.heads import HEADS, head_scores
from innerloop.evaluation.labelling import check_numbers, in_parts, labelled
from innerloop.evaluation.sureness.assured import Sureness
from innerloop.evaluation.sureness.copies import copies_of
from innerloop.solvers.problems import Linear

if TYPE_CHECKING:
    from innerloop.classify.predicting.predictor import Predictor

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
