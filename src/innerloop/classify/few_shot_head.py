"""``FewShotHead``: the batched heads on features of any kind, as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from innerloop.classify.cross_validation import CurvePoint, class_means, copies_of, learning_curve
from innerloop.classify.heads import HeadSettings, tempered_head
from innerloop.classify.sureness import ExpectedAccuracy, Novelty, Sureness, sureness_of
from innerloop.evaluation.heads import check_head, head_scores

Array = NDArray[Any]


class FewShotHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classes from a few rows of features each, with an honest word on how sure that is.

    ``fit`` solves a head to its minimum, judges every example by heads that have not seen it, and fits one
    temperature to what they said, so that ``predict_proba`` means what it says. The label does not depend on
    the temperature.

    Args:
        head: ``logistic``, ``svm``, ``svc``, ``ridge``, ``centroid`` or ``cosine``.
        C: inverse penalty of the first four.
        normalise: divide features by their norm first, as suits features of networks.
        calibrate: whether to fit the temperature; without, ``fit`` judges nothing either.
        false_alarms: the share of pictures of the classes that :meth:`unknown` may call unknown.
        seed: of how examples are left out.

    Attributes:
        classes_: labels, sorted.
        temperature_: what scores are divided by.
        expected_: accuracy that new examples like these will see, with intervals, by class, and the pairs
            that are confused; rows that are equal are left out together, and classes of one are
            ``untested``. None where no class has two examples.
        novelty_: the distance at which "far from every class" begins; None likewise.

    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 5)
    >>> X = rng.normal(size=(10, 8)) + np.where(y == "cat", 3, -3)[:, None]
    >>> model = FewShotHead().fit(X, y)
    >>> model.predict(X[[0, 9]]).tolist(), model.expected_.accuracy.value
    (['cat', 'dog'], 1.0)
    """

    def __init__(
        self,
        head: str = "logistic",
        *,
        C: float = 1.0,
        normalise: bool = True,
        calibrate: bool = True,
        false_alarms: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.head, self.C, self.normalise = head, C, normalise
        self.calibrate, self.false_alarms, self.seed = calibrate, false_alarms, seed

    def fit(self, X: Any, y: Any) -> Self:
        """Learns the classes of ``y`` from rows of features ``X``, and forgets all others."""
        X, y = validate_data(self, X, y, dtype=np.float64, copy=True)  # torch wants to own it
        check_classification_targets(y)
        return self._learn(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learns more examples, of new classes too, and keeps the old ones: the head is solved anew for all.

        Args:
            X: features.
            y: labels.
            classes: ignored; there for scikit-learn's interface. A class is known once it has an example.
        """
        del classes
        known = hasattr(self, "examples_")
        X, y = validate_data(self, X, y, dtype=np.float64, reset=not known, copy=True)
        check_classification_targets(y)
        if not known:
            return self._learn(X, y)
        return self._learn(np.concatenate([self.examples_, X]), np.concatenate([self.labels_, y]))

    def _learn(self, X: Array, y: Array) -> Self:
        check_head(self.head)
        classes, places = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"only one class, {classes[0]!r}: add examples of at least one other class.")
        self.examples_, self.labels_, self.classes_ = X, y, classes
        z, labels = torch.from_numpy(X), torch.from_numpy(places.astype(np.int64))
        self._fitted = tempered_head(z, labels, len(classes), self.head, self.C, self.normalise)
        self._places = labels
        self._sureness = self._assured(z, labels)
        self.temperature_: float = self._sureness.temperature
        self.expected_: ExpectedAccuracy | None = self._sureness.expected
        self.novelty_: Novelty | None = self._sureness.novelty
        return self

    def _assured(self, z: Tensor, labels: Tensor) -> Sureness:
        names = self.classes_.tolist()
        if not self.calibrate:
            return Sureness(1.0, None, None, class_means(z, labels, len(names)))
        return sureness_of(
            z, labels, names, self._settings(), self.seed, self.false_alarms, copies_of(z, labels)
        )

    def _settings(self) -> HeadSettings:
        return HeadSettings(self.head, self.C, self.normalise)

    def _features(self, X: Any) -> Tensor:
        check_is_fitted(self, "classes_")
        return torch.from_numpy(validate_data(self, X, dtype=np.float64, reset=False, copy=True))

    def _scores(self, X: Any) -> Tensor:
        z = self._features(X)[None]
        return head_scores(self._fitted, z, self.normalise)[0].double() / self.temperature_

    def decision_function(self, X: Any) -> Array:
        """Scores ``(n, classes)``; of two classes, the second's less the first's."""
        made: Array = self._scores(X).numpy()
        return made[:, 1] - made[:, 0] if made.shape[1] == 2 else made

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, in the order of ``classes_``."""
        made: Array = self._scores(X).softmax(-1).numpy()
        return made

    def predict(self, X: Any) -> Array:
        """The most probable class of every row."""
        best = self._scores(X).argmax(-1).numpy()
        made: Array = self.classes_[best]
        return made

    def unknown(self, X: Any) -> Array:
        """Which rows are farther from every class than examples are from theirs: perhaps of none of them.

        Of rows that do belong to the classes, at most a share ``novelty_.false_alarms`` is called so.

        Raises:
            ValueError: no class has two examples, or nothing was judged.
        """
        z = self._features(X)
        if self.novelty_ is None:
            raise ValueError(
                "two or more examples of a class are needed to say what is far from it: add some."
            )
        made: Array = self._sureness.far(z).numpy()
        return made

    def learning_curve(self) -> list[CurvePoint]:
        """Accuracy with 1, 2, 4 … of the examples of every class, on the others."""
        check_is_fitted(self, "classes_")
        z = torch.from_numpy(self.examples_)
        copies = copies_of(z, self._places)
        return learning_curve(z, self._places, len(self.classes_), self._settings(), self.seed, copies=copies)
