"""Which settings are read, and when: one kind of table for recipes and for analyses.

A table names a setting and what must hold for anything to read it, in words and as a predicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple


class When(NamedTuple):
    """A condition under which a setting is read."""

    words: str
    holds: Callable[..., bool]


Readers = Mapping[str, tuple[When, ...]]
"""Settings by key, with all conditions that must hold; a setting that is not named is always read."""


def unread_keys(readers: Readers, keys: Iterable[str], *about: Any) -> dict[str, str]:
    """Of some settings those that nothing reads, with what they are for (the first condition that fails).

    >>> readers = {"width": (When("a network", lambda depth: depth > 0),)}
    >>> unread_keys(readers, ["width", "seed"], 0), unread_keys(readers, ["width"], 2)
    ({'width': 'a network'}, {})
    """
    failed = {key: [when.words for when in readers.get(key, ()) if not when.holds(*about)] for key in keys}
    return {key: words[0] for key, words in failed.items() if words}
