"""Settings in plain words: what there is, what each takes, how it is typed, and what was probably meant.

For recipes and for the flat settings of analyses alike: a setting is a field of a pydantic model.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from innerloop.core.faults import printable, shortened
from innerloop.experiment.recipe.schema import Recipe
from innerloop.learners.entry import KINDS

# what other libraries call our settings: names too far apart for a spelling check
_ELSEWHERE = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "epochs": "steps",
    "iterations": "steps",
    "gpu": "device",
    "k_shot": "shots",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts"}
_LIMITS = (("ge", "of at least"), ("gt", "above"), ("le", "of at most"), ("lt", "below"))


class Infinite:
    """Marks a setting that takes ``inf``: ``Annotated[float, Infinite()]``; all others must be finite."""


def settings_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Every setting of a model by its key, dotted where it stands in a section, in the order of the model."""
    settings: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            settings |= {f"{name}.{key}": inner for key, inner in section.model_fields.items()}
        else:
            settings[name] = field
    return settings


@cache
def known_settings() -> dict[str, FieldInfo]:
    """Every setting of a recipe by its dotted key, in the order of the schema."""
    return settings_of(Recipe)


def kind(field: FieldInfo) -> tuple[Any, bool]:
    """The type of a setting without ``None``, and whether it may be none."""
    annotation = field.annotation
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    others = [part for part in get_args(annotation) if part is not NoneType]
    return others[0], NoneType in get_args(annotation)


def words_beside(field: FieldInfo) -> list[str]:
    """Words that a setting takes besides its first kind, as ``auto`` in ``float | Literal["auto"]``.

    >>> words_beside(known_settings()["inner.lr"])
    ['auto']
    """
    parts = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else ()
    return [str(word) for part in parts[1:] if get_origin(part) is Literal for word in get_args(part)]


def is_table(field: FieldInfo) -> bool:
    """Whether a setting is a free-form table, which takes any key."""
    return get_origin(kind(field)[0]) is dict


def takes_inf(field: FieldInfo) -> bool:
    """Whether a setting may be infinite."""
    return any(isinstance(mark, Infinite) for mark in field.metadata)


def allowed(field: FieldInfo) -> str:
    """What a setting takes, in words.

    >>> allowed(known_settings()["outer.clip"]), allowed(known_settings()["model.pooling"])
    ('a number above 0, or none', 'max or stride')
    """
    core, optional = kind(field)
    if get_origin(core) is Literal:
        words = [str(word) for word in get_args(core)]
        text = f"{', '.join(words[:-1])} or {words[-1]}"
    elif get_origin(core) is list:
        inside = get_args(core)[0]
        example = f" such as {show(field.default)}" if field.default else ""
        text = f"a list of {_PLURALS.get(inside, 'tables')}{example}"
    elif is_table(field):
        text = "a table"
    else:
        text = KINDS[core]
        limits = [
            (word, getattr(m, name)) for m in field.metadata for name, word in _LIMITS if hasattr(m, name)
        ]
        text += " and".join(f" {word} {limit:g}" for word, limit in limits)
    infinite = ["inf"] if takes_inf(field) else []
    return ", or ".join([text, *infinite, *words_beside(field), *(["none"] if optional else [])])


def near(key: str, known: Iterable[str]) -> list[str]:
    """The settings that ``key`` may have meant, likeliest first.

    >>> near("steps", known_settings()), near("inner.learning_rate", known_settings())
    (['inner.steps', 'outer.steps'], ['inner.lr'])
    """
    keys = list(known)
    section, _, leaf = key.replace("-", "_").rpartition(".")
    leaf = _ELSEWHERE.get(leaf, leaf)
    leaves = list(dict.fromkeys(k.rpartition(".")[2] for k in keys))
    same = [k for k in keys if k.rpartition(".")[2] == leaf]
    return (
        [k for k in same if k.startswith(f"{section}.")]
        or same
        or difflib.get_close_matches(key, keys, n=1, cutoff=0.7)
        or [
            k
            for close in difflib.get_close_matches(leaf, leaves, n=1, cutoff=0.7)
            for k in keys
            if k.rpartition(".")[2] == close
        ]
    )[:2]


def suggest(key: str, known: Iterable[str], listing: str = "innerloop show sine-maml --schema") -> str:
    """Up to two settings that ``key`` may have meant, or the command that lists them all.

    >>> suggest("inner.step", known_settings())
    " (did you mean 'inner.steps'?)"
    >>> suggest("zebra", known_settings())
    '; `innerloop show sine-maml --schema` lists them all'
    """
    options = near(key, known)
    if not options:
        return f"; `{listing}` lists them all"
    return f" (did you mean {' or '.join(repr(option) for option in options)}?)"


def likeliest(word: Any, field: FieldInfo) -> str:
    """Which of a setting's words ``word`` may have meant, to append to a message, or nothing.

    >>> likeliest("mamll", known_settings()["inner.method"])
    " (did you mean 'maml'?)"
    """
    core, _ = kind(field)
    if get_origin(core) is not Literal or not isinstance(word, str):
        return ""
    close = difflib.get_close_matches(word.lower(), [str(option) for option in get_args(core)], n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def show(value: Any) -> str:
    """A value as one would type it.

    >>> show("relu"), show([1, 2]), show(True), show(None), show(0.001)
    ("'relu'", '[1, 2]', 'true', 'none', '0.001')
    """
    if isinstance(value, str):
        return f"'{shortened(printable(value))}'"
    return "none" if value is None else shortened(json.dumps(value, default=str, ensure_ascii=False))
