"""What people read of an analysis: lines for the terminal, one file per kind. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from innerloop.cli.analyses import convergence, kernels, landscape, rate, regions

WORDS: dict[str, Callable[[Any, Any], list[str]]] = {
    "landscape": landscape.words,
    "convergence": convergence.words,
    "kernels": kernels.words,
    "regions": regions.words,
    "rate": rate.words,
}
"""Of a result and the settings it was found with."""
