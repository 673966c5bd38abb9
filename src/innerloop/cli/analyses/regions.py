"""What people read of ``analyze regions``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from innerloop.choose.analysis.regions import Settings
    from innerloop.choose.regions import RegionCount


def words(result: RegionCount, _settings: Settings) -> list[str]:
    """The count with its interval, and whether it tells anything."""
    count = len(result.patterns)
    spread = "" if result.ci95 is None else f" ± {result.ci95:.2g} (95 % CI, {count} initialisations)"
    lines = [
        f"{result.regions:.4g}{spread} linear regions hit by {result.inputs} different inputs",
        f"{result.units} ReLUs; by initialisation: {', '.join(map(str, result.patterns))}",
    ]
    if result.saturated:
        lines.append(
            "every input lies in a region of its own, so this counts inputs and says nothing of the network: "
            "a narrower network or more inputs would tell"
        )
    return lines
