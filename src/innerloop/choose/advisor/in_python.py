"""Advice in Python: the same as ``innerloop advise``, as a typed result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.choose.advisor.asked import understand
from innerloop.choose.advisor.result import Advice
from innerloop.choose.advisor.run import carry_out
from innerloop.experiment.recipe.grammar import as_items


def advise(
    source: str | Path,
    *items: str,
    budget: str = "60s",
    methods: Sequence[str] | None = None,
    backbone: str = "auto",
    workers: int | None = None,
    progress: bool = True,
    trust: bool = False,
    **settings: Any,
) -> Advice:
    """What a few-shot problem needs, before training in earnest.

    Methods race on the problem's own tasks within the budget; what needs no training, and a pretrained
    network where one is installed, stand beside them; what theory can tell is told, and where it cannot, why.

    Args:
        source: a recipe, its file or a run; a dataset, a folder of pictures or an .npz file; or a family of
            tasks.
        items: settings of the recipe as on the command line, such as ``"tasks.shots=1"``.
        budget: time for everything: ``30s``, ``5m``, ``1h``.
        methods: which methods race; all that fit the tasks if omitted.
        backbone: a pretrained network for pictures, ``none``, or ``auto``: one that is installed.
        workers: processes of one thread each; as many as there are cores if omitted.
        progress: whether to show progress on standard error.
        trust: whether code that a recipe's file names may be imported.
        settings: the same as ``items`` in Python: a dict per section, or ``seed``.

    Returns:
        The advice; its run directory holds the recommended recipe and a page.

    Raises:
        UserError: something does not fit, or the budget is too small.
    """
    own = [f"budget={budget}", f"backbone={backbone}"]
    own += [] if methods is None else [f"methods=[{','.join(methods)}]"]
    asked = understand(str(source), [*own, *map(str, items), *as_items(settings)], trust=trust)
    return carry_out(asked, workers=workers, show=progress)
