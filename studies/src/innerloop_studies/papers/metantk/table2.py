"""MetaNTK-NAS, Table 2: what finds better cells: MetaNTK, NTK, linear regions, chance, or mere size."""

import itertools

from innerloop_studies.papers.metantk import nas, table
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "MetaNTK-NAS, Table 2: cells found by MetaNTK, NTK, linear regions, chance, and size"
VERSION = 1
OURS = "MetaNTK-NAS"
THEIRS, BASELINES = ("TE-NAS", "Regions", "Random"), ("Largest", "NASWOT")
# mini-ImageNet, accuracy and standard deviation in percent, by cells and shots
PUBLISHED: dict[tuple[int, str], dict[str, tuple[float, float]]] = {
    key: dict(zip((OURS, *THEIRS), numbers, strict=True))
    for key, numbers in {
        (5, "1"): ((63.88, 0.81), (62.51, 0.42), (62.96, 1.05), (62.55, 1.15)),
        (8, "1"): ((64.26, 0.14), (63.51, 0.16), (63.99, 0.76), (62.76, 0.83)),
        (5, "5"): ((80.07, 0.45), (79.02, 0.35), (79.13, 0.96), (78.90, 0.58)),
        (8, "5"): ((80.35, 0.12), (79.86, 0.42), (79.88, 0.51), (79.18, 0.72)),
    }.items()
}
DATA = {"smoke": "glyphs", "cpu": "cifar-fs", "paper": "mini-imagenet"}
WITHIN_CHANCE = "within what independent runs differ by: three seeds do not tell these searches apart"
OTHERWISE: dict[tuple[str, str, str], str] = {
    (OURS, other, shots): WITHIN_CHANCE for other in ("Regions", "Random", *BASELINES) for shots in ("1", "5")
}
"""What was found at `cpu` where it is not what the paper found: there MetaNTK is above TE-NAS alone."""


def cases(scale: str) -> list[nas.SearchCase]:
    """Every method with every seed; 8 cells at ``paper`` only."""
    stacks = (5, 8) if scale == "paper" else (5,)
    chosen = itertools.product(stacks, nas.SEARCHES, range(nas.SEEDS[scale]))
    return [nas.SearchCase(scale, DATA[scale], method, seed, cells) for cells, method, seed in chosen]


def run(scale: str, say: Say) -> Reproduction:
    """At ``smoke`` on the embedded glyphs, at ``cpu`` on CIFAR-FS; finished parts are kept."""
    runs, data = nas.carry_out(cases(scale), say), DATA[scale]
    tables = {cells: lines for (_, cells), lines in table.tables_of(runs, [*nas.SEARCHES]).items()}
    title = f"5-way accuracy on test classes, {data}"
    drawn = {n: table.figure_of(lines, f"{title}, {n} cells") for n, lines in tables.items()}
    figures = {f"metantk-table2-{n}-cells": figure for n, figure in drawn.items()}
    rows = table.smoke_rows(runs) if scale == "smoke" else _rows(runs, tables, scale)
    kept = {f"{n} cells": {m: one.as_dict() for m, one in lines.items()} for n, lines in tables.items()}
    return Reproduction(rows, figures, kept, table.protocol(scale))


def _rows(runs: table.Runs, tables: dict[int, dict[str, table.Line]], scale: str) -> list[Row]:
    rows = []
    for cells, lines in tables.items():
        for shots in next(iter(runs.values())).shots:
            pairs = [(OURS, other) for other in (*THEIRS, *BASELINES)] + [("Regions", "TE-NAS")]
            rows += [_better(runs, scale, cells, shots, *pair) for pair in pairs]
        one, five = (PUBLISHED[cells, n] for n in ("1", "5"))
        words = "{} {:.2f} ± {:.2f} / {:.2f} ± {:.2f}"
        paper = "; ".join(words.format(method, *one[method], *five[method]) for method in one)
        rows.append(table.table_row(f"{cells} cells", lines, paper, scale))
    return [*rows, table.within_limits(runs)] if scale == "cpu" else rows


def _better(runs: table.Runs, scale: str, cells: int, shots: str, first: str, second: str) -> Row:
    """Whether one search's cells are better on average than another's."""
    gap, said = table.compared(shots, *(table.of(runs, m, DATA[scale], cells) for m in (first, second)))
    published, key, known = PUBLISHED[cells, shots], (first, second, shots), second in PUBLISHED[cells, shots]
    paper = f"{published[first][0] - published[second][0]:+.2f} points" if known else "–"
    what = f"{cells} cells, {shots}-shot: {first} is better than {second}" + ("" if known else " (ours)")
    why = OTHERWISE.get(key, "by the mean over independent runs; ± is their standard deviation")
    return row(what, paper, said, gap > 0, expected=not (scale == "cpu" and key in OTHERWISE), reason=why)
