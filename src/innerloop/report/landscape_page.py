"""The interactive page of the landscape, from its numbers alone: it computes the closed forms itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from innerloop.report.render import content_policy

GEOGRAPHY = ("dim", "inner_shots", "rho_hard", "rho_easy", "R", "r_hard", "r_easy", "noise", "hard_share")
"""Settings that describe an environment."""


def landscape_page(result: Mapping[str, Any]) -> str:
    """A self-contained HTML page, started at the settings of a result."""
    if result.get("source") != "closed form":
        raise ValueError("the page shows the closed form")
    given = result.get("settings")
    settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    start = {key: settings.get(key) for key in (*GEOGRAPHY, "shots")}
    start |= {key: result.get(key) for key in ("inner_lr", "inner_shots")}
    payload = {
        "settings": {key: _number(key, value) for key, value in start.items()},
        "tied": settings.get("inner_lr") is None,
        "same": settings.get("inner_shots") is None,
    }
    file = resources.files("innerloop.report") / "templates" / "landscape.html"
    text = file.read_text(encoding="utf-8").replace("/*START*/", json.dumps(payload))
    return text.replace("{{ policy }}", content_policy(_inside(text, "style"), _inside(text, "script")))


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{key} is not a number")
    return value


def _inside(page: str, tag: str) -> str:
    return page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
