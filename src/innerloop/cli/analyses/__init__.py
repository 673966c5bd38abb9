"""Kinds of ``innerloop analyze``, one file each: settings, and the call of an estimate with them.

A module ``innerloop.cli.analyses.KIND`` has its settings, with a description beside every key, and an
:class:`Analysis` named ``ANALYSIS``. It imports torch inside functions only, so that mistakes in settings are
answered at once.
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
"""Names and what they say. Nothing here imports torch."""

Say: TypeAlias = Callable[[str], None]


class AnalysisResult(Protocol):
    """A typed result; ``str`` of it is what people read."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""


class Analysis(NamedTuple):
    """A kind of analysis: settings, recipe and a line for people go in, an estimate comes out.

    Attributes:
        settings: its keys.
        run: the call of the estimate.
        heading: of settings, what stands before the printed estimate.
        figures: of an estimate, by the names of their files.
        page: of the JSON, for ``--page``.
        unfit: of settings and recipe, why they do not fit together.
    """

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
