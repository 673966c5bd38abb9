"""An experiment: a recipe that one can train, in two lines of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.grammar import Assignment, as_assignments
from innerloop.experiment.recipe.library import load_recipe
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, recipe_to_toml, typed_keys
from innerloop.experiment.recipe.trust import admit
from innerloop.experiment.run import train
from innerloop.experiment.trained import Run


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
