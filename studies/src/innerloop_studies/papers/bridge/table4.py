"""Bridge, Table 4: what multi-task learning costs beside MetaOptNet, and what it reaches."""

import statistics

from matplotlib.figure import Figure

from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop.report.plots.style import colour
from innerloop_studies.papers.bridge import pictures
from innerloop_studies.papers.bridge.pictures import SEEDS, PictureRun, Runs, Work
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row, same_row

TITLE = "Bridge, Table 4: multi-task learning's accuracy and training time against MetaOptNet's"
VERSION = 1
BOTH = ("MetaOptNet", "MTL")
PUBLISHED = "77.72 % against 78.63 %"
SHARE = 3.7 / 85.6
CLOSE = 1.0


def works(scale: str) -> list[Work]:
    """Both methods on CIFAR-FS, 5-shot, all seeds: runs of Table 3."""
    return [Work(scale, "cifar-fs", method, seed) for method in BOTH for seed in range(SEEDS[scale])]


def run(scale: str, say: Say) -> Reproduction:
    """Accuracy on the same test tasks, training time, and the time to reach MetaOptNet's accuracy."""
    runs = pictures.carry_out(works(scale), say)
    shots = pictures.shots_of(runs)
    by_method = {m: [one for work, one in runs.items() if work.method == m] for m in BOTH}
    rows = _smoke_rows(runs) if scale == "smoke" else _rows(by_method, shots, scale)
    kept = ("curve", "seconds", "best_seconds", "best_step", "steps")
    told = {m: [{k: getattr(one, k) for k in kept} for one in some] for m, some in by_method.items()}
    data = {method: {"runs": some} for method, some in told.items()}
    return Reproduction(rows, {"bridge-table4": curves_figure(by_method)}, data, pictures.protocol(scale))


def curves_figure(by_method: dict[str, list[PictureRun]]) -> Figure:
    """Validation accuracy against training time, a line per seed and a name per method."""
    lines = []
    for i, (method, runs) in enumerate(by_method.items()):
        for seed, one in enumerate(runs):
            name = f"{'_' if seed else ''}{method}"  # the legend leaves out names that begin so
            x, y = ([point[key] for point in one.curve] for key in ("seconds", "validation"))
            lines.append(line(name, x, [100 * value for value in y], ink=colour(i)))
    one_panel = panel("training time, processor seconds", "validation accuracy, %", lines)
    return panels_figure([one_panel], columns=1, width=5.6, height=3.6)


def _rows(by_method: dict[str, list[PictureRun]], shots: str, scale: str) -> list[Row]:
    both = by_method["MTL"], by_method["MetaOptNet"]
    gap, (ours, theirs) = pictures.difference(*both, shots), (pictures.over_seeds(m, shots) for m in both)
    shares, near = pictures.shares_of_time(*both), pictures.shares_of_time(*both, CLOSE)
    whole = [a.seconds / b.seconds for a, b in zip(*both, strict=True)]
    middle, near_said = pictures.middle_share(near), pictures.shares_in_words(near)
    what = "MTL's accuracy is within a point of MetaOptNet's, or above it"
    said = f"{pictures.percent(ours)} against {pictures.percent(theirs)}: {gap}"
    rows = [row(what, PUBLISHED, said, gap.points >= -CLOSE, reason="paired over the same test tasks")]
    what = "MTL comes within a point of MetaOptNet's validation accuracy in less training time"
    said = f"within a point: {near_said}; all of it: {pictures.shares_in_words(shares)} of the time"
    why = "of the time at which MetaOptNet has its best validation, by seed"
    rows.append(row(what, f"{SHARE:.3f} of the time", said, middle < 1, reason=why))
    what = "MTL's share of the time is a tenth or less"
    said = f"{near_said}, by seed; whole runs as set up here: {pictures.shares_in_words(whole)}"
    why = "the published share is one 23rd, of GPU hours, against MetaOptNet's own code"
    expected = scale != "cpu"
    rows.append(row(what, f"{SHARE:.3f}", said, middle <= 0.1, expected=expected, reason=why))
    return [*rows, _cost_row(by_method)]


def _cost_row(by_method: dict[str, list[PictureRun]]) -> Row:
    """What one training picture costs each method; the head of an episode is what differs."""
    costs = []
    for method in ("MTL", "MetaOptNet"):
        tasks = pictures.recipe_for(Work("cpu", "cifar-fs", method, 0)).tasks
        each = tasks.ways * (tasks.shots + tasks.queries)
        costs.append(statistics.median(1e3 * run.seconds / (run.steps * each) for run in by_method[method]))
    ours, theirs = costs
    what, said = "a training picture costs MTL less than MetaOptNet", f"{ours:.2f} ms against {theirs:.2f} ms"
    why = "processor time of one thread, data loading included"
    return row(what, "first-order against bi-level", said, ours < theirs, reason=why)


def _smoke_rows(runs: Runs) -> list[Row]:
    """What must hold however little was trained."""
    best = [(one, pictures.best_validation(one)) for one in runs.values()]
    times = [(one.best_seconds, pictures.time_to_reach(one, accuracy) or -1.0) for one, accuracy in best]
    what = "the weights that are judged had the best validation"
    return [pictures.smoke_counts(runs), same_row(what, times)]
