"""Every score in one literal table, and candidates in the order of scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from innerloop.core.errors import UserError, did_you_mean

Better = Literal["higher", "lower"]
Takes = Literal["tasks", "inputs", "batch", "batches", "shape"]


class ScoreEntry(NamedTuple):
    """What is known of a score."""

    title: str
    paper: str
    function: str
    better: Better
    takes: Takes
    mixes: bool = True
    fixed: Mapping[str, Any] = {}


_HOME = "innerloop.choose.scores"

SCORES: dict[str, ScoreEntry] = {
    "metantk": ScoreEntry(
        "condition number of MAML's kernel",
        "Wang et al. 2022",
        f"{_HOME}.conditions:metantk_condition",
        "lower",
        "tasks",
        mixes=False,
    ),
    "metantk-anil": ScoreEntry(
        "condition number of ANIL's kernel",
        "Wang et al. 2022",
        f"{_HOME}.conditions:metantk_condition",
        "lower",
        "tasks",
        mixes=False,
        fixed={"method": "anil"},
    ),
    "ntk": ScoreEntry(
        "condition number of the NTK",
        "Chen et al. 2021 (TE-NAS)",
        f"{_HOME}.conditions:ntk_condition",
        "lower",
        "inputs",
        mixes=False,
    ),
    "regions": ScoreEntry(
        "linear regions",
        "Chen et al. 2021 (TE-NAS)",
        f"{_HOME}.patterns:linear_regions",
        "higher",
        "inputs",
    ),
    "naswot": ScoreEntry("NASWOT", "Mellor et al. 2021", f"{_HOME}.patterns:naswot", "higher", "inputs"),
    "gradient-norm": ScoreEntry(
        "gradient norm", "Abdelfattah et al. 2021", f"{_HOME}.gradients:gradient_norm", "higher", "batch"
    ),
    "synflow": ScoreEntry(
        "SynFlow", "Tanaka et al. 2020", f"{_HOME}.gradients:synflow", "higher", "shape", mixes=False
    ),
    "zico": ScoreEntry("ZiCo", "Li et al. 2023", f"{_HOME}.gradients:zico", "higher", "batches"),
    "parameters": ScoreEntry("number of parameters", "", f"{_HOME}.sizes:parameters", "higher", "shape"),
    "flops": ScoreEntry("FLOPs of one input", "", f"{_HOME}.sizes:flops", "higher", "shape"),
    "layers": ScoreEntry("number of layers", "", f"{_HOME}.sizes:layers", "higher", "shape"),
}
"""Scores by name, in the order of the documentation."""


def find(name: str) -> ScoreEntry:
    """The entry of that name."""
    if name not in SCORES:
        known = ", ".join(SCORES)
        raise UserError(f"there is no score '{name}'{did_you_mean(name, SCORES)}: there are {known}.")
    return SCORES[name]


def rows() -> str:
    """The documentation's table, as Markdown."""
    lines = ["| name | score | better | looks at | from |", "| --- | --- | --- | --- | --- |"]
    words = {
        "tasks": "inputs of tasks",
        "inputs": "inputs",
        "batch": "inputs and labels",
        "batches": "several batches with labels",
        "shape": "the network alone",
    }
    for name, entry in SCORES.items():
        cells = (f"`{name}`", entry.title, entry.better, words[entry.takes], entry.paper or "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ranks(values: Sequence[float], higher_is_better: bool) -> list[float]:
    """The place of every value, 1 for the best, nan last; equal values share the mean of their places."""
    costs = [math.inf if math.isnan(v) else -v if higher_is_better else v for v in values]
    keys = [(math.isnan(v), cost) for v, cost in zip(values, costs, strict=True)]
    before = {key: sum(other < key for other in keys) for key in set(keys)}
    return [before[key] + (keys.count(key) + 1) / 2 for key in keys]


def rank_sums(columns: Mapping[str, Sequence[float]]) -> list[float]:
    """The sum of every candidate's ranks by several scores; the lowest is the best.

    Args:
        columns: scores by their names in ``SCORES``, which say what is better; candidates in one order.

    Raises:
        UserError: for unknown names and columns of unequal length.

    >>> rank_sums({"parameters": [10, 20, 30], "ntk": [5.0, 7.0, 6.0]})
    [4.0, 5.0, 3.0]
    """
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) != 1:
        raise UserError(f"a rank sum needs every score of every candidate, got {lengths}.")
    placed = [ranks(values, find(name).better == "higher") for name, values in columns.items()]
    return [sum(places) for places in zip(*placed, strict=True)]
