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
    """Settings of the searches that prune a supernet. The defaults are those of ``robust``."""

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
    """Refuses what cannot be meant."""
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
