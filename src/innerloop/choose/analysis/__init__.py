"""``innerloop analyze``: closed forms and estimates before training, one file per kind.

A module ``innerloop.choose.analysis.KIND`` has ``Settings``, a
:class:`~innerloop.experiment.recipe.flat.FlatSettings` with a description beside every key; ``run``, which
turns these settings, and the recipe if there is one, into arguments of a function in
:mod:`innerloop.theory.estimates`; and ``ANALYSIS``, an :class:`Analysis` of them. It imports torch inside
functions only, so that mistakes in settings are answered at once. What people read of a result is written in
``innerloop.cli.analyses``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import Trusted, load_object

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from innerloop.experiment.recipe.flat import FlatSettings
    from innerloop.experiment.recipe.schema import Recipe

ANALYSES: dict[str, str] = {
    "landscape": "when MAML is worth it: solutions, risks and gain, in closed form or from a recipe's tasks",
    "convergence": "training losses of MAML, ANIL and MTL against their bound, in the limit or for a network",
    "kernels": "spectra of meta-learners' kernels, and how far ANIL's and MTL's predictions lie apart",
    "regions": "linear regions: how many ReLU patterns a recipe's network shows on its own inputs",
    "rate": "the inner learning rate: closed forms on drawn data, or the estimate for a recipe's own tasks",
}
"""Names and what they tell. Nothing here imports torch."""

Say: TypeAlias = Callable[[str], None]


class Told(Protocol):
    """A typed result of :mod:`innerloop.theory.estimates`."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""


class Analysis(NamedTuple):
    """A kind of analysis. ``run``, ``figures`` and words for people are of one pair of types."""

    settings: type[FlatSettings]
    run: Callable[[Any, Recipe | None, Say], Told]
    figures: Callable[[Any], dict[str, Figure]] | None = None
    page: Callable[[dict[str, Any]], str] | None = None
    unfit: Callable[[Any, Recipe | None], str | None] | None = None


def find(name: str) -> Analysis:
    """The analysis of a name."""
    if name not in ANALYSES:
        hint = did_you_mean(name, ANALYSES)
        raise UserError(f"there is no analysis '{name}'{hint}: there are {', '.join(ANALYSES)}.")
    analysis: Analysis = load_object(Trusted(f"innerloop.choose.analysis.{name}:ANALYSIS"))
    return analysis
