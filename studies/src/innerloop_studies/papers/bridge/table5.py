"""Bridge, Table 5: the ℓ₂ penalty of the last layer at test; footnote 5: normalised features in training."""

from innerloop.core.statistics import Interval, mean_interval
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.bridge import pictures
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row, same_row

TITLE = "Bridge, Table 5: the penalty of the last layer at test; footnote 5 on features"
VERSION = 1
ACCURACIES = (76.86, 77.02, 77.28, 77.61, 77.72, 77.55, 76.82)
PUBLISHED = dict(zip((f"{penalty:g}" for penalty in pictures.PENALTIES), ACCURACIES, strict=True))
BEST = "0.33"
NORMALISING_HELPS = {"cifar-fs": True, "fc100": False}


def works(scale: str) -> list[pictures.Work]:
    """MTL as in Table 3, and with features treated the other way in training, one seed of each."""
    usual = [pictures.Work(scale, "cifar-fs", "MTL", seed) for seed in range(pictures.SEEDS[scale])]
    others = [("cifar-fs", False)] + [("fc100", True), ("fc100", False)] * (scale != "smoke")
    return [*usual, *(pictures.Work(scale, data, "MTL", 0, normalised=each) for data, each in others)]


def run(scale: str, say: Say) -> Reproduction:
    """One network per seed, judged with every penalty on the same test tasks."""
    runs = pictures.carry_out(works(scale), say)
    usual = [each_run for work, each_run in runs.items() if work.data == "cifar-fs" and work.normalised]
    table = {name: _over_seeds(usual, name) for name in PUBLISHED}
    penalties = [float(name) for name in table]
    means, half = ([100 * getattr(v, key) for v in table.values()] for key in ("mean", "ci95"))
    ours = line("ours", penalties, means, half)
    published = line("Bridge, mini-ImageNet", penalties, list(PUBLISHED.values()))
    axes = ("ℓ₂ penalty of the last layer", "test accuracy, %")
    figure = panels_figure([panel(*axes, [each], log_x=True) for each in (ours, published)], columns=2)
    shots = pictures.shots_of(runs)
    rows = _smoke_rows(runs, usual, shots) if scale == "smoke" else [*_rows(table), *_footnote(runs)]
    data = {"penalties": {name: value._asdict() for name, value in table.items()}}
    return Reproduction(rows, {"bridge-table5": figure}, data, pictures.protocol(scale))


def _over_seeds(runs: list[pictures.PictureRun], penalty: str) -> Interval:
    return mean_interval([mean_interval(each_run.penalties[penalty]).mean for each_run in runs])


def _rows(table: dict[str, Interval]) -> list[Row]:
    best = max(table, key=lambda name: table[name].mean)
    ends = [100 * (table[best].mean - table[end].mean) for end in ("0.0001", "3")]
    ours = ", ".join(f"{name}: {pictures.percent(value)}" for name, value in table.items())
    theirs = ", ".join(f"{k}: {v}" for k, v in PUBLISHED.items())
    what, inside = "the best penalty lies inside the range, near 0.33", best in ("0.1", "0.33", "1")
    both, lose = "both ends of the range lose about a point", all(0 < loss < 3 for loss in ends)
    said, why = f"{ends[0]:.2f} and {ends[1]:.2f} points", "holds if both lose, and less than three points"
    return [
        row(what, f"{BEST} ({theirs})", f"{best} ({ours})", inside),
        row(both, "0.86 and 0.90 points", said, lose, reason=why),
    ]


def _footnote(runs: pictures.Runs) -> list[Row]:
    rows = []
    first = {(work.data, work.normalised): run for work, run in runs.items() if work.seed == 0}
    for data, helps in NORMALISING_HELPS.items():
        unit, plain = first[data, True], first[data, False]
        gap = pictures.difference([unit], [plain], "5")
        verb, paper = ("helps", "effective") if helps else ("does not help", "ineffective")
        what = f"footnote 5: training on features of length one {verb} on {data}"
        rows.append(row(what, paper, str(gap), (gap.points > 0) == helps, reason="one seed"))
    return rows


def _smoke_rows(runs: pictures.Runs, usual: list[pictures.PictureRun], shots: str) -> list[Row]:
    """What must hold however little was trained."""
    judged = [(run.penalties[BEST], run.scores[shots]) for run in usual]
    pairs = [pair for both in judged for pair in zip(*both, strict=True)]
    what = f"penalty {BEST} is the head of the other tables"
    return [pictures.smoke_counts(runs), same_row(what, pairs)]
