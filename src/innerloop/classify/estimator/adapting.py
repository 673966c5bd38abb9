"""What ``FewShotClassifier`` is built on: its arguments, the predictor that they make, what was adapted."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from innerloop.classify.features.backbone import Backbone
from innerloop.classify.features.opening import open_backbone
from innerloop.classify.features.progress import TimeLeft
from innerloop.classify.predicting.adapted import UNSURE_BELOW, Adapted
from innerloop.classify.predicting.labels import label_array
from innerloop.classify.predicting.predict import BACKBONE
from innerloop.classify.predicting.predictor import Predictor, of_backbone
from innerloop.classify.predicting.told import copies_told
from innerloop.core.errors import UserError
from innerloop.core.telling import tell
from innerloop.data.layouts.layout import Progress, silent
from innerloop.evaluation.heads import check_head
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.evaluation.sureness.words import copies_lines
from innerloop.experiment.classifier_recipe import backbone_recipe, with_adaptation

OTHER_HEADS = ("learner", FINE_TUNING)


class NotReadyError(UserError, NotFittedError):  # type: ignore[misc]
    """It has learned no classes yet; scikit-learn knows it as ``NotFittedError``."""


class AdaptingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that adapts a predictor; its arguments are those of ``FewShotClassifier``."""

    def __init__(
        self,
        backbone: str | Backbone | Predictor = BACKBONE,
        head: str = "logistic",
        *,
        C: float = 1.0,
        normalise: bool = True,
        calibrate: bool = True,
        unsure_below: float = UNSURE_BELOW,
        seed: int = 0,
        verbose: bool = True,
    ) -> None:
        self.backbone, self.head, self.C, self.normalise = backbone, head, C, normalise
        self.calibrate, self.unsure_below, self.seed, self.verbose = calibrate, unsure_below, seed, verbose

    def __sklearn_is_fitted__(self) -> bool:
        """For scikit-learn."""
        return hasattr(self, "adapted_")

    def _keep(self, adapted: Adapted) -> None:
        self.adapted_ = adapted
        self.classes_ = label_array(adapted.names)

    def _warn_of_copies(self, X: Any = ()) -> None:
        """Names the files of examples that look like copies of one picture, or their numbers."""
        files = list(X) if isinstance(X, list | tuple) and all(isinstance(x, str | Path) for x in X) else []
        told = [copies._asdict() for copies in copies_told(self.adapted_, files)]
        for line in copies_lines(told):
            warnings.warn(line.removeprefix("warning: "), UserWarning, stacklevel=3)

    def _forget(self) -> None:
        for name in ("adapted_", "classes_"):
            if hasattr(self, name):
                delattr(self, name)

    def _arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name != "backbone"}

    def _progress(self, unit: str = "pictures") -> Progress:
        return TimeLeft(_say, unit=unit) if self.verbose else silent

    def _predictor(self) -> Predictor:
        """The network, adapting as the arguments say now."""
        self._check_head()
        if isinstance(self.backbone, Predictor):
            recipe = with_adaptation(self.backbone.recipe, self._arguments())
            return self.backbone._replace(recipe=recipe)
        known = vars(self).get("_opened")
        if known is None or known[0] != self.backbone:
            given = self.backbone
            known = self._opened = (given, open_backbone(given) if isinstance(given, str) else given)
        return of_backbone(known[1], backbone_recipe(known[1].name, self._arguments()))

    def _adapted(self) -> Adapted:
        if not hasattr(self, "adapted_"):
            raise NotReadyError("this FewShotClassifier has learned no classes: fit it to examples first.")
        return self.adapted_

    def _check_head(self) -> None:
        check_head(self.head, OTHER_HEADS)


def _say(line: str) -> None:
    tell(line, sys.stderr)
