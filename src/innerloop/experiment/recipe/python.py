"""Settings given in Python, as the texts that the command line takes: one grammar, one set of messages."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def as_items(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """``key=value`` texts for nested settings.

    >>> as_items({"outer": {"steps": 2000}, "seed": 1, "model": {"kind": "conv4"}})
    ['outer.steps=2000', 'seed=1', 'model.kind="conv4"']
    """
    items: list[str] = []
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            items += as_items(value, f"{prefix}{key}.")
        else:
            items.append(f"{prefix}{key}={toml_value(value)}")
    return items


def in_section(settings: Mapping[str, Any], section: str, keys: Collection[str]) -> dict[str, Any]:
    """Settings with those of one section told by their own names put into it.

    >>> in_section({"episodes": 600, "inner": {"lr": 0.1}}, "eval", ["episodes"])
    {'eval': {'episodes': 600}, 'inner': {'lr': 0.1}}
    """
    own = {key: value for key, value in settings.items() if key in keys}
    rest = {key: value for key, value in settings.items() if key not in keys}
    return {section: {**own, **rest.pop(section, {})}, **rest} if own else rest


def toml_value(value: Any) -> str:
    """A value as TOML; ``none`` for None, which the settings grammar reads.

    >>> toml_value([1, 2.5, "a", True, {"ways": 5}])
    '[1, 2.5, "a", true, {"ways" = 5}]'
    """
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{json.dumps(str(key))} = {toml_value(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml_value, value))}]"
    if hasattr(value, "item"):  # a number of numpy or torch
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
