"""``FewShotClassifier``: classes of pictures from a few examples each, on features of a backbone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from innerloop.classify.backbones import BACKBONE, Backbone, open_backbone
from innerloop.classify.card import card
from innerloop.classify.cross_validation import CurvePoint
from innerloop.classify.export import export_predictor
from innerloop.classify.files import load_model, write_predictor
from innerloop.classify.heads import check_kind, head_settings
from innerloop.classify.inputs import label_array, list_labels, sorted_labels
from innerloop.classify.predictor import Prediction, Predictor, pretrained_predictor
from innerloop.classify.pretraining import train
from innerloop.classify.results import about_model, find_copies
from innerloop.classify.sureness import ExpectedAccuracy, copies_lines
from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.core.stderr import tell
from innerloop.data.pictures import Progress, silent
from innerloop.experiment.results import UNSURE_BELOW
from innerloop.runs.progress import TimeLeft


class NotReadyError(UserError, NotFittedError):  # type: ignore[misc]
    """It has learned no classes yet; scikit-learn knows it as ``NotFittedError``."""


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns classes of pictures from a few examples of each.

    ``fit`` computes features of the examples (each picture once: they are kept on disk), fits a head, and
    looks how sure it may be. Pictures are file names, arrays or pictures of Pillow. It works wherever
    scikit-learn's classifiers do.

    Args:
        backbone: the name of a pretrained one (``efficientnet-lite0``, ``hf:NAME-or-FOLDER`` …), a
            :class:`~innerloop.classify.Backbone`, or a network that :meth:`pretrain` or a run
            trained.
        head: ``logistic``, ``svm``, ``svc``, ``ridge``, ``centroid`` or ``cosine`` on features; ``finetune``
            moves the whole network; ``learner`` adapts as it was trained to (prototypes after ``pretrain``).
        C: inverse penalty of the first four.
        normalise: divide features by their norm.
        calibrate: look how sure a head may be: expected accuracy, probabilities that mean what they say, and
            pictures of none of the classes.
        unsure_below: predictions less probable than this are marked unsure.
        seed: of everything.
        verbose: say on standard error how far it is, where it takes long.

    Attributes:
        classes_: labels, in the order of the probabilities.
        expected_: how often it will be right, by class, and what it confuses, and which classes could not be
            tested; None where every class has a single example, or nothing was asked. Examples that look like
            copies of one picture count once, and ``fit`` warns of them.

    >>> from innerloop import glyphs
    >>> source = glyphs()
    >>> X, y = source.images[:4000], np.repeat(np.arange(200), 20)
    >>> model = FewShotClassifier(verbose=False).pretrain(X, y, filters=8, steps=2, batch=1)
    >>> new = source.images[8000:8040]                   # two characters it has never seen
    >>> set(model.fit(new[[0, 1, 20, 21]], ["a", "a", "b", "b"]).predict(new[[5, 25]])) <= {"a", "b"}
    True
    """

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

    # features of one's own

    def pretrain(
        self,
        X: Any,
        y: Any,
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
    ) -> Self:
        """Meta-trains a Conv4 on labelled pictures of *other* classes; its features are used from then on.

        Args:
            X: pictures, ``(N, H, W)``, ``(N, H, W, C)`` or ``(N, C, H, W)``; uint8, or floats in 0…1.
            y: their labels.
            filters: channels of the Conv4.
            norm: norm policy; ``running`` predicts each picture on its own.
            ways: classes per training episode.
            shots: support pictures per class in training.
            queries: query pictures per class in training.
            steps: meta-steps.
            batch: episodes per meta-step.
            lr: meta learning rate.
            augment: pad-crop, flip and colour jitter (not for handwriting: flips make other letters).
        """
        check_kind(self.head)
        training = {"filters": filters, "norm": norm, "ways": ways, "shots": shots, "queries": queries}
        training |= {"steps": steps, "batch": batch, "lr": lr, "augment": augment}
        self.backbone = train(X, y, {**self._arguments(), **training}, self._progress("meta-steps"))
        for name in ("predictor_", "classes_"):
            if hasattr(self, name):
                delattr(self, name)
        return self

    @classmethod
    def from_run(cls, run: str | Path, *, trust: bool = False, **arguments: Any) -> Self:
        """On the network of a run of ``innerloop train`` on pictures, which adapts as it was trained to.

        Args:
            run: its directory, the beginning of its name, or ``last``.
            trust: whether code from outside that the run names may be imported.
            arguments: of the constructor; ``head="logistic"`` fits a head on its features instead.
        """
        return cls._of(load_model(run, trust=trust)).set_params(**arguments)

    @classmethod
    def _of(cls, predictor: Predictor) -> Self:
        known, saved = cls().get_params(), predictor.arguments
        if strange := sorted(set(saved) - set(known)):
            raise UserError(f"FewShotClassifier has no argument '{strange[0]}': the file is damaged.")
        given = {**predictor.head.as_arguments(), **saved}
        model = cls(**{name: value for name, value in given.items() if name in known})
        model.backbone = predictor._replace(classes=None)
        if predictor.classes is not None:
            model._keep(predictor)
        return model

    # examples

    def fit(self, X: Any, y: Sequence[Any] | NDArray[Any]) -> Self:
        """Learns the classes of a few examples, and forgets all others."""
        labels = list_labels(y)
        names, progress = sorted_labels(labels), self._progress()
        self._keep(self._predictor().fit(X, labels, names, calibrate=self.calibrate, progress=progress))
        self._warn_of_copies(X)
        return self

    def partial_fit(self, X: Any, y: Sequence[Any] | NDArray[Any], classes: Any = None) -> Self:
        """Learns more examples, of new classes too, without forgetting the old ones.

        Args:
            X: pictures.
            y: their labels.
            classes: ignored; there for scikit-learn's interface.
        """
        del classes
        if not hasattr(self, "predictor_"):
            return self.fit(X, y)
        known, labels = self.predictor_.learned, list_labels(y)
        names = sorted_labels([*known.names, *labels])
        how = self.calibrate, self._progress()
        self._keep(self._predictor().fit_more(known, X, labels, names, *how))
        self._warn_of_copies()
        return self

    # pictures

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, in the order of ``classes_``: ``(n, classes)``."""
        return self._fitted().probabilities(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each picture."""
        return label_array(self.predict_sure(X).labels)

    def predict_sure(self, X: Any) -> Prediction:
        """Labels, how probable each is, which are unsure, and which pictures are perhaps of no class.

        A picture is unsure if its label is less probable than ``unsure_below``, or if it is unknown: farther
        from every class than examples are from theirs. Only heads on features can say what is unknown.
        """
        return self._fitted().predict(X, self.unsure_below, self._progress())

    def score(self, X: Any, y: Sequence[Any] | NDArray[Any], sample_weight: Any = None) -> float:
        """The share of pictures labelled right; labels may be of any type.

        Args:
            X: pictures.
            y: their labels.
            sample_weight: of each picture; all alike if omitted.
        """
        said, truth = self.predict_sure(X).labels, list_labels(y)
        if len(said) != len(truth):
            raise UserError(f"score got {len(said)} pictures but {len(truth)} labels: give one label each.")
        hits = [a == b for a, b in zip(said, truth, strict=True)]
        return float(np.average(hits, weights=sample_weight))

    @property
    def expected_(self) -> ExpectedAccuracy | None:
        """How often it will be right."""
        sure = self._fitted().learned.sureness
        return None if sure is None else sure.expected

    def learning_curve(self) -> list[CurvePoint]:
        """Accuracy with 1, 2, 4 … of the examples of every class, on the others: what more would bring."""
        predictor = self._fitted()
        if predictor.learned.examples is None:
            raise UserError("a learning curve is drawn from features: set head='logistic' and fit again.")
        return predictor.learning_curve(self.seed)

    # keeping it

    def save(self, path: str | Path) -> Path:
        """Writes one ``.safetensors`` file (no pickle): weights, preprocessing and, if fitted, the classes.

        ``load`` and ``innerloop predict`` read it.
        """
        predictor = self._predictor()
        if hasattr(self, "predictor_"):
            predictor = self.predictor_._replace(head=predictor.head)
        return write_predictor(Path(path), predictor, self._arguments())

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Reads what :meth:`save` wrote, or a run of ``innerloop train`` on pictures.

        Labels come back as they were.

        Args:
            path: a file; or a run: its directory, the beginning of its name, or ``last``.
            trust: whether code from outside that the file or the run names may be imported.
        """
        return cls._of(load_model(path, trust=trust))

    def export(self, path: str | Path, *, fixed: bool = False) -> Path:
        """Writes the fitted classifier as a graph that runs without innerloop, and a card beside it.

        It takes decoded pictures ``(n, H, W, C)``, uint8, and gives ``logits``, ``probabilities``,
        ``unknown`` and ``unsure``. The card (``PATH.md``) says how to use it.

        Args:
            path: ends in ``.onnx`` (extra ``onnx``), or in ``.pt2`` for ``torch.export``.
            fixed: whether it takes pictures of the network's own size only, and does not resize.
        """
        place = user_path(path)
        return export_predictor(self._fitted(), place, unsure_below=self.unsure_below, fixed=fixed).file

    def card(self, name: str = "model") -> str:
        """What a stranger must know of the fitted classifier, in Markdown.

        Args:
            name: of the file that the card will stand beside.
        """
        return card(about_model(self._fitted(), self.unsure_below), name)

    # what all of these need

    def __sklearn_is_fitted__(self) -> bool:
        """For scikit-learn."""
        return hasattr(self, "predictor_")

    def _keep(self, predictor: Predictor) -> None:
        self.predictor_ = predictor
        self.classes_ = label_array(predictor.learned.names)

    def _warn_of_copies(self, X: Any = ()) -> None:
        """Names the files of examples that look like copies of one picture, or their numbers."""
        files = list(X) if isinstance(X, list | tuple) and all(isinstance(x, str | Path) for x in X) else []
        for line in copies_lines([copies._asdict() for copies in find_copies(self.predictor_, files)]):
            warnings.warn(line.removeprefix("warning: "), UserWarning, stacklevel=3)

    def _arguments(self) -> dict[str, Any]:
        return {name: value for name, value in self.get_params(deep=False).items() if name != "backbone"}

    def _progress(self, unit: str = "pictures") -> Progress:
        return TimeLeft(_say, unit=unit) if self.verbose else silent

    def _predictor(self) -> Predictor:
        """The network, learning as the arguments say now."""
        check_kind(self.head)
        head = head_settings(self._arguments())
        if isinstance(self.backbone, Predictor):
            own = self.backbone.head._replace(kind=head.kind, C=head.C, normalise=head.normalise)
            return self.backbone._replace(head=own)
        known = vars(self).get("_opened")
        if known is None or known[0] != self.backbone:
            given = self.backbone
            known = self._opened = (given, open_backbone(given) if isinstance(given, str) else given)
        return pretrained_predictor(known[1], head)

    def _fitted(self) -> Predictor:
        if not hasattr(self, "predictor_"):
            raise NotReadyError("this FewShotClassifier has learned no classes: fit it to examples first.")
        return self.predictor_


def _say(line: str) -> None:
    tell(line, sys.stderr)
