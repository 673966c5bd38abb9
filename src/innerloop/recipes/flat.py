"""Flat ``key=value`` settings of a command that is no recipe: a pydantic model says what there is.

The grammar and the manner of complaint are those of recipes: all problems at once, each with what was
probably meant. Importing this file does not import torch.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from innerloop.core.errors import UserError, did_you_mean
from innerloop.recipes.problems import allowed, kind, show
from innerloop.recipes.settings import read_value


class FlatSettings(BaseModel):
    """What a command takes: subclasses list their keys, each with a default and a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=FlatSettings)


def read_flat(model: type[Model], items: Sequence[str], command: str) -> Model:
    """The settings in ``items``, checked against ``model``.

    Args:
        model: what there is.
        items: ``key=value`` texts.
        command: named in messages, such as ``analyze rate``.

    >>> class Rate(FlatSettings):
    ...     dim: int = 3
    >>> read_flat(Rate, ["dim=5"], "analyze rate").dim
    5
    >>> read_flat(Rate, ["dims=5"], "analyze rate")
    Traceback (most recent call last):
    innerloop.core.errors.UserError: unknown setting 'dims' (did you mean 'dim'?) of `innerloop analyze rate`

    Raises:
        UserError: with one line for every problem.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for item in items:
        key, equals, raw = (part.strip() for part in item.partition("="))
        if not equals or not key or not raw or key.startswith("-"):
            problems.append(f"'{item}' is not a setting: write key=value without spaces or dashes")
        elif key in values:
            problems.append(f"{key} is given twice")
        elif key not in model.model_fields:
            hint = did_you_mean(key, model.model_fields) or f": there are {', '.join(model.model_fields)}"
            problems.append(f"unknown setting '{key}'{hint} of `innerloop {command}`")
        else:
            values[key] = _mean(model, key, read_value(raw), raw)
    problems += [
        f"{key} must be finite, not {value}"
        for key, value in values.items()
        if isinstance(value, float) and math.isnan(value)
    ]
    try:
        made = model.model_validate(values, strict=True)
    except ValidationError as error:
        problems += [_explain(model, item) for item in error.errors()]
    if problems:
        raise UserError("\n".join(problems))
    return made


def describe(model: type[FlatSettings]) -> list[dict[str, Any]]:
    """Every key with its default, what it takes and what it means."""
    return [
        {"key": key, "default": field.default, "takes": allowed(field), "meaning": field.description or ""}
        for key, field in model.model_fields.items()
    ]


def _mean(model: type[FlatSettings], key: str, value: Any, raw: str) -> Any:
    """What a typed value means for this key: ``none``, ``inf``, whole floats, numbers as text."""
    core, optional = kind(model.model_fields[key])
    if optional and raw.lower() in ("none", "null"):
        return None
    if core is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if core is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return raw if core is str and not isinstance(value, str) else value


def _explain(model: type[FlatSettings], item: Any) -> str:
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    key = str(item["loc"][0])
    core, _ = kind(model.model_fields[key])
    text = f"{key} must be {allowed(model.model_fields[key])}, not {show(item['input'])}"
    if get_origin(core) is Literal and isinstance(item["input"], str):
        near = difflib.get_close_matches(item["input"].lower(), [str(w) for w in get_args(core)], n=1)
        text += f" (did you mean '{near[0]}'?)" if near else ""
    return text
