"""What ``FewShotClassifier`` is built on: its arguments, the predictor that they make, what was adapted."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from innerloop.classify.backbones import Backbone, open_backbone
from innerloop.classify.card import about_model, card
from innerloop.classify.export import export_adapted
from innerloop.classify.features import TimeLeft
from innerloop.classify.files import Saved, load_model, write_predictor
from innerloop.classify.heads import KEYS, arguments_of, backbone_recipe, recipe_for, with_adaptation
from innerloop.classify.items import Look, label_array, list_labels, sorted_labels
from innerloop.classify.left_out import CurvePoint, learning_curve
from innerloop.classify.predict import BACKBONE
from innerloop.classify.predictor import UNSURE_BELOW, Adapted, Prediction, Predictor, of_backbone, sizes_for
from innerloop.classify.results import copies_told, head_way
from innerloop.classify.sureness import Expected, copies_lines
from innerloop.core.cores import available_cores
from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.core.telling import tell
from innerloop.core.types import Buffers, Params
from innerloop.data.arrays import from_arrays
from innerloop.data.augment import episode_transform, lee2019
from innerloop.data.layouts.layout import Progress, silent
from innerloop.data.source import ImageSource
from innerloop.evaluation.heads import check_head
from innerloop.evaluation.protocol import FINE_TUNING
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.nets.network import Network
from innerloop.nets.norms import check_policy
from innerloop.tasks.episodes import Shape
from innerloop.tasks.few_shot import Kind, few_shot_sampler
from innerloop.tasks.sampler import Sampler
from innerloop.training.execution.plan import Plan

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


class FewShotClassifier(AdaptingClassifier):
    """Learns classes of pictures from a few examples of each.

    ``fit`` computes features of the examples (each picture once: they are kept on disk), fits a head, and
    looks how sure it may be. Pictures are file names, arrays or pictures of Pillow. It works wherever
    scikit-learn's classifiers do.

    Args:
        backbone: the name of a pretrained one (``efficientnet-lite0``, ``hf:NAME-or-FOLDER`` …), a
            :class:`~innerloop.classify.old_features.Backbone`, or a network that :meth:`pretrain` or a run
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
        self._check_head()
        check_policy(norm)
        training = {"filters": filters, "norm": norm, "ways": ways, "shots": shots, "queries": queries}
        training |= {"steps": steps, "batch": batch, "lr": lr, "augment": augment}
        self.backbone = pretrained(X, y, {**self._arguments(), **training}, self._progress("meta-steps"))
        self._forget()
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
    def _of(cls, loaded: Saved) -> Self:
        known = cls().get_params()
        told = {**arguments_of(loaded.predictor.recipe), **loaded.arguments}
        if strange := sorted(set(loaded.arguments) - {*known, *KEYS, "augment"}):
            raise UserError(f"FewShotClassifier has no argument '{strange[0]}': the file is damaged.")
        model = cls(**{name: value for name, value in told.items() if name in known and name != "backbone"})
        model.backbone = loaded.predictor
        if loaded.adapted is not None:
            model._keep(loaded.adapted)
        return model

    # examples

    def fit(self, X: Any, y: Sequence[Any] | NDArray[Any]) -> Self:
        """Learns the classes of a few examples, and forgets all others."""
        labels = list_labels(y)
        self._keep(
            self._predictor().adapt(
                X, labels, sorted_labels(labels), calibrate=self.calibrate, progress=self._progress()
            )
        )
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
        if not hasattr(self, "adapted_"):
            return self.fit(X, y)
        before, labels = self.adapted_.examples, list_labels(y)
        if before is None:
            raise UserError(
                "partial_fit keeps features of examples, which only heads on features have: set "
                "head='logistic' and fit again, or fit all examples at once."
            )
        known = [self.adapted_.names[i] for i in before.y.tolist()]
        self._keep(
            self._predictor().adapt_more(
                before.z, known, X, labels, sorted_labels([*known, *labels]), self.calibrate, self._progress()
            )
        )
        self._warn_of_copies()
        return self

    # pictures

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, in the order of ``classes_``: ``(n, classes)``."""
        return self._adapted().probabilities(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each picture."""
        return label_array(self.predict_sure(X).labels)

    def predict_sure(self, X: Any) -> Prediction:
        """Labels, how probable each is, which are unsure, and which pictures are perhaps of no class.

        A picture is unsure if its label is less probable than ``unsure_below``, or if it is unknown: farther
        from every class than examples are from theirs. Only heads on features can say what is unknown.
        """
        return self._adapted().predict(X, self.unsure_below, self._progress())

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
    def expected_(self) -> Expected | None:
        """How often it will be right."""
        sure = self._adapted().sureness
        return None if sure is None else sure.expected

    def learning_curve(self) -> list[CurvePoint]:
        """Accuracy with 1, 2, 4 … of the examples of every class, on the others: what more would bring."""
        adapted = self._adapted()
        if adapted.examples is None:
            raise UserError("a learning curve is drawn from features: set head='logistic' and fit again.")
        return learning_curve(
            *adapted.examples, len(adapted.names), head_way(adapted), self.seed, copies=adapted.copies
        )

    # keeping it

    def save(self, path: str | Path) -> Path:
        """Writes one ``.safetensors`` file (no pickle): weights, preprocessing and, if fitted, the classes.

        ``load`` and ``innerloop predict`` read it.
        """
        return write_predictor(
            Path(path), self._predictor(), getattr(self, "adapted_", None), self._arguments()
        )

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Reads what :meth:`save` wrote, or a run of ``innerloop train`` on pictures.

        Labels come back as they were (from the oldest files: as text).

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
        return export_adapted(self._adapted(), place, unsure_below=self.unsure_below, fixed=fixed).file

    def card(self, name: str = "model") -> str:
        """What a stranger must know of the fitted classifier, in Markdown.

        Args:
            name: of the file that the card will stand beside.
        """
        return card(about_model(self._adapted(), self.unsure_below), name)


def pretrained(X: Any, y: Any, arguments: Mapping[str, Any], progress: Progress = silent) -> Predictor:
    """A Conv4 that was meta-trained as a prototypical network on labelled arrays."""
    source = from_arrays(X, y, splits={"train": [str(label) for label in np.unique(np.asarray(y))]})
    height, width, channels = source.images.shape[1:]
    ways = min(arguments["ways"], max(source.n_classes, 2))
    recipe, look = recipe_for({**arguments, "ways": ways}, height), Look((height, width, channels))
    trained = train(source, recipe, look, progress)
    return Predictor(recipe, *trained, look, "this FewShotClassifier", f"last (step {recipe.outer.steps})")


def train(
    source: ImageSource, recipe: Recipe, look: Look, progress: Progress = silent
) -> tuple[Network, Params, Buffers]:
    """The network after training by the recipe on the classes of ``source``: its weights and statistics."""
    data = build_data(recipe, source, _episodes(source, recipe))
    parts = Parts(recipe, data, sizes_for(look, recipe.tasks.ways, source.n_classes))
    plan = Plan("threads" if recipe.outer.batch > 1 else "loop", available_cores())
    total = recipe.outer.steps
    state = fit_parts(parts, plan=plan, log=lambda record: progress("training", record["step"], total))
    return parts.network, state.params, state.buffers


def _episodes(source: ImageSource, recipe: Recipe) -> Sampler:
    """Training tasks as :class:`FewShotClassifier` has always drawn them; messages name its arguments."""
    tasks, seed = recipe.tasks, recipe.run.seed
    augment = recipe.data.augment == "lee2019"
    return few_shot_sampler(
        source,
        "train",
        seed=seed,
        kinds=[Kind(Shape(tasks.ways, tasks.shots, tasks.queries))],
        transform=episode_transform(seed, lee2019(source.images.shape[1])) if augment else None,
    )
