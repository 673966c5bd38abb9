"""Bridge, Figure 2: multi-task learning's accuracy against its cost, by batch size and epochs."""

from typing import Any

from matplotlib.figure import Figure

from innerloop.core.statistics import mean_interval
from innerloop.report.plots.panels import line, panel, panels_figure
from innerloop_studies.papers.bridge import pictures
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row, same_row

TITLE = "Bridge, Figure 2: multi-task learning's accuracy against its cost, by batch and epochs"
VERSION = 1
USUAL = (0.125, 0.25, 0.5, 1.0)
SIZES: dict[str, dict[int, tuple[float, ...]]] = {
    # tasks per step, 0 for the usual number: lengths as shares of the usual number of pictures
    "smoke": {0: (0.5, 1.0)},
    "cpu": {0: USUAL, 4: (0.25, 0.5)},
    "paper": {0: USUAL, 1: USUAL, 2: USUAL},
}
FASTEST, BEST = 11.0, 3.6
"""Published speed-ups: where MTL matches MetaOptNet (81.55 against 81.56 %), and at MTL's best accuracy."""


def works(scale: str) -> list[pictures.Work]:
    """MTL at every length and batch (as many pictures in all for every batch), and MetaOptNet; one seed."""
    ours = list[pictures.Work]()
    for batch, lengths in SIZES[scale].items():
        fewer = 1 if scale == "paper" else batch or 1
        ours += [pictures.Work(scale, "cifar-fs", "MTL", 0, length / fewer, batch) for length in lengths]
    return [*ours, pictures.Work(scale, "cifar-fs", "MetaOptNet", 0)]


def run(scale: str, say: Say) -> Reproduction:
    """Every run is one point: its accuracy, and how much faster it was than MetaOptNet."""
    runs = pictures.carry_out(works(scale), say)
    shots = pictures.shots_of(runs)
    *ours, theirs = runs.items()
    peer = {"accuracy": pictures.mean(theirs[1], shots), "seconds": theirs[1].seconds}
    points = [_point(work, each_run, shots, peer["seconds"]) for work, each_run in ours]
    rows = _smoke_rows(runs) if scale == "smoke" else _rows(points, peer, scale)
    data = {"MetaOptNet": peer, "MTL": points}
    return Reproduction(rows, {"bridge-fig2": _figure(points, peer)}, data, pictures.protocol(scale))


def _point(work: pictures.Work, run: pictures.PictureRun, shots: str, peer_seconds: float) -> dict[str, Any]:
    score = mean_interval(run.scores[shots])
    point = {"batch": pictures.recipe_for(work).outer.batch, "steps": run.steps, "accuracy": score.mean}
    return {**point, "ci95": score.ci95, "seconds": run.seconds, "speedup": peer_seconds / run.seconds}


def _figure(points: list[dict[str, Any]], peer: dict[str, Any]) -> Figure:
    lines = []
    for batch in sorted({point["batch"] for point in points}):
        mine = [point for point in points if point["batch"] == batch]
        accuracy, half = ([100 * point[key] for point in mine] for key in ("accuracy", "ci95"))
        name = f"MTL, {batch} task{'s' if batch > 1 else ''} a step"
        lines.append(line(name, [point["speedup"] for point in mine], accuracy, half=half))
    heights = {"MetaOptNet": 100 * peer["accuracy"]}
    one = panel("times as fast as MetaOptNet", "test accuracy, %", lines, log_x=True, heights=heights)
    return panels_figure([one], columns=1, width=5.6, height=3.6)


def _rows(points: list[dict[str, Any]], peer: dict[str, Any], scale: str) -> list[Row]:
    matching = [point for point in points if point["accuracy"] >= peer["accuracy"]]
    fastest = max((point["speedup"] for point in matching), default=0.0)
    best = max(points, key=lambda point: point["accuracy"])
    short = min(points, key=lambda point: point["seconds"])
    level = f"{100 * peer['accuracy']:.1f} %"
    said = f"{fastest:.1f} times, {len(matching)} of {len(points)} runs reach its {level}"
    said = said if matching else f"none of {len(points)} runs reaches its {level}"
    drop, little = 100 * (best["accuracy"] - short["accuracy"]), "the shortest run of MTL loses little"
    lost = f"{drop:.1f} points, in {short['seconds'] / best['seconds']:.2f} of the time"
    what = "the fastest run of MTL that matches MetaOptNet is faster than it"
    paper = f"{FASTEST:g} times, at 81.55 against 81.56 %"
    at_best = "at its best accuracy MTL is faster than MetaOptNet"
    found = f"{best['speedup']:.1f} times, at {100 * best['accuracy']:.1f} %"
    why = "how long each method trains is chosen here, as it was there"
    return [
        row(what, paper, said, fastest > 1),
        row(at_best, f"{BEST:g} times", found, best["speedup"] > 1, reason=why),
        row(little, "at most 2.2 points", lost, drop <= 2.2, expected=scale != "cpu"),
    ]


def _smoke_rows(runs: pictures.Runs) -> list[Row]:
    """What must hold however little was trained."""
    steps = [(each_run.steps, each_run.curve[-1]["step"]) for each_run in runs.values()]
    return [pictures.smoke_counts(runs), same_row("runs have the length that they were given", steps)]
