"""Kinds of ``innerloop analyze``, one file each: settings, and the call of an estimate with them.

A module ``innerloop.cli.analyses.KIND`` has its settings, with a description beside every key, and an
:class:`Analysis` named ``ANALYSIS``. It imports torch inside functions only, so that mistakes in settings are
answered at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import Trusted, load_object

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from innerloop.core.types import TaskBatch
    from innerloop.experiment.recipe.flat import FlatSettings
    from innerloop.experiment.recipe.schema import Recipe

ANALYSES: dict[str, str] = {
    "landscape": "when MAML is worth it: solutions, risks and gain, in closed form or from a recipe's tasks",
    "convergence": "training losses of MAML, ANIL and MTL against their bound, in the limit or for a network",
    "kernels": "spectra of meta-learners' kernels, and how far ANIL's and MTL's predictions lie apart",
    "regions": "linear regions: how many ReLU patterns a recipe's network shows on its own inputs",
    "rate": "the inner learning rate: closed forms on drawn data, or the estimate for a recipe's own tasks",
}
"""Names and what they say. Nothing here imports torch."""

Say: TypeAlias = Callable[[str], None]


class AnalysisResult(Protocol):
    """A typed result; ``str`` of it is what people read."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""


class Analysis(NamedTuple):
    """Settings, recipe and a line for people go in, an estimate comes out; ``page`` is made of its JSON."""

    settings: type[FlatSettings]
    run: Callable[[Any, Recipe | None, Say], AnalysisResult]
    heading: Callable[[Any], str] = lambda _: ""
    figures: Callable[[Any], dict[str, Figure]] = lambda _: {}
    page: Callable[[dict[str, Any]], str] | None = None
    unfit: Callable[[Any, Recipe | None], str | None] = lambda *_: None


def find(name: str) -> Analysis:
    """The analysis of a name."""
    if name not in ANALYSES:
        hint = did_you_mean(name, ANALYSES)
        raise UserError(f"there is no analysis '{name}'{hint}: there are {', '.join(ANALYSES)}.")
    analysis: Analysis = load_object(Trusted(f"innerloop.cli.analyses.{name}:ANALYSIS"))
    return analysis


class _Wide(Protocol):
    @property
    def width(self) -> float: ...


def width_is_whole(settings: _Wide) -> str | None:
    """What is wrong with a width that is neither whole nor infinite."""
    if math.isinf(settings.width) or settings.width == int(settings.width):
        return None
    return f"width={settings.width} is no whole number: give one, or inf"


class _Family(Protocol):
    """Settings that describe a family of tasks."""

    @property
    def tasks(self) -> str: ...
    @property
    def dim(self) -> int | None: ...
    @property
    def scale(self) -> str: ...


def draw_tasks(
    family: _Family, n: int, shots: int, queries: int, *, seed: int, split: str = "train"
) -> TaskBatch:
    """The first ``n`` tasks of a family in float64; inputs lie on ‖x‖ = √d where ``scale`` says so."""
    import torch

    from innerloop.tasks.families import get_family, on_sphere
    from innerloop.tasks.sampler import make_sampler

    options: dict[str, Any] = {} if family.dim is None else {"dim": family.dim}
    sampler = make_sampler(
        get_family(family.tasks),
        seed=seed,
        split=split,
        shots=shots,
        queries=queries,
        dtype=torch.float64,
        settings=options,
    )
    batch = cast("TaskBatch", sampler.episodes(range(n)))  # of a family all tasks have one shape
    if family.scale == "sphere":
        batch = batch._replace(x_support=on_sphere(batch.x_support), x_query=on_sphere(batch.x_query))
    return batch
