"""What the template of a training run shows, and of several that are compared."""

from __future__ import annotations

from typing import NamedTuple

from innerloop.report.figures import Picture
from innerloop.report.predictions_section import LabelsView
from innerloop.report.views import Ending, Explained, Pairs, SettingRow, Table


class Headline(NamedTuple):
    """The leading number of a run.

    Attributes:
        score: what it is.
        main: the mean.
        half: half the width of its interval, with its sign; empty if there is none.
        protocol: everything that it depends on, in words.
        by: the protocol in brief.
        gain: what a reader must know of it, what adaptation brought, and what needs no training.
    """

    score: str
    main: str
    half: str
    protocol: str
    by: str
    gain: str


class EvaluationRow(NamedTuple):
    """One line of the table of evaluations: its file, score and value, how it was judged, and when."""

    file: str
    score: str
    value: str
    by: str
    own: str
    protocol: str
    time: str


class RunView(NamedTuple):
    """Everything the template shows of one training run.

    Attributes:
        label: what the page calls it.
        name: of its recipe.
        description: of its recipe.
        id: of its directory.
        status: how it ended.
        problems: what could not be read.
        headline: the leading number; None if it was not evaluated.
        evaluations: all of them, the leading one first.
        pictures: that it has data for.
        left_out: why that of a task is missing, if that needs a word.
        labels: that an evaluation gave, where they were kept.
        difficulty: scores of easy and of hard tasks.
        settings: that are not the defaults.
        plan: how tasks were executed.
        rate: how the inner learning rate came about.
        course: how the run went.
        environment: where it ran.
        recipe_text: the whole recipe.
    """

    label: str
    name: str
    description: str
    id: str
    status: Ending
    problems: list[str]
    headline: Headline | None
    evaluations: list[EvaluationRow]
    pictures: list[Picture]
    left_out: str
    labels: LabelsView | None
    difficulty: list[Table]
    settings: list[SettingRow]
    plan: Explained | None
    rate: Explained | None
    course: Pairs
    environment: Pairs
    recipe_text: str


class ComparedRow(NamedTuple):
    """One line of the table of several runs; a dash or nothing where something was not judged."""

    name: str
    status: str
    value: str = "not evaluated"
    score: str = ""
    episodes: str = "–"
    difference: str = "–"
    verdict: str = ""
    median: str = "–"
    by: str = ""
    others: str = "–"


class SeedsRow(NamedTuple):
    """Seeds of one recipe, taken together: their mean, and how many there are."""

    name: str
    seeds: str
    value: str
    score: str
    n: int


class ComparisonView(NamedTuple):
    """The table of several runs.

    Attributes:
        rows: one for every run.
        judged: how, in brief, where that is the same for all; else empty.
        reference: the run that differences are taken to.
        groups: seeds taken together.
        keys: settings that differ.
        settings: their values, run by run.
        pictures: of all runs over each other.
    """

    rows: list[ComparedRow]
    judged: str
    reference: str
    groups: list[SeedsRow]
    keys: list[str]
    settings: list[list[str]]
    pictures: list[Picture]
