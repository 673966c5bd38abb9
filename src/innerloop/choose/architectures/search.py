"""All searches, in one literal table. A new one is a function and an entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.architectures.draws import Draws
from innerloop.choose.architectures.findings import Resources, SearchOutcome
from innerloop.choose.architectures.prune import PUBLISHED, RELEASED, ROBUST, prune
from innerloop.choose.architectures.ranking import RandomSettings, ShortlistSettings, random_search, shortlist
from innerloop.choose.architectures.space import Space
from innerloop.core.errors import UserError, did_you_mean


class SearchMethod(NamedTuple):
    """A search."""

    title: str
    function: Callable[..., SearchOutcome]
    settings: Any


METHODS: dict[str, SearchMethod] = {
    "published": SearchMethod(
        "MetaNTK-NAS: a supernet is pruned by rank sums, with the intended initialisation",
        prune,
        PUBLISHED,
    ),
    "released": SearchMethod(
        "the same as the authors' code carries it out, slips included",
        prune,
        RELEASED,
    ),
    "robust": SearchMethod(
        "pruning on common draws, with repeats where decisions are close",
        prune,
        ROBUST,
    ),
    "random": SearchMethod("random candidates", random_search, RandomSettings()),
    "shortlist": SearchMethod(
        "the best of random candidates by a rank sum of scores",
        shortlist,
        ShortlistSettings(),
    ),
}
"""Searches by name, in the order of the documentation."""


def find_method(name: str) -> SearchMethod:
    """The entry of that name."""
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise UserError(f"there is no search '{name}'{did_you_mean(name, METHODS)}: there are {known}.")
    return METHODS[name]


def search(
    method: str,
    space: Space[Any],
    draws: Draws,
    *,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    workers: int | None = None,
    keep: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> SearchOutcome:
    """Looks for architectures before any is trained.

    Args:
        method: one of :data:`METHODS`.
        space: where to look.
        draws: repeat → data, see :class:`~innerloop.choose.architectures.draws.PictureDraws`.
        settings: those of the method that differ from their defaults, by name.
        seed: of what the method itself draws; weights and data follow the draws' seed.
        workers: processes of one thread; as many as there are cores if omitted. It changes no number.
        keep: a file for finished measurements: the same call goes on there after an interrupt, and finds what
            it would have found.
        say: told a line now and then, with the time that is left.

    Raises:
        UserError: for unknown methods and settings, and for what cannot be searched.

    >>> from innerloop import glyphs
    >>> from innerloop.choose import PictureDraws, conv_space
    >>> space = conv_space(1, 8, 5, depths=(1, 2), widths=(4, 8))
    >>> draws = PictureDraws(glyphs(), seed=0, side=8, crops=20)
    >>> wanted = {"names": ("flops",), "pool": 4, "keep": 2, "repeats": 1}
    >>> ranking = search("shortlist", space, draws, settings=wanted, workers=1)
    >>> [ranked.scores["flops"] for ranked in ranking.ranked]
    [26880.0, 25760.0]
    """
    entry = find_method(method)
    own, resources = _with_settings(method, entry, settings or {}), Resources(workers, keep, say)
    return entry.function(space, draws, own, seed, resources)._replace(method=method)


def _with_settings(name: str, entry: SearchMethod, given: Mapping[str, Any]) -> Any:
    known = entry.settings._fields
    for word in given:
        if word not in known:
            hint = did_you_mean(word, known)
            raise UserError(f"the search '{name}' has no setting '{word}'{hint}: it has {', '.join(known)}.")
    return entry.settings._replace(**given)
