"""What advice is: typed parts, each with its evidence, and how well such evidence did where it was tried."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from innerloop.core.statistics import Interval

RowKind = Literal["trained", "pretrained", "untrained"]


class Row(NamedTuple):
    """One line of the table: a method, a pretrained network or what needs no training, on the same tasks.

    Attributes:
        method: its name.
        words: what it is called in sentences.
        kind: whether it was trained here, by others, or not at all.
        score: over the validation tasks that it was judged on last; None where it diverged.
        episodes: how many these are.
        fresh: whether these tasks had decided nothing before.
        steps: meta-steps of training.
        seconds: that training and judging took here, on one core.
        parameters: of its network.
        step_seconds: what a meta-step takes on one core; None where nothing is trained.
        whole_seconds: what its whole training would take on one core; None where nothing is trained.
        note: what else is to be known, or nothing.
        scores: task by task, for comparisons.
    """

    method: str
    words: str
    kind: RowKind
    score: Interval | None
    episodes: int
    fresh: bool
    steps: int = 0
    seconds: float = 0.0
    parameters: int | None = None
    step_seconds: float | None = None
    whole_seconds: float | None = None
    note: str = ""
    scores: tuple[float, ...] = ()

    def as_dict(self, name: str) -> dict[str, Any]:
        """For files: ``cost`` is what the whole training would take on one core, in seconds."""
        plain = self._asdict()
        for key in ("score", "scores"):
            del plain[key]
        mean, ci95 = (None, None) if self.score is None else (self.score.mean, self.score.ci95)
        return {**plain, name: mean, "ci95": ci95, "cost": self.whole_seconds}


class RatePart(NamedTuple):
    """The inner rate.

    Attributes:
        applies: whether there is an estimate.
        reason: why not, or what it is an estimate for.
        method: whose rate.
        alpha: the point.
        low: lower end of the bracket or range.
        high: its upper end.
        sweep: rates to try.
        convention: which loss the rate is of.
        factor: how far the truth may be, up and down.
        warning: about the rate that the user gave; nothing if it is fine.
        reasons: where it comes from.
    """

    applies: bool
    reason: str
    method: str = ""
    alpha: float | None = None
    low: float | None = None
    high: float | None = None
    sweep: tuple[float, ...] = ()
    convention: str = ""
    factor: float | None = None
    warning: str = ""
    reasons: tuple[str, ...] = ()


class HardGroup(NamedTuple):
    """A group of classes, or a task, in the ranking of hardness: its name and how it did."""

    name: str
    value: float
    tasks: int


class HardnessPart(NamedTuple):
    """Which groups of tasks are hard, hardest first.

    Attributes:
        groups: the ranking; empty where there are none to rank.
        by: what was measured.
        evidence: how well such a ranking has predicted.
        reason: why there is none, if there is none.
    """

    groups: tuple[HardGroup, ...]
    by: str
    evidence: str
    reason: str = ""


class LandscapePart(NamedTuple):
    """Whether closed forms say what adapting brings.

    Attributes:
        applies: whether they do.
        reason: why, or why not.
        gain: excess risk of non-adaptive learning over that of MAML, where they apply.
        interval: of the gain, 95 %.
        why: the reason in full, where there is more to say.
    """

    applies: bool
    reason: str
    gain: float | None = None
    interval: tuple[float, float] | None = None
    why: str = ""


class Recommendation(NamedTuple):
    """What to do.

    Attributes:
        method: the name of a row.
        sentence: what to do and why, in one sentence.
        sure: how sure that is, in one sentence.
        decided: whether it is beyond chance on these tasks that nothing else in the table is better.
        recipe: the file to train, where something is to be trained.
        command: what to type.
    """

    method: str
    sentence: str
    sure: str
    decided: bool
    recipe: str | None
    command: str


class Advice(NamedTuple):
    """What a problem needs, with its evidence.

    Attributes:
        source: what was asked about.
        tasks: the tasks, in words.
        score: ``accuracy`` or ``mse``.
        rows: methods and baselines, best first.
        rate: the inner rate.
        hardness: which task groups are hard.
        landscape: what closed forms say.
        architecture: parameters and time of what was raced, and whether a search is worth starting.
        recommendation: what to do.
        reasons: sentences, each with its evidence.
        not_examined: what was not looked at.
        seconds: that it took.
        run: its directory.
    """

    source: str
    tasks: str
    score: str
    rows: tuple[Row, ...]
    rate: RatePart
    hardness: HardnessPart
    landscape: LandscapePart
    architecture: str
    recommendation: Recommendation
    reasons: tuple[str, ...]
    not_examined: tuple[str, ...]
    seconds: float
    run: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as the command's JSON and the run's ``result.json`` have it."""
        plain = self._asdict()
        del plain["rows"]
        return {
            **plain,
            "rate": self.rate._asdict(),
            "hardness": {**self.hardness._asdict(), "groups": [g._asdict() for g in self.hardness.groups]},
            "landscape": self.landscape._asdict(),
            "recommendation": self.recommendation._asdict(),
            "pilot": [row.as_dict(self.score) for row in self.rows],
        }


RACES = {
    "pictures": (
        "A race of a minute on one core was tried on ten problems: on 8 of 10 its first choice was within a "
        "point of the best method of a race ten times as long (5.2 points below at worst), and 6 of 8 leads "
        "that were more than chance lasted (`innerloop reproduce advice-race`)."
    ),
    "numbers": (
        "A race of 18 seconds on one core was tried on ten problems: on 8 of 10 its first choice had an "
        "error at most a tenth above that of the best method of a race ten times as long (55% above at "
        "worst), and 2 of 3 leads that were more than chance lasted (`innerloop reproduce advice-numbers`)."
    ),
}
"""By what targets are."""

GROUPS = (
    "such a ranking agreed with that of trained networks on groups they had not seen with rank "
    "correlations of 0.68 and 0.70 on Omniglot, 0.61 and 0.43 on CIFAR-100"
)
"""Of hard groups of classes (``innerloop reproduce advice-hardness``)."""

GAIN = (
    "of 30 random environments of linear tasks such a gain was within its interval after training in 25, and "
    "off by 10% at most (`innerloop reproduce advice-landscape`)"
)
"""Of the closed-form gain of linear models."""

SEARCH = (
    "A search for another network is worth starting only if it may train its candidates: on CIFAR-FS and "
    "Omniglot no score of untrained networks ranked 40 random cells beyond chance on both, and a random cell "
    "was 2.0 and 7.5 points below the best of them (`innerloop search --validate`)."
)
"""What ``search --validate`` has shown; the whole table is in docs/scores.md."""
