"""What the template of a training run shows, and of several that are compared."""

from __future__ import annotations

from typing import NamedTuple

from innerloop.report.figures import Picture
from innerloop.report.predictions_section import LabelsView
from innerloop.report.views import Ending, Explained, Pairs, SettingRow, Table


class Headline(NamedTuple):
    """The leading number of a run."""

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
    """Everything the template shows of one training run."""

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
    """The table of several runs."""

    rows: list[ComparedRow]
    judged: str
    reference: str
    groups: list[SeedsRow]
    keys: list[str]
    settings: list[list[str]]
    pictures: list[Picture]
