"""Bridge, eq. 5: ANIL whose outer loop leaves the head alone has no performance drop."""

import statistics

from innerloop.core.statistics import mean_interval, paired_difference
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.further import head_starts as starts
from innerloop_studies.papers.training import combined
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, row

TITLE = "Bridge, eq. 5: ANIL with a head that the outer loop never updates"
VERSION = 1
NAME = "bridge-frozen"
SETTINGS = {  # nobody has run ``paper`` here: what is expected of it is what its authors say
    "smoke": starts.Setting("anil", 1, 2, 0.1, "glyphs", 4, 6),
    "cpu": starts.Setting("anil", 5, 5, 0.1, "cifar-fs", 600, 300),
    "paper": starts.Setting("anil", 5, 5, 0.1, "cifar-fs", 60_000, 2000),
}
SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
STARTS = ("learned", "frozen")
DROP = 0.01  # less than this, in accuracy, is no drop


def run(scale: str, say: Say) -> Reproduction:
    """Trains ANIL from each start on the same episodes, and compares them task by task."""
    setting, seeds = SETTINGS[scale], SEEDS[scale]
    runs: dict[str, list[starts.HeadRun]] = {start: [] for start in STARTS}
    jobs = combined(setting=[setting], seed=range(seeds), start=STARTS)
    for job, value in zip(jobs, compute_parts(NAME, VERSION, starts.judged, jobs), strict=True):
        one = starts.HeadRun(*value)
        runs[job["start"]].append(one)
        say(f"{job['start']}, seed {job['seed']}: {statistics.fmean(one.scores):.3f}")
    rows = _identities(runs) + ([] if scale == "smoke" else [_drop(runs, scale)])
    intervals = "95 % over test tasks and seeds together, paired by task"
    protocol = {**starts.stated(setting, seeds), "intervals": intervals}
    means = {start: [statistics.fmean(one.scores) for one in some] for start, some in runs.items()}
    lines = [line(start, list(range(seeds)), some) for start, some in means.items()]
    figure = panels_figure([panel("training seed", "accuracy of ANIL", lines)], columns=1, width=5.8)
    kept = {start: [one._asdict() for one in some] for start, some in runs.items()}
    return Reproduction(rows, {NAME: figure}, kept, protocol)


def _identities(runs: dict[str, list[starts.HeadRun]]) -> list[Row]:
    """What must hold however little was trained."""
    answers = starts.WAYS * starts.TEST_QUERIES
    shares = [(score, answers) for each_run in runs["learned"] for score in each_run.scores]
    moved = {start: max(each_run.moved for each_run in runs[start]) for start in STARTS}
    what = "a frozen head is after training what it was before; a learned one is not"
    said = ", ".join(f"{start} moved by {value:.2g}" for start, value in moved.items())
    holds = moved["frozen"] == 0 < moved["learned"]
    return [counts_row(shares), row(what, "frozen across training", said, holds)]


def _drop(runs: dict[str, list[starts.HeadRun]], scale: str) -> Row:
    learned, frozen = ([score for each_run in runs[start] for score in each_run.scores] for start in STARTS)
    gap = paired_difference(frozen, learned)
    pairs = zip(*runs.values(), strict=True)
    seeds = [statistics.fmean(b.scores) - statistics.fmean(a.scores) for a, b in pairs]
    means = [starts.points(mean_interval(scores)) for scores in (frozen, learned)]
    said = f"{means[0]} against {means[1]} %: {100 * gap.mean:+.2f} ± {100 * gap.ci95:.2f} points; by seed "
    said += ", ".join(f"{100 * value:+.1f}" for value in seeds)
    what, holds = "ANIL with a frozen head has no performance drop", gap.mean - gap.ci95 > -DROP
    why = f"holds if the interval of the paired difference is above −{100 * DROP:g} point"
    return row(what, "no performance drop", said, holds, expected=scale != "cpu", reason=why)
