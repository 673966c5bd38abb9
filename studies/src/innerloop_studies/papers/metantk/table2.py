"""MetaNTK-NAS, Table 2: what finds better cells: MetaNTK, NTK, linear regions, chance, or mere size."""

from innerloop_studies.papers.metantk import table
from innerloop_studies.papers.metantk.nas import SEARCHES, SEEDS, Case, carry_out
from innerloop_studies.papers.metantk.table import Line, Runs
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "MetaNTK-NAS, Table 2: cells found by MetaNTK, NTK, linear regions, chance, and size"
VERSION = 1
OURS = "MetaNTK-NAS"
THEIRS, BASELINES = ("TE-NAS", "Regions", "Random"), ("Largest", "NASWOT")
# mini-ImageNet, accuracy and standard deviation in percent, by cells and shots
PUBLISHED = {
    (5, "1"): {
        OURS: (63.88, 0.81),
        "TE-NAS": (62.51, 0.42),
        "Regions": (62.96, 1.05),
        "Random": (62.55, 1.15),
    },
    (8, "1"): {
        OURS: (64.26, 0.14),
        "TE-NAS": (63.51, 0.16),
        "Regions": (63.99, 0.76),
        "Random": (62.76, 0.83),
    },
    (5, "5"): {
        OURS: (80.07, 0.45),
        "TE-NAS": (79.02, 0.35),
        "Regions": (79.13, 0.96),
        "Random": (78.90, 0.58),
    },
    (8, "5"): {
        OURS: (80.35, 0.12),
        "TE-NAS": (79.86, 0.42),
        "Regions": (79.88, 0.51),
        "Random": (79.18, 0.72),
    },
}
DATA = {"smoke": "glyphs", "cpu": "cifar-fs", "paper": "mini-imagenet"}
FLOOR = {"1": 29.4, "5": 35.8}
"""Raw pixels' nearest neighbour on CIFAR-FS, in percent."""
WITHIN_CHANCE = "within what independent runs differ by: three seeds do not tell these searches apart"
OTHERWISE: dict[tuple[str, str, str], str] = {
    (OURS, other, shots): WITHIN_CHANCE for other in ("Regions", "Random", *BASELINES) for shots in ("1", "5")
}
"""What was found at `cpu` where it is not what the paper found: there MetaNTK is above TE-NAS alone."""


def cases(scale: str) -> list[Case]:
    """Every method with every seed; 8 cells at ``paper`` only."""
    stacks = (5, 8) if scale == "paper" else (5,)
    return [
        Case(scale, DATA[scale], method, seed, cells)
        for cells in stacks
        for method in SEARCHES
        for seed in range(SEEDS[scale])
    ]


def run(scale: str, say: Say) -> Reproduction:
    """At ``smoke`` on the embedded glyphs, at ``cpu`` on CIFAR-FS; finished parts are kept."""
    runs = carry_out(cases(scale), say)
    data = DATA[scale]
    stacks = sorted({case.cells for case in runs})
    methods = list(dict.fromkeys(case.method for case in runs))
    tables = {
        cells: {m: table.line_of(table.of(runs, m, data, cells), cells) for m in methods} for cells in stacks
    }
    figures = {
        f"metantk-table2-{cells}-cells": table.figure_of(
            lines, f"5-way accuracy on test classes, {data}, {cells} cells"
        )
        for cells, lines in tables.items()
    }
    rows = table.smoke_rows(runs) if scale == "smoke" else _rows(runs, tables, scale)
    kept = {f"{cells} cells": table.plain_lines(lines) for cells, lines in tables.items()}
    return Reproduction(rows, figures, kept, table.protocol(scale))


def _rows(runs: Runs, tables: dict[int, dict[str, Line]], scale: str) -> list[Row]:
    rows = []
    for cells, lines in tables.items():
        for shots in next(iter(runs.values())).shots:
            pairs = [(OURS, other) for other in (*THEIRS, *BASELINES)] + [("Regions", "TE-NAS")]
            rows += [_better(runs, scale, cells, shots, *pair) for pair in pairs]
        paper = "; ".join(
            f"{method} "
            + " / ".join("{:.2f} ± {:.2f}".format(*PUBLISHED[cells, n][method]) for n in ("1", "5"))
            for method in PUBLISHED[cells, "1"]
        )
        rows.append(
            table.table_row(
                f"{cells} cells, 1 and 5 shots", lines, paper, FLOOR if scale == "cpu" else {"1": 20.0}
            )
        )
    return [*rows, table.within_limits(runs)] if scale == "cpu" else rows


def _better(runs: Runs, scale: str, cells: int, shots: str, first: str, second: str) -> Row:
    """Whether one search's cells are better on average than another's."""
    data = DATA[scale]
    ours, others = (table.of(runs, method, data, cells) for method in (first, second))
    published = PUBLISHED[cells, shots]
    known = second in published
    paper = f"{published[first][0] - published[second][0]:+.2f} points" if known else "–"
    key = (first, second, shots)
    expected = not (scale == "cpu" and key in OTHERWISE)
    means = [table.accuracies(runs_of, shots) for runs_of in (ours, others)]
    told = f"{means[0]} against {means[1]}: {table.difference(ours, others, shots)}"
    what = f"{cells} cells, {shots}-shot: {first} is better than {second}" + ("" if known else " (ours)")
    why = OTHERWISE.get(key, "by the mean over independent runs; ± is their standard deviation")
    return row(what, paper, told, means[0].mean > means[1].mean, expected=expected, reason=why)
