"""Measuring a stage: networks without one operator each, and the network that they are compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.architectures.importance import Numbers, Table
from innerloop.choose.architectures.measure import REGIONS, Job, Measured, Seeds, own_seeds
from innerloop.choose.architectures.pool import Bench
from innerloop.choose.architectures.prune_settings import MOST_REPEATS, PruneSettings
from innerloop.choose.architectures.stages import Stage, lacking
from innerloop.choose.architectures.watch import Watch
from innerloop.core.random import derive_seed
from innerloop.nets.cells.genotype import Choices

PER_STAGE = 100_000
"""Draws that belong to one stage."""

_FIXED_WORK = 8
"""What a network costs beside the operators on its edges, in operators."""


class Place(NamedTuple):
    """One measurement of a stage: which item is removed (None: none is), in which repeat, on whose draw."""

    item: int | None
    repeat: int
    draw_of: int


class StageBench:
    """Measures items of one stage, as often as it is asked, and has what was measured as a table."""

    def __init__(
        self,
        bench: Bench,
        settings: PruneSettings,
        seed: int,
        number: int,
        stage: Stage,
        choices: Choices,
        base: Choices | None,
        watch: Watch,
    ) -> None:
        self.stage = stage
        self._bench, self._settings, self._seed, self._number = bench, settings, seed, number
        self._choices, self._base, self._watch = choices, base or choices, watch
        self._found: dict[tuple[str, Place], float] = {}
        self.repeats = 0

    def measure(self, wanted: list[tuple[int, int]]) -> None:
        """Items in repeats, with what they are compared with."""
        own = self._settings.data == "candidate"
        pruned = [Place(item, repeat, item if own else 0) for item, repeat in wanted]
        wholes = list(dict.fromkeys(place._replace(item=None) for place in pruned))
        places = [place for place in (*wholes, *pruned) if not self._has(place)]
        made = [(place, job) for place in places for job in self._jobs(place)]
        jobs = [job for _, job in made]
        results = self._bench.run(jobs, lambda at, kept: self._watch.tick(work_of(jobs[at].candidate), kept))
        for (place, _), measured in zip(made, results, strict=True):
            self._put(place, measured)
        self.repeats = max([self.repeats, *(place.repeat + 1 for place in pruned)])

    def _has(self, place: Place) -> bool:
        return (self._settings.names[0], place) in self._found

    def _put(self, place: Place, measured: Measured) -> None:
        for name, value in measured.values.items():
            self._found[name, place] = value

    def _jobs(self, place: Place) -> list[Job]:
        """One; two where the network that changes are taken from is another one for each score."""
        settings = self._settings
        draw = self._number * PER_STAGE + place.draw_of * MOST_REPEATS + place.repeat
        left = self._choices if place.item is None else lacking(self._choices, [self.stage.items[place.item]])
        job = Job(
            left,
            settings.names,
            draw,
            self._seeds(place, draw),
            settings.network(),
            settings.network(thin=True),
            settings.score_settings,
        )
        if place.item is not None or self._base == self._choices or settings.kernel == "none":
            return [job]
        parts = [job._replace(candidate=self._base, names=(settings.kernel,)), job._replace(names=(REGIONS,))]
        return parts if settings.regions else parts[:1]

    def _seeds(self, place: Place, draw: int) -> Seeds:
        settings = self._settings
        seeds = own_seeds(self._bench.look(draw)[1], settings.thin)
        if settings.redraw == "round":  # a thin network is made anew for every candidate all the same
            thin = tuple(
                derive_seed(self._seed, "thin", self._number, place.draw_of, each)
                for each in range(settings.thin)
            )
            seeds = seeds._replace(weights=derive_seed(self._seed, "weights", self.stage.name), thin=thin)
        if settings.heads == "own" and settings.kernel != "ntk" and place.item is not None:
            seeds = seeds._replace(head=derive_seed(seeds.head, "without"))
        return seeds

    def table(self) -> Table:
        """All that was measured so far."""
        kernel = None if self._settings.kernel == "none" else self._settings.kernel
        regions = REGIONS if self._settings.regions else None
        columns: list[Any] = [
            self._column(name, whole) for whole in (False, True) for name in (kernel, regions)
        ]
        return Table(*columns)

    def _column(self, name: str | None, whole: bool) -> Numbers | None:
        if name is None:
            return None
        own = self._settings.data == "candidate"
        made = np.full((len(self.stage.items), self.repeats), np.nan)
        for item in range(len(self.stage.items)):
            for repeat in range(self.repeats):
                place = Place(None if whole else item, repeat, item if own else 0)
                made[item, repeat] = self._found.get((name, place), np.nan)
        return made


def work_of(choices: Choices) -> int:
    """How long a network takes, in operators."""
    return _FIXED_WORK + sum(len(operators) for cell in choices for operators in cell)
