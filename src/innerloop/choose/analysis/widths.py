"""A rule that several analyses of wide networks share."""

from __future__ import annotations

import math
from typing import Protocol


class _Wide(Protocol):
    @property
    def width(self) -> float: ...


def width_is_whole(settings: _Wide) -> str | None:
    """What is wrong with a width that is neither whole nor infinite."""
    if math.isinf(settings.width) or settings.width == int(settings.width):
        return None
    return f"width={settings.width} is no whole number: give one, or inf"
