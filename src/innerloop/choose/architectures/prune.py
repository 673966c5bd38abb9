"""Searches that prune a supernet (MetaNTK-NAS, Algorithm 1): as published, as released, and by racing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.architectures.decision import Decision, decide
from innerloop.choose.architectures.draws import Draws
from innerloop.choose.architectures.found import Found, Means, PruningReliability, Ranked
from innerloop.choose.architectures.importance import race_rule, race_values, rank_rule, spreads
from innerloop.choose.architectures.measure import Job
from innerloop.choose.architectures.pool import Bench
from innerloop.choose.architectures.prune_settings import PruneSettings, check_settings
from innerloop.choose.architectures.race import affordable, contests
from innerloop.choose.architectures.reliability import mean_of, noise_of
from innerloop.choose.architectures.space import Space
from innerloop.choose.architectures.stage_table import StageBench, work_of
from innerloop.choose.architectures.stages import (
    Stage,
    check_start,
    crowded_nodes,
    edge_stage,
    lacking,
    node_stage,
    rounds_of,
)
from innerloop.choose.architectures.watch import Watch
from innerloop.core.errors import UserError
from innerloop.nets.cells.genotype import Choices, genotype_of


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


def prune(space: Space[Any], draws: Draws, settings: PruneSettings, seed: int, means: Means) -> Found:
    """Prunes until one operator is left on every edge, and then to two edges into every node."""
    left = _start(space, settings)
    counts = list(_plan(left, settings))
    candidates = sum(len(stage.items) for stage, _ in counts)
    watch = Watch(_work(counts, settings), "measurements", means.say)
    decisions: list[Decision] = []
    with Bench(space, draws, means.workers, means.keep, means.ranks) as bench:
        budget = Budget((settings.budget - settings.repeats) * candidates, candidates)
        for number, (stage, choices, base) in enumerate(_stages(left, settings, decisions)):
            stage_bench = StageBench(bench, settings, seed, number, stage, choices, base, watch)
            decision, spent = _decided(stage_bench, settings, seed, budget)
            budget = budget.after(stage, spent)
            decisions.append(decision)
            left = _left(choices, decision)
            if means.say is not None:
                means.say(decision.line())
        ranked = _ranked(bench, settings, left)
        seconds = bench.seconds
    return Found(
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
    job = Job(
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
        choices = lacking(choices, (stage.items[group.places[0]] for group in stage.groups))
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
        choices = _left(choices, decisions[-1])
    whole = choices if settings.stale else None
    for stage in _last_stages(choices, settings):
        yield stage, choices, whole
        choices = _left(choices, decisions[-1])


def _left(choices: Choices, decision: Decision) -> Choices:
    return lacking(choices, decision.removed)


def _work(counts: list[tuple[Stage, Choices]], settings: PruneSettings) -> float:
    """Of the whole search, as far as it can be foreseen."""
    often = settings.repeats if settings.rule == "ranks" else settings.budget
    wholes = 2.0 if settings.data == "candidate" else 1.0
    return sum(often * (wholes * len(stage.items) + (wholes == 1)) * work_of(left) for stage, left in counts)


def _decided(bench: StageBench, settings: PruneSettings, seed: int, budget: Budget) -> tuple[Decision, int]:
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


def _ranked(bench: Bench, settings: PruneSettings, choices: Choices) -> Ranked:
    """What is left, with its own scores."""
    genotype = genotype_of(choices)
    shared = (settings.network(), settings.network(thin=True), settings.score_settings)
    measured = bench.run(
        [Job(genotype, settings.names, repeat, None, *shared) for repeat in range(settings.repeats)]
    )
    scores = {name: sum(each.values[name] for each in measured) / len(measured) for name in settings.names}
    return Ranked(genotype, scores)


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
