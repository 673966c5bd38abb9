"""``innerloop analyze``: closed forms and estimates before training, one file per kind.

A module ``innerloop.analysis.KIND`` has

- ``Settings``, a :class:`~innerloop.recipes.flat.FlatSettings` with a description beside every key;
- ``run(settings, recipe, say) -> dict``: ``recipe`` is the one the user named first, its
  settings applied, or None; the result is plain data and goes out as JSON;
- ``render(result) -> list[str]``: the same for people, line by line;
- optionally ``page(result) -> str``: a self-contained HTML page for ``--page``, made from the numbers by a
  function in ``plots``, so that ``report`` can make it of a saved run as well;
- optionally ``figures(result) -> dict[str, Figure]``: pictures by file stem, drawn for ``--save``.

It imports torch inside ``run`` only, so that mistakes in settings are answered at once.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from innerloop.core.errors import UserError, did_you_mean

ANALYSES: dict[str, str] = {
    "landscape": "when MAML is worth it: solutions, risks and gain, in closed form or from a recipe's tasks",
    "convergence": "training losses of MAML, ANIL and MTL against their bound, in the limit or for a network",
    "kernels": "spectra of meta-learners' kernels, and how far ANIL's and MTL's predictions lie apart",
    "regions": "linear regions: how many ReLU patterns a recipe's network shows on its own inputs",
    "rate": "the inner learning rate: closed forms on drawn data, or the estimate for a recipe's own tasks",
}
"""Names and what they tell. Nothing here imports torch."""


def find(name: str) -> ModuleType:
    """The module of an analysis.

    Raises:
        UserError: there is none of this name.
    """
    if name not in ANALYSES:
        hint = did_you_mean(name, ANALYSES)
        raise UserError(f"there is no analysis '{name}'{hint}: there are {', '.join(ANALYSES)}.")
    return import_module(f"innerloop.analysis.{name}")
