"""How a supernet is pruned: one record of settings, of which the searches by pruning are three instances."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from innerloop.choose.architectures.measure import REGIONS
from innerloop.core.errors import UserError, did_you_mean
from innerloop.kernels.meta.descent import Descent, check_descent
from innerloop.nets.cells.genotype import Choices

MOST_REPEATS = 100

_WORDS: dict[str, tuple[str, ...]] = {
    "kernel": ("metantk", "metantk-anil", "ntk", "none"),
    "rule": ("ranks", "race"),
    "weights": ("kaiming", "default"),
    "redraw": ("repeat", "round"),
    "data": ("round", "candidate"),
    "heads": ("common", "own"),
    "degenerate": ("told", "released"),
    "mixing": ("mean", "sum"),
}


class PruneSettings(NamedTuple):
    """Settings of the searches that prune a supernet. The defaults are those of ``robust``.

    Attributes:
        kernel: whose condition number is looked at: ``metantk`` (MAML's kernel), ``metantk-anil``, ``ntk``
            (TE-NAS, on as many pictures), or ``none`` (linear regions only).
        regions: whether linear regions are looked at.
        time: rate times steps of the inner loop in the kernel; ``inf`` goes to convergence.
        ridge: of the inner solve in the kernel.
        rule: ``ranks`` adds up the ranks of both changes; ``race`` adds the changes themselves, each in units
            of its spread, and repeats measurements where a decision is close.
        repeats: how often each candidate is measured; in a race, at first.
        budget: of a race: measurements per candidate on average.
        most: of a race: measurements of one candidate at most.
        confidence: of a race: how sure a comparison must be to be closed.
        thin: thin networks drawn for every count of linear regions.
        weights: first weights: ``kaiming`` (normal, by fan-out for the kernel and fan-in for regions: what
            the paper intends) or torch's ``default`` (what the released code runs with, because it misspells
            the other).
        redraw: weights are drawn anew for every ``repeat``, or only for every ``round``.
        data: tasks and crops are common to all candidates of a ``round``, or drawn for each ``candidate``.
        heads: the network with and without an operator have a last layer in ``common``, or each its ``own``.
        degenerate: a kernel without a condition number counts as infinite (``told``), or as the ``released``
            code has it.
        decimals: relative changes are rounded to this many before they are averaged; None rounds nothing.
        figures: means are put in order by this many significant figures, as the released code does; None
            compares them as they are.
        together: edges into all nodes are compared at once at the end, or node after node.
        stale: at the end, changes of the condition number are taken from the network that no node has been
            thinned in, as the released code does.
        mixing: operators on an edge are averaged (``mean``, as released), or added (``sum``).
        start: operators on every edge at the beginning; all that the space has if omitted.
    """

    kernel: Literal["metantk", "metantk-anil", "ntk", "none"] = "metantk"
    regions: bool = True
    time: float = math.inf
    ridge: float = 1e-3
    rule: Literal["ranks", "race"] = "race"
    repeats: int = 2
    budget: float = 2.5
    most: int = 8
    confidence: float = 0.95
    thin: int = 1
    weights: Literal["kaiming", "default"] = "kaiming"
    redraw: Literal["repeat", "round"] = "repeat"
    data: Literal["round", "candidate"] = "round"
    heads: Literal["common", "own"] = "common"
    degenerate: Literal["told", "released"] = "told"
    decimals: int | None = None
    figures: int | None = None
    together: bool = True
    stale: bool = False
    mixing: Literal["mean", "sum"] = "mean"
    start: Choices | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Scores that are measured."""
        return (() if self.kernel == "none" else (self.kernel,)) + ((REGIONS,) if self.regions else ())

    @property
    def score_settings(self) -> dict[str, dict[str, Any]]:
        """Arguments of the scores."""
        if self.kernel == "none":
            return {}
        own: dict[str, Any] = {"degenerate": self.degenerate}
        if self.kernel != "ntk":
            own["inner"] = Descent(self.time, ridge=self.ridge)
        return {self.kernel: own}

    def network(self, thin: bool = False) -> dict[str, Any]:
        """Arguments of the network, or of the thin one."""
        first = ("fan_in" if thin else "fan_out") if self.weights == "kaiming" else "uniform"
        return {"first_weights": first, "mixing": self.mixing}


ROBUST = PruneSettings()

PUBLISHED = PruneSettings(rule="ranks", repeats=3, data="candidate", decimals=3, together=False)
"""Algorithm 1 with what the paper leaves open taken from the released code, its slips mended."""

RELEASED = PUBLISHED._replace(
    weights="default", redraw="round", heads="own", degenerate="released", figures=3, stale=True
)


def check_settings(settings: PruneSettings) -> None:
    """Refuses what cannot be meant.

    Raises:
        UserError: with the fix.
    """
    for name, known in _WORDS.items():
        word = getattr(settings, name)
        if word not in known:
            hint = did_you_mean(str(word), known)
            raise UserError(f"{{{name}}}={word} is unknown{hint}: give {', '.join(known)}.", names=(name,))
    if not settings.names:
        raise UserError(
            "without a kernel and without regions there is nothing to prune by: set {regions}=true.",
            names=("regions",),
        )
    check_descent(Descent(settings.time, ridge=settings.ridge))
    least = 2 if settings.rule == "race" else 1
    if not least <= settings.repeats <= MOST_REPEATS:
        raise UserError(
            f"{{repeats}}={settings.repeats} cannot be: give {least} to {MOST_REPEATS}.", names=("repeats",)
        )
    if settings.rule == "race" and not settings.repeats <= settings.most <= MOST_REPEATS:
        raise UserError(
            f"{{most}}={settings.most} cannot be: give {settings.repeats} ({{repeats}}) to {MOST_REPEATS}.",
            names=("most", "repeats"),
        )
    if not 0 < settings.confidence < 1 or settings.thin < 1:
        raise UserError(
            "{confidence} lies between 0 and 1 and {thin} is at least 1: set 0.95 and 1.",
            names=("confidence", "thin"),
        )
