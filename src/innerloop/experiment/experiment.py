"""Experiments, and the runs that they leave: train, judge, predict, compare, in two lines of Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop.core.errors import UserError
from innerloop.core.files import read_json
from innerloop.evaluation.comparison import Comparison
from innerloop.experiment.loading import TrainedRun, load_run
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.grammar import Assignment, as_assignments, in_section
from innerloop.experiment.recipe.library import load_recipe, read_recipe
from innerloop.experiment.recipe.protocols import own_evaluation
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import EvalSettings, Recipe
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml, typed_keys
from innerloop.experiment.recipe.trust import admit
from innerloop.experiment.results import UNSURE_BELOW, Judged, judged_from
from innerloop.experiment.resuming import resume
from innerloop.experiment.run_evaluation import compare_judged, evaluate_run
from innerloop.experiment.training import train
from innerloop.runs.directory import RECIPE, find_run
from innerloop.runs.manifest import actual_status, read_manifest

if TYPE_CHECKING:
    from innerloop.classify.predictor import Prediction


class Experiment:
    """What to train, on what, and how: a recipe with settings on top.

    Args:
        source: the name of a shipped recipe (``innerloop ls`` lists them), the path of a TOML file, a run
            whose recipe is meant, or a :class:`~innerloop.experiment.recipe.schema.Recipe`.
        items: settings as on the command line, such as ``"inner.lr=0.1"``.
        trust: whether code from outside that a recipe's file names may be imported.
        settings: the same in Python: a dict per section, or ``seed``.

    >>> experiment = Experiment("sine-maml", "inner.steps=2", outer={"steps": 2000}, seed=1)
    >>> experiment.recipe.inner.steps, experiment.recipe.outer.steps, experiment.recipe.run.seed
    (2, 2000, 1)

    Raises:
        UserError: there is no such recipe, or some settings are wrong (one line each).
        UntrustedCodeError: the file names code from outside, and is not trusted.
    """

    def __init__(
        self, source: str | Path | Recipe, *items: str, trust: bool = False, **settings: Any
    ) -> None:
        given: list[str | Assignment] = [*map(str, items), *as_assignments(settings)]
        if isinstance(source, Recipe):
            recipe = make_recipe(source.model_dump(exclude_none=True), given) if given else source
            self.recipe = admit(recipe, typed_keys(given), "the recipe", trust)
        else:
            self.recipe = load_recipe(str(source), given, trust=trust)
        self._notes = unread(self.recipe, sorted(typed_keys(given)))

    @property
    def parts(self) -> Parts:
        """Network, tasks, objective and all else that the recipe means, built when asked for."""
        return Parts(self.recipe)

    def fit(self, *, progress: bool = True) -> Run:
        """Trains, and judges the result on held-out tasks, as ``innerloop train`` does.

        Args:
            progress: whether to show progress on standard error.

        Raises:
            UserError: parts do not fit together; found before anything is written.
            NonFiniteError: a loss is not finite; the last good checkpoint is kept.
        """
        return Run(train(self.recipe, progress=progress, notes=self._notes).run, trust=True)

    def __repr__(self) -> str:
        return f"Experiment({self.recipe.name!r}, seed={self.recipe.run.seed})"

    def __str__(self) -> str:
        return recipe_to_toml(self.recipe)


class Run:
    """A run directory, from ``Experiment.fit`` or :func:`load`.

    All of it is on disk: the object holds the path and nothing else, so it can be made again at any time.

    Args:
        path: the run directory.
        trust: whether code from outside that its recipe names may be imported.
    """

    def __init__(self, path: Path, *, trust: bool = False) -> None:
        self.path, self._trust = Path(path), trust

    @property
    def recipe(self) -> Recipe:
        """What it was trained by."""
        return read_recipe(str(self.path))

    @property
    def status(self) -> str:
        """``finished``, ``interrupted``, ``failed``, ``running`` or ``killed``."""
        return actual_status(read_manifest(self.path))

    @property
    def result(self) -> Judged | None:
        """Its evaluation by its recipe's own protocol; None if there is none yet."""
        files = sorted((self.path / "eval").glob("*.json"), key=lambda file: file.stat().st_mtime)
        evaluations = [{**read_json(file), "file": str(file)} for file in files]
        evaluation, own = own_evaluation(self.recipe.model_dump(), evaluations)
        return judged_from(evaluation) if evaluation is not None and own else None

    @property
    def loaded(self) -> TrainedRun:
        """Its network, weights and tasks, for everything that the methods here do not do."""
        return load_run(self.path, trust=self._trust)

    def evaluate(self, *items: str, **settings: Any) -> Judged:
        """Judges it on held-out tasks, by its own protocol or by one changed with settings.

        The result is added to the run's ``eval`` folder, as ``innerloop eval`` does. The training data need
        not be there any more.

        Args:
            items: settings as on the command line, such as ``"inner.test_steps=10"``.
            settings: those of the section ``eval`` by their own names (``episodes=600``), others as a dict
                per section (``inner={"test_steps": 10}``).
        """
        return evaluate_run(self.path, _given(items, settings), trust=self._trust)

    def compare(self, other: Run | str | Path, *items: str, **settings: Any) -> Comparison:
        """Judges this run and another with the same settings, and compares them task by task.

        Args:
            other: the other run, or its path or name.
            items: as in :meth:`evaluate`; they hold for both.
            settings: likewise.

        Raises:
            UserError: they do not see the same episodes.
        """
        against = other if isinstance(other, Run) else load(other)
        first, second = (run.evaluate(*items, **settings) for run in (self, against))
        return compare_judged(first, second, (str(self.path), str(against.path)))

    def predict(
        self,
        support: Any,
        labels: Sequence[Any],
        queries: Any,
        *items: str,
        unsure_below: float = UNSURE_BELOW,
    ) -> Prediction:
        """Learns classes of pictures from a few labelled ones, and labels others.

        Args:
            support: pictures to learn from: an array ``(n, H, W)``, ``(n, H, W, C)`` or ``(n, C, H, W)``,
                uint8 or floats in 0…1, of the size that training saw; or file names, which are brought to it.
            labels: their labels.
            queries: pictures to be labelled.
            items: settings of the adaptation, such as ``"eval.head=logistic"``.
            unsure_below: predictions less probable than this are marked unsure.

        Raises:
            UserError: it was not trained on pictures, or these do not fit.
        """
        from innerloop.classify.files import predictor_from
        from innerloop.classify.inputs import list_labels

        predictor = predictor_from(self.path, items, trust=self._trust)
        return predictor.fit(support, list_labels(labels)).predict(queries, unsure_below)

    def report(self, out: str | Path | None = None) -> Path:
        """Writes a page about the run, by default ``report.html`` in its directory; returns its path."""
        from innerloop.experiment.pages import write_report

        return write_report([self.path], None if out is None else Path(out))

    def resume(self, *, progress: bool = True) -> Run:
        """Continues an interrupted run where its last checkpoint left it."""
        resume(self.path, trust=self._trust, progress=progress)
        return self

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __str__(self) -> str:
        known = self.result if self.status == "finished" else None
        return f"{self.path}: {known or self.status}"


def _given(items: Sequence[str], settings: dict[str, Any]) -> list[str | Assignment]:
    return [*items, *as_assignments(in_section(settings, "eval", EvalSettings.model_fields))]


def load(run: str | Path, *, trust: bool = False) -> Run:
    """A run by its path, the beginning of its name, or ``last``.

    Args:
        run: as on the command line.
        trust: whether code from outside that its recipe names may be imported.

    Raises:
        UserError: there is no such run, or it is none of training.
    """
    path = find_run(str(run))
    if not (path / RECIPE).is_file():
        raise UserError(f"{path} is not a run of training: `innerloop report {path}` shows what it holds.")
    return Run(path, trust=trust)


def judge_backbone(
    backbone: str,
    data: str | Path | None = None,
    *items: str,
    like: Run | str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> Run:
    """Judges a pretrained backbone, as ``innerloop eval --backbone`` does: the run's ``result`` tells how.

    Nothing is trained. Its run can be compared with any other one on the same tasks, and judged again.

    Args:
        backbone: ``efficientnet-lite0``, ``hf:FOLDER``, ``timm:NAME``.
        data: a dataset of the catalogue or a folder, as ``data.name``.
        items: settings as on the command line.
        like: a run on whose held-out tasks it is judged, in place of ``data``.
        progress: whether to tell on standard error how far it is.
        settings: those of the section ``eval`` by their own names (``shots=5``), others as a dict per
            section.

    Raises:
        UserError: there is no such backbone, or the settings are wrong.
    """
    from innerloop.experiment.backbone_run import judge_backbone as judge

    given = _given(items, settings)
    if data is not None:
        given += as_assignments({"data": {"name": str(data)}})
    run = None if like is None else (like if isinstance(like, Run) else load(like)).path
    return Run(judge(backbone, given, run, progress=progress).run)
