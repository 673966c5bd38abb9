"""Two evaluations on the same episodes, and several seeds of one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from innerloop.core.errors import UserError
from innerloop.core.statistics import Interval, mean_interval, paired_difference
from innerloop.evaluation.episodes import Episodes, other_episodes
from innerloop.evaluation.scores import Evaluation


class Comparison(NamedTuple):
    """``first − second``, episode by episode.

    Attributes:
        first: mean and interval over episodes of the one.
        second: of the other.
        difference: mean and interval of the differences: sharper than what the two intervals say, because
            hard episodes are hard for both.
        verdict: ``first``, ``second`` or ``no clear difference``, at 95 %.
    """

    first: Interval
    second: Interval
    difference: Interval
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "first": self.first.mean,
            "second": self.second.mean,
            "difference": self.difference.mean,
            "ci95": self.difference.ci95,
            "episodes": self.difference.n,
            "verdict": self.verdict,
        }


@runtime_checkable
class EpisodeScores(Protocol):
    """What an :class:`Evaluation`, or the result of ``Run.evaluate``, has for a comparison."""

    @property
    def scores(self) -> list[float]:
        """One per episode, in order."""

    @property
    def score(self) -> str:
        """``accuracy`` or ``mse``."""

    @property
    def drawn(self) -> Episodes | None:
        """Which episodes these are, where that is known."""


def compare(
    first: EpisodeScores | Sequence[float],
    second: EpisodeScores | Sequence[float],
    higher_is_better: bool | None = None,
) -> Comparison:
    """Which of two is better on the episodes that both saw.

    Args:
        first: an evaluation, or its scores in episode order.
        second: another one with the same episodes.
        higher_is_better: true for accuracy, false for errors; by default as the evaluations say, and true for
            plain scores.

    Raises:
        UserError: both evaluations say which episodes they saw, and those are not the same; or one is of
            errors and one of accuracies.

    >>> compare([0.6, 0.8, 0.5], [0.5, 0.7, 0.4]).verdict      # each 0.1 better, though they vary by 0.3
    'first'
    """
    scored = [each for each in (first, second) if isinstance(each, EpisodeScores)]
    if len(scored) == 2:
        _check_same(*scored)
    if higher_is_better is None:
        higher_is_better = all(each.score == "accuracy" for each in scored)
    a, b = (each.scores if isinstance(each, EpisodeScores) else list(each) for each in (first, second))
    difference = paired_difference(a, b)
    verdict = "no clear difference"
    # an interval of zero width is not an unknown one: nan fails both comparisons
    if abs(difference.mean) > difference.ci95:
        verdict = "first" if (difference.mean > 0) == higher_is_better else "second"
    return Comparison(mean_interval(a), mean_interval(b), difference, verdict)


def _check_same(first: EpisodeScores, second: EpisodeScores) -> None:
    """Refuses scores that cannot be subtracted episode by episode."""
    if first.score != second.score:
        raise UserError(f"{first.score} and {second.score} have no difference: compare two of the same kind.")
    reason = other_episodes(first.drawn, second.drawn) if first.drawn and second.drawn else ""
    if reason:
        raise UserError(
            f"the two cannot be compared episode by episode: {reason}; evaluate both on the same episodes, "
            "or compare their means."
        )


def over_seeds(evaluations: Sequence[Evaluation]) -> Interval:
    """Mean and interval over training seeds: the number for a method, where one run's is for a network.

    >>> runs = [Evaluation([mean], mean_interval([mean]), "accuracy") for mean in (0.60, 0.62, 0.64)]
    >>> str(over_seeds(runs))
    '0.62 ± 0.05 (95 % CI, n=3)'
    """
    return mean_interval([evaluation.interval.mean for evaluation in evaluations])
