"""What the rows of MetaNTK-NAS' tables are made of: lines of the table, costs, differences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from innerloop.core.statistics import mean_interval, paired_difference
from innerloop_studies.papers.figures import bars_figure
from innerloop_studies.papers.metantk import nas
from innerloop_studies.papers.training import mean_by_task
from innerloop_studies.reproduce.rows import Row, counts_row, row, same_row


class Spread(NamedTuple):
    """A mean over independent runs with their standard deviation, which is what the paper's ± is."""

    mean: float
    deviation: float
    runs: int

    def __str__(self) -> str:
        spread = "" if math.isnan(self.deviation) else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread} %"


def spread(values: Iterable[float]) -> Spread:
    """Mean and standard deviation; the latter is not a number for a single run."""
    numbers = list(values)
    return Spread(fmean(numbers), stdev(numbers) if len(numbers) > 1 else math.nan, len(numbers))


class Line(NamedTuple):
    """A line of a table, of one method."""

    cells: int
    parameters: float
    search_minutes: float | None
    training_minutes: float
    runs: int
    accuracy: dict[str, Spread]
    genotypes: list[Any]
    reliability: list[Mapping[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        accuracy = {shots: value._asdict() for shots, value in self.accuracy.items()}
        return {**self._asdict(), "accuracy": accuracy}


def accuracies(runs: Sequence[nas.CaseRun], shots: str) -> Spread:
    """Over independent runs, in percent."""
    return spread(run.accuracy(shots) for run in runs)


def line_of(runs: Sequence[nas.CaseRun], cells: int) -> Line:
    """A line of the table: parameters, search cost, and accuracies with standard deviations."""
    searches = [run.search for run in runs if run.search is not None]
    parameters, training = (fmean(run.training[key] for run in runs) for key in ("parameters", "seconds"))
    search = fmean(one["seconds"] for one in searches) / 60 if searches else None
    accuracy = {shots: accuracies(runs, shots) for shots in runs[0].shots}
    cell, sure = [run.genotype for run in runs], [one["reliability"] for one in searches]
    return Line(cells, parameters, search, training / 60, len(runs), accuracy, cell, sure)


SEARCH_LIMIT, TRAINING_LIMIT = 600.0, 480.0
"""Seconds of one core that a search and a training may take at ``cpu``."""

FLOOR = {"1": 29.4, "5": 35.8}  # raw pixels' nearest neighbour on CIFAR-FS, in percent, by shots

Runs = Mapping[nas.SearchCase, nas.CaseRun]


def of(runs: Runs, method: str, data: str, cells: int) -> list[nas.CaseRun]:
    """The runs of a method, in the order of seeds."""
    chosen = {case: run for case, run in runs.items() if (case.method, case.data) == (method, data)}
    return [run for case, run in chosen.items() if case.cells == cells or method == "RFS"]


def tables_of(runs: Runs, methods: Sequence[str]) -> dict[tuple[str, int], dict[str, Line]]:
    """A table for every data set and number of cells, a line for every method."""
    pairs = sorted({(case.data, case.cells) for case in runs})
    return {(d, n): {m: line_of(of(runs, m, d, n), n) for m in methods} for d, n in pairs}


def compared(shots: str, ours: Sequence[nas.CaseRun], theirs: Sequence[nas.CaseRun]) -> tuple[float, str]:
    """How many points better the first is on average, and both in words."""
    means = [accuracies(runs, shots) for runs in (ours, theirs)]
    return means[0].mean - means[1].mean, f"{means[0]} against {means[1]}: {difference(ours, theirs, shots)}"


def difference(first: Sequence[nas.CaseRun], second: Sequence[nas.CaseRun], shots: str) -> str:
    """First minus second in words: over the same test tasks, and over independent runs."""
    both = ([run.training["scores"][shots] for run in runs] for runs in (first, second))
    tasks = paired_difference(*map(mean_by_task, both))
    text = f"± {100 * tasks.ci95:.2f} over tasks"
    pairs = list(zip(first, second, strict=False))
    if len(pairs) > 1:
        over = mean_interval([a.accuracy(shots) - b.accuracy(shots) for a, b in pairs])
        text += f", ± {over.ci95:.2f} over runs"
    return f"{100 * tasks.mean:+.2f} points ({text})"


def table_row(where: str, lines: Mapping[str, Line], paper: str, scale: str) -> Row:
    """The whole table as one row; it holds if every method is above raw pixels' nearest neighbour."""
    floor = FLOOR if scale == "cpu" else {"1": 20.0}

    def told(line: Line) -> str:
        cost = "" if line.search_minutes is None else f", {line.search_minutes:.1f} min of search"
        scores = " / ".join(str(value) for value in line.accuracy.values())
        return f"{scores} ({line.parameters / 1e6:.3f} M parameters{cost})"

    pairs = [pair for line in lines.values() for pair in line.accuracy.items()]
    above = [value.mean > floor[shots] for shots, value in pairs if shots in floor]
    words = ", ".join(f"{value} % with {shots}" for shots, value in floor.items())
    what = f"{where}, 1 and 5 shots: accuracies, all above raw pixels' nearest neighbour ({words} shots)"
    said = "; ".join(f"{method} {told(line)}" for method, line in lines.items())
    why = "± is the standard deviation over independent searches and trainings"
    return row(what, paper, said, bool(above) and all(above), reason=why)


def within_limits(runs: Runs) -> Row:
    """Whether searches and trainings of ``cpu`` kept their time: as recorded either way."""
    costs = [run.search["seconds"] for run in runs.values() if run.search is not None]
    times = [run.training["seconds"] for run in runs.values()]
    within = max(costs) <= SEARCH_LIMIT and max(times) <= TRAINING_LIMIT
    what = "no search takes more than 10 minutes of one core, and no training more than 8"
    paper = "1.54 h (5 cells, mini-ImageNet, V100)"
    said = f"{max(costs) / 60:.1f} and {max(times) / 60:.1f} minutes at most"
    why = "the limits are this scale's own; a time depends on what else the machine does"
    return row(what, paper, said, within, expected=within, reason=why)


def smoke_rows(runs: Runs) -> list[Row]:
    """What must hold however little was searched and trained."""
    every = [scores for run in runs.values() for scores in run.training["scores"].values()]
    counts = counts_row([(fmean(scores), nas.WAYS * nas.SMOKE_QUERIES * len(scores)) for scores in every])
    case, run = next((case, run) for case, run in reversed(list(runs.items())) if run.search is not None)
    again = nas.trained(recipe=nas.recipe_of(case, run.genotype), heads=nas.heads_of(case))["scores"]
    pairs = [pair for name in again for pair in zip(run.training["scores"][name], again[name], strict=True)]
    wanted = nas.search_of(case)
    assert wanted is not None
    same = nas.found_cell(**wanted)["genotype"] == run.genotype
    searched_again = row("a search that is repeated finds the same cell", "the same", "it does" * same, same)
    return [counts, same_row("a training that is repeated gives the same accuracies", pairs), searched_again]


def figure_of(lines: Mapping[str, Line], title: str) -> Figure:
    """A bar for every method, with its standard deviation; a panel for every number of shots."""
    shots = list(next(iter(lines.values())).accuracy)
    groups = {f"{n}-shot": {m: line.accuracy[n][:2] for m, line in lines.items()} for n in shots}
    return bars_figure(groups, title)


def protocol(scale: str) -> dict[str, Any]:
    """What a reader needs to judge the numbers."""
    data = {
        "smoke": "embedded glyphs; Tiny-ImageNet's photographs at 84 pixels where there are any",
        "cpu": "CIFAR-FS, made of CIFAR-100, 32×32, in place of mini- and tiered-ImageNet",
        "paper": "mini-ImageNet and tiered-ImageNet, 84×84",
    }
    pruned = ", ".join(f"{name}={value}" for name, value in nas.PRUNED[scale].items()) or "as published"
    return {
        "data": data[scale],
        "network": f"{2 if scale == 'smoke' else '5 (and at paper 8)'} cells, {nas.CHANNELS[scale]} channels",
        "search": f"Algorithm 1 with the intended Kaiming re-initialisation; {pruned}; 3 tasks of 5 classes "
        "with 1 + 1 pictures at 32×32. The NTK of TE-NAS has as many pictures as MetaNTK (footnote 11)",
        "ResNet-12": "a thin one at cpu, 2.0 million parameters, for as much time of one core as cells have",
        "baselines": "Largest: most parameters and FLOPs of 30 random cells; NASWOT: the best of 30 by it",
        "training": "RFS without distillation; the last weights are judged",
        "heads": "appendix E: 1-shot SVC (C = 0.2 with 5 cells), 5-shot logistic regression (C = 0.6)",
        "±": f"standard deviation over {nas.SEEDS[scale]} independent runs of search, training and test",
        "search cost": "processor time of one core",
    }
