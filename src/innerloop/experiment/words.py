"""What a recipe calls the arguments that messages of the rooms below name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from innerloop.core.errors import spelling

RECIPE_WORDS = {
    "checkpoint": "inner.checkpoint",
    "choice": "tasks.choice",
    "clip": "outer.clip",
    "compile": "run.compile",
    "covariances": "tasks.settings.covariances",
    "ensemble": "eval.ensemble",
    "execution": "run.execution",
    "folder": "run.folder",
    "grid": "eval.C_grid",
    "hard_groups": "tasks.hard_groups",
    "hard_share": "tasks.hard_share",
    "hard_weight": "outer.hard_weight",
    "hardest": "tasks.hardest",
    "head_start": "inner.head_start",
    "heads": "outer.heads",
    "label_orders": "eval.label_orders",
    "last_layer": "model.last_layer",
    "leave_out": "data.leave_out",
    "meta-optimiser": "outer.optimiser",
    "method": "inner.method",
    "no adaptation": "inner.method=none",
    'on_bad="skip"': "data.on_bad=skip",
    "optima": "tasks.settings.optima",
    "optimiser": "inner.optimiser",
    "options": "outer.options",
    "precision=float32": "run.bfloat16=false",
    "rate": "inner.lr",
    "settings": "tasks.settings",
    "steps": "inner.steps",
    "tensorboard": "run.tensorboard",
    "the estimate": "inner.lr=auto",
    "the learner's C": "inner.settings.C",
    "the learner's cg_steps": "inner.settings.cg_steps",
    "the learner's damping": "inner.settings.damping",
    "the learner's lr": "inner.lr",
    "the learner's own steps": "inner.settings.steps",
    "the learner's penalty": "inner.settings.penalty",
    "the learner's scale": "inner.settings.scale",
    "the learner's steps": "inner.steps",
    "the optimiser's lr": "outer.lr",
    "track": "run.track",
    "weights": "tasks.settings.weights",
}
"""Arguments as messages name them, and the settings of a recipe that they come from."""


@contextmanager
def recipe_words() -> Iterator[None]:
    """Within it, and in errors that leave it, arguments are called what a recipe calls them.

    A context manager, and a decorator for functions that are given a recipe or a run: ``@recipe_words()``.

    >>> from innerloop import UserError
    >>> with recipe_words():
    ...     print(UserError("set {clip}=10", names=("clip",)))
    set outer.clip=10
    """
    with spelling(RECIPE_WORDS):
        yield


@contextmanager
def episode_words(kinds: int, training: bool) -> Iterator[None]:
    """The same for an episode's shape, which is set in ``tasks``, in ``eval``, or in a mixture of ``kinds``.

    >>> from innerloop import UserError
    >>> with episode_words(0, training=False):
    ...     print(UserError("lower {ways}", names=("ways",)))
    lower eval.ways
    """
    if not kinds:
        section = "tasks" if training else "eval"
        shape = ("ways", "shots", "queries")
        table = {name: f"{section}.{name}" for name in shape}
        # hard tasks and others are two kinds, which have their shape from here
        table |= {f"kinds[{i}].{name}": f"{section}.{name}" for i in (0, 1) for name in shape}
        table |= {f"kinds[{i}].choice": "tasks.choice" for i in (0, 1)}
    else:
        table = {
            f"kinds[{place}].{name}" if kinds > 1 else name: f"tasks.mixture[{place}].{name}"
            for place in range(kinds)
            for name in ("ways", "shots", "queries", "choice")
        }
    with spelling(table):
        yield
