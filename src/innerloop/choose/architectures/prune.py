"""Searches that prune a supernet (MetaNTK-NAS, Algorithm 1): as published, as released, and by racing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from innerloop.choose.architectures.draws import Draws
from innerloop.choose.architectures.findings import (
    PruningReliability,
    RankedCandidate,
    Resources,
    SearchOutcome,
)
from innerloop.choose.architectures.importance import (
    Decision,
    Numbers,
    StageTable,
    affordable,
    contests,
    decide,
    race_rule,
    race_values,
    rank_rule,
    spreads,
)
from innerloop.choose.architectures.measure import (
    REGIONS,
    Bench,
    ScoringJob,
    Seeds,
    Watch,
    own_seeds,
)
from innerloop.choose.architectures.ranking import mean_of, noise_of
from innerloop.choose.architectures.space import Space
from innerloop.choose.architectures.stages import (
    Stage,
    check_start,
    crowded_nodes,
    edge_stage,
    node_stage,
    remove_operators,
    rounds_of,
)
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.random import derive_seed
from innerloop.kernels.meta.descent import Descent, check_descent
from innerloop.nets.cells.genotype import Choices, genotype_of

MOST_REPEATS = 100


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
    for name, hint in get_type_hints(PruneSettings).items():
        word, known = getattr(settings, name), get_args(hint)
        if get_origin(hint) is Literal and word not in known:
            meant = did_you_mean(str(word), known)
            raise UserError(f"{{{name}}}={word} is unknown{meant}: give {', '.join(known)}.", names=(name,))
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


PER_STAGE = 100_000
"""Draws that belong to one stage."""

_FIXED_WORK = 8
"""What a network costs beside the operators on its edges, in operators."""


class StageMeasurement(NamedTuple):
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
        self._found: dict[tuple[str, StageMeasurement], float] = {}
        self.repeats = 0

    def measure(self, wanted: list[tuple[int, int]]) -> None:
        """Items in repeats, with what they are compared with."""
        own = self._settings.data == "candidate"
        pruned = [StageMeasurement(item, repeat, item if own else 0) for item, repeat in wanted]
        wholes = list(dict.fromkeys(place._replace(item=None) for place in pruned))
        places = [p for p in (*wholes, *pruned) if (self._settings.names[0], p) not in self._found]
        made = [(place, job) for place in places for job in self._jobs(place)]
        jobs = [job for _, job in made]
        results = self._bench.run(jobs, lambda at, kept: self._watch.tick(work_of(jobs[at].candidate), kept))
        for (place, _), measured in zip(made, results, strict=True):
            self._found |= {(name, place): value for name, value in measured.values.items()}
        self.repeats = max([self.repeats, *(place.repeat + 1 for place in pruned)])

    def _jobs(self, place: StageMeasurement) -> list[ScoringJob]:
        """One; two where the network that changes are taken from is another one for each score."""
        settings = self._settings
        draw = self._number * PER_STAGE + place.draw_of * MOST_REPEATS + place.repeat
        left = (
            self._choices
            if place.item is None
            else remove_operators(self._choices, [self.stage.items[place.item]])
        )
        job = ScoringJob(
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

    def _seeds(self, place: StageMeasurement, draw: int) -> Seeds:
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

    def table(self) -> StageTable:
        """All that was measured so far."""
        kernel = None if self._settings.kernel == "none" else self._settings.kernel
        regions = REGIONS if self._settings.regions else None
        columns: list[Any] = [
            self._column(name, whole) for whole in (False, True) for name in (kernel, regions)
        ]
        return StageTable(*columns)

    def _column(self, name: str | None, whole: bool) -> Numbers | None:
        if name is None:
            return None
        own = self._settings.data == "candidate"
        made = np.full((len(self.stage.items), self.repeats), np.nan)
        for item in range(len(self.stage.items)):
            for repeat in range(self.repeats):
                place = StageMeasurement(None if whole else item, repeat, item if own else 0)
                made[item, repeat] = self._found.get((name, place), np.nan)
        return made


def work_of(choices: Choices) -> int:
    """How long a network takes, in operators."""
    return _FIXED_WORK + sum(len(operators) for cell in choices for operators in cell)


class Budget(NamedTuple):
    """Of a race: measurements beyond the first ones, and candidates that are still to come."""

    extra: float
    candidates: int

    def share(self, stage: Stage) -> int:
        """What this stage may spend."""
        return int(self.extra * len(stage.items) / max(self.candidates, len(stage.items)))

    def after(self, stage: Stage, spent: int) -> Budget:
        """What later stages have."""
        return Budget(self.extra - spent, self.candidates - len(stage.items))


def prune(
    space: Space[Any], draws: Draws, settings: PruneSettings, seed: int, resources: Resources
) -> SearchOutcome:
    """Prunes until one operator is left on every edge, and then to two edges into every node."""
    left = _start(space, settings)
    counts = list(_plan(left, settings))
    candidates = sum(len(stage.items) for stage, _ in counts)
    watch = Watch(_work(counts, settings), "measurements", resources.say)
    decisions: list[Decision] = []
    with Bench(space, draws, resources.workers, resources.keep) as bench:
        budget = Budget((settings.budget - settings.repeats) * candidates, candidates)
        for number, (stage, choices, base) in enumerate(_stages(left, settings, decisions)):
            stage_bench = StageBench(bench, settings, seed, number, stage, choices, base, watch)
            decision, spent = _decide(stage_bench, settings, seed, budget)
            budget = budget.after(stage, spent)
            decisions.append(decision)
            left = remove_operators(choices, decision.removed)
            if resources.say is not None:
                resources.say(decision.line())
        ranked = _ranked(bench, settings, left)
        seconds = bench.seconds
    return SearchOutcome(
        "",
        [ranked],
        _reliability(decisions),
        [decision.round() for decision in decisions],
        seconds,
        sum(decision.measured for decision in decisions),
    )


def foreseen_seconds(space: Space[Any], draws: Draws, settings: PruneSettings) -> float:
    """What pruning would take on one core, from one measurement of the network that it starts with."""
    start = _start(space, settings)
    job = ScoringJob(
        start, settings.names, 0, None, settings.network(), settings.network(True), settings.score_settings
    )
    with Bench(space, draws, workers=1) as bench:
        bench.run([job])  # the first one also loads what the others find loaded
        once = bench.run([job._replace(draw=1)])[0].seconds
    return once * _work(list(_plan(start, settings)), settings) / work_of(start)


def _start(space: Space[Any], settings: PruneSettings) -> Choices:
    """What is pruned, after the settings were looked at."""
    check_settings(settings)
    if space.start is None:
        raise UserError(
            f"the space {space.name} has no supernet that could be pruned: search with shortlist or random, "
            "or in the space cells."
        )
    return check_start(settings.start or space.start)


def _plan(choices: Choices, settings: PruneSettings) -> Iterator[tuple[Stage, Choices]]:
    """The stages there will be, as if the first operators were pruned: their sizes do not depend on which."""
    for number in range(rounds_of(choices)):
        stage = edge_stage(choices, number + 1)
        yield stage, choices
        choices = remove_operators(choices, (stage.items[group.places[0]] for group in stage.groups))
    for stage in _last_stages(choices, settings):
        yield stage, choices


def _last_stages(choices: Choices, settings: PruneSettings) -> list[Stage]:
    nodes = crowded_nodes(choices)
    if settings.together:
        return [node_stage(choices)] if nodes else []
    return [node_stage(choices, [node]) for node in nodes]


def _stages(
    choices: Choices, settings: PruneSettings, decisions: list[Decision]
) -> Iterator[tuple[Stage, Choices, Choices | None]]:
    """Every stage with what is left before it; decisions are read as they are appended."""
    for number in range(rounds_of(choices)):
        yield edge_stage(choices, number + 1), choices, None
        choices = remove_operators(choices, decisions[-1].removed)
    whole = choices if settings.stale else None
    for stage in _last_stages(choices, settings):
        yield stage, choices, whole
        choices = remove_operators(choices, decisions[-1].removed)


def _work(counts: list[tuple[Stage, Choices]], settings: PruneSettings) -> float:
    """Of the whole search, as far as it can be foreseen."""
    often = settings.repeats if settings.rule == "ranks" else settings.budget
    wholes = 2.0 if settings.data == "candidate" else 1.0
    return sum(often * (wholes * len(stage.items) + (wholes == 1)) * work_of(left) for stage, left in counts)


def _decide(bench: StageBench, settings: PruneSettings, seed: int, budget: Budget) -> tuple[Decision, int]:
    """The decision of a stage, and how many measurements beyond the first it took."""
    stage, first = bench.stage, settings.repeats
    bench.measure([(item, repeat) for repeat in range(first) for item in range(len(stage.items))])
    if settings.rule == "ranks":
        return decide(stage, bench.table(), rank_rule(settings.decimals, settings.figures), seed), 0
    units = spreads(bench.table(), first)
    rule, spent = race_rule(units, stage.groups), 0
    for repeat in range(first, settings.most):
        table = bench.table()
        values, order = race_values(table, units), rule(table, np.arange(table.repeats))
        noise = noise_of(values, [group.places for group in stage.groups], first)
        open_ = contests(values, order, stage.groups, noise, settings.confidence)
        items = affordable(open_, budget.share(stage) - spent)
        if not items:
            break
        bench.measure([(item, repeat) for item in items])
        spent += len(items)
    return decide(stage, bench.table(), rule, seed), spent


def _ranked(bench: Bench, settings: PruneSettings, choices: Choices) -> RankedCandidate:
    """What is left, with its own scores."""
    genotype = genotype_of(choices)
    shared = (settings.network(), settings.network(thin=True), settings.score_settings)
    measured = bench.run(
        [ScoringJob(genotype, settings.names, repeat, None, *shared) for repeat in range(settings.repeats)]
    )
    scores = {name: sum(each.values[name] for each in measured) / len(measured) for name in settings.names}
    return RankedCandidate(genotype, scores)


def _reliability(decisions: list[Decision]) -> PruningReliability:
    """What is reported of the whole search; ``edges`` has every single decision."""
    edges = [edge for decision in decisions for edge in decision.edges()]
    return PruningReliability(
        again=mean_of(edge.again for edge in edges),
        chance=mean_of(edge.chance for edge in edges),
        tau=mean_of(edge.tau for edge in edges),
        tau_condition=mean_of(decision.taus.get("condition") for decision in decisions),
        tau_regions=mean_of(decision.taus.get("regions") for decision in decisions),
        edges=edges,
    )
