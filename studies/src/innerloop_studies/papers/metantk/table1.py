"""MetaNTK-NAS, Table 1: found cells beside MetaNAS' cell and a ResNet-12, all trained as RFS does."""

import itertools

from innerloop.core.errors import UserError
from innerloop_studies.papers.metantk import nas, table
from innerloop_studies.papers.metantk.table import Line, Runs
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, row

TITLE = "MetaNTK-NAS, Table 1: found cells beside MetaNAS' cell and ResNet-12, trained alike"
VERSION = 1
OURS, CELL, NETWORK = "MetaNTK-NAS", "MetaNAS", "RFS"
# accuracy in percent for one and five shots, and millions of parameters, by data and cells
PUBLISHED: dict[tuple[str, int], dict[str, tuple[float, float, float]]] = {
    key: dict(zip((OURS, CELL, NETWORK), numbers, strict=True))
    for key, numbers in {
        ("mini-imagenet", 5): ((63.88, 80.07, 1.77), (64.24, 79.75, 2.01), (62.02, 79.64, 12.5)),
        ("mini-imagenet", 8): ((64.26, 80.35, 3.21), (63.88, 79.88, 3.53), (62.02, 79.64, 12.5)),
        ("tiered-imagenet", 5): ((71.12, 85.71, 2.22), (70.16, 84.99, 2.17), (69.74, 84.41, 12.7)),
        ("tiered-imagenet", 8): ((72.37, 86.43, 4.78), (72.32, 86.48, 3.70), (69.74, 84.41, 12.7)),
    }.items()
}
LIKE = ("mini-imagenet", 5)  # what a table that the paper does not have is compared with
DATA = {"smoke": ("glyphs",), "cpu": ("cifar-fs",), "paper": ("mini-imagenet", "tiered-imagenet")}
CLOSE = 1.0  # points within which two accuracies count as comparable
FEWER = 2.5  # the paper: 2.5 to 6 times fewer parameters than ResNet-12
_LARGER = "ResNet-12 has 41 times the parameters of these cells, and gains more from five shots"
OTHERWISE = {(NETWORK, "5"): _LARGER}
"""What was found at `cpu` where it is not what the paper found, by the other network and shots."""


def cases(scale: str) -> list[nas.SearchCase]:
    """Found cells, MetaNAS' cell and ResNet-12, with every seed; 8 cells at ``paper`` only."""
    stacks = (5, 8) if scale == "paper" else (5,)
    asked = [*itertools.product(stacks, (OURS, CELL)), (5, NETWORK)]
    chosen = itertools.product(DATA[scale], range(nas.SEEDS[scale]), asked)
    return [nas.SearchCase(scale, data, method, seed, cells) for data, seed, (cells, method) in chosen]


def run(scale: str, say: Say) -> Reproduction:
    """At ``smoke`` on the embedded glyphs and on photographs at 84 pixels, at ``cpu`` on CIFAR-FS."""
    runs = nas.carry_out(cases(scale), say)
    tables = table.tables_of(runs, (OURS, CELL, NETWORK))
    figures = {}
    for (d, n), lines in tables.items():
        figures[f"metantk-table1-{d}-{n}-cells"] = table.figure_of(lines, f"5-way accuracy, {d}, {n} cells")
    rows, said = [] if scale == "smoke" else _rows(runs, tables, scale), table.protocol(scale)
    if scale == "smoke":
        large = _at_84_pixels(say)
        rows = [*table.smoke_rows(runs), *large]
        skipped = "skipped: there are no Tiny-ImageNet photographs (INNERLOOP_TINY_IMAGENET)"
        said |= {} if large else {"84 pixels": skipped}
    data = {f"{d}, {n} cells": {m: one.as_dict() for m, one in tables[d, n].items()} for d, n in tables}
    return Reproduction(rows, figures, data, said)


def _at_84_pixels(say: Say) -> list[Row]:
    """The whole way from search to test on photographs of mini-ImageNet's size, where there are any."""
    try:
        nas.packed()
    except UserError as error:
        say(f"84 pixels are skipped: {error}")
        return []
    (outcome,) = nas.carry_out([nas.SearchCase("smoke", nas.TINY, OURS, 0)], lambda _: None).values()
    say("84 pixels: searched, trained and judged on Tiny-ImageNet's photographs")
    scores = [score for each in outcome.training["scores"].values() for score in each]
    counted = counts_row([(score, nas.WAYS * nas.SMOKE_QUERIES) for score in scores])
    said = counted.ours.replace("are", "accuracies are whole numbers of right answers")
    what = "a cell is searched, trained and judged at 84 pixels (Tiny-ImageNet's photographs)"
    return [row(what, "mini-ImageNet", said, counted.holds)]


def _rows(runs: Runs, tables: dict[tuple[str, int], dict[str, Line]], scale: str) -> list[Row]:
    rows = []
    for (data, cells), lines in tables.items():
        where, key = f"{data}, {cells} cells", (data, cells)
        for shots in next(iter(runs.values())).shots:
            rows += [_at_least(runs, scale, key, shots, other) for other in (CELL, NETWORK)]
        published = PUBLISHED.get(key, PUBLISHED[LIKE])
        rows.append(_smaller(where, lines, published))
        paper = "; ".join(f"{m} {one} / {five} ({size} M)" for m, (one, five, size) in published.items())
        rows.append(table.table_row(where, lines, paper, scale))
    return [*rows, table.within_limits(runs)] if scale == "cpu" else rows


def _at_least(runs: Runs, scale: str, key: tuple[str, int], shots: str, other: str) -> Row:
    """MetaNAS' cell: comparable or better; ResNet-12: better."""
    data, cells = key
    gap, said = table.compared(shots, *(table.of(runs, m, data, cells) for m in (OURS, other)))
    published, place = PUBLISHED.get(key, PUBLISHED[LIKE]), 0 if shots == "1" else 1
    words = "comparable with or better than MetaNAS' cell" if other == CELL else "better than ResNet-12"
    what = f"{data}, {cells} cells, {shots}-shot: MetaNTK-NAS is {words}, both trained as RFS does"
    paper = f"{published[OURS][place] - published[other][place]:+.2f} points"
    holds = gap >= -CLOSE if other == CELL else gap > 0
    expected = scale != "cpu" or (other, shots) not in OTHERWISE
    why = OTHERWISE.get((other, shots), f"comparable: at most {CLOSE:g} point below")
    return row(what, paper, said, holds, expected=expected, reason=why)


def _smaller(where: str, lines: dict[str, Line], published: dict[str, tuple[float, float, float]]) -> Row:
    ours, theirs = lines[OURS].parameters, lines[NETWORK].parameters
    what = f"{where}: at least {FEWER:g} times fewer parameters than ResNet-12"
    paper, said = f"{published[NETWORK][2] / published[OURS][2]:.1f} times", f"{theirs / ours:.1f} times"
    return row(what, paper, f"{said}: {ours:,.0f} against {theirs:,.0f}", theirs / ours >= FEWER)
