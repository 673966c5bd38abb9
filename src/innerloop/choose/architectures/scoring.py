"""Scores of many candidates over several repeats, and their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.choose.architectures.draws import Draws
from innerloop.choose.architectures.measure import Job
from innerloop.choose.architectures.pool import Bench
from innerloop.choose.architectures.space import Candidate, Space
from innerloop.choose.architectures.watch import Watch
from innerloop.choose.scores.ranks import rank_sums
from innerloop.choose.scores.table import find
from innerloop.core.errors import UserError

Say = Callable[[str], None]
"""Told a line now and then: how far a search is, and how long it will take."""


class Scores(NamedTuple):
    """Every score of every candidate and repeat.

    Attributes:
        values: by name, ``(candidates, repeats)`` in float64.
        reasons: by name, candidate by candidate: why a value is not finite or tells nothing; empty if all is
            well.
        seconds: of all measurements together, on one core.
    """

    values: dict[str, Tensor]
    reasons: dict[str, list[str]]
    seconds: float

    def means(self) -> dict[str, list[float]]:
        """Of every candidate over its repeats, by score."""
        return {name: value.mean(1).tolist() for name, value in self.values.items()}

    def rank_sums(self) -> list[float]:
        """Of the means by all scores; the lowest is the best."""
        return rank_sums(self.means())

    def order(self) -> list[int]:
        """Places of the candidates, the best first; among equals, the first stays first."""
        sums = self.rank_sums()
        return sorted(range(len(sums)), key=sums.__getitem__)


def score_candidates(
    space: Space[Candidate],
    candidates: Sequence[Candidate],
    names: Sequence[str],
    draws: Draws,
    repeats: int = 3,
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int | None = None,
    keep: Path | None = None,
    say: Say | None = None,
    ranks: int = 1,
) -> Scores:
    """Every score of every candidate, on the same draws for all of them.

    Args:
        space: what the candidates belong to.
        candidates: of the space.
        names: of scores, see :data:`~innerloop.choose.scores.table.SCORES`.
        draws: repeat → data; repeats 0 to ``repeats`` − 1 are used.
        repeats: how often; first weights, last layer and data are drawn anew each time.
        settings: further arguments of scores, by name.
        workers: processes of one thread; as many as there are cores if omitted.
        keep: a file for finished measurements: an interrupted call goes on there, with the same numbers.
        say: told a line now and then.
        ranks: processes that all make this call, and share the work.

    Raises:
        UserError: for unknown scores, and for nothing to do.

    >>> from innerloop import glyphs
    >>> from innerloop.choose import conv_space
    >>> from innerloop.choose import PictureDraws
    >>> space = conv_space(1, 8, 5, depths=(1, 2), widths=(4,))
    >>> draws = PictureDraws(glyphs(), seed=0, side=8, crops=20)
    >>> scores = score_candidates(
    ...     space, [space.candidate(0), space.candidate(9)], ["parameters"], draws, 2, workers=1
    ... )
    >>> scores.values["parameters"].shape, scores.order()
    (torch.Size([2, 2]), [1, 0])
    """
    check_names(names)
    if not candidates or repeats < 1:
        raise UserError("there is nothing to score: give at least one candidate and one repeat.")
    jobs = [
        Job(candidate, tuple(names), repeat, settings=settings or {})
        for repeat in range(repeats)
        for candidate in candidates
    ]
    with Bench(space, draws, workers, keep, ranks) as bench:
        watch = Watch(len(jobs), "measurements", say)
        measured = bench.run(jobs, lambda _, kept: watch.tick(kept=kept))
        seconds = bench.seconds
    shape = (repeats, len(candidates))
    values = {
        name: torch.tensor([each.values[name] for each in measured], dtype=torch.float64).view(shape).T
        for name in names
    }
    reasons = {
        name: _first_reasons([each.reasons.get(name, "") for each in measured], shape[1]) for name in names
    }
    return Scores(values, reasons, seconds)


def check_names(names: Sequence[str]) -> None:
    """Refuses scores that there are not, and none at all."""
    if isinstance(names, str) or not names:
        raise UserError("give the names of scores as a list with at least one.")
    for name in names:
        find(name)


def _first_reasons(reasons: list[str], candidates: int) -> list[str]:
    """Of every candidate, the first reason over the repeats."""
    return [next(filter(None, reasons[place::candidates]), "") for place in range(candidates)]
