"""AdaptLR, Figure 5: MAML against ERM after t steps of adaptation, in loss and in distance."""

from typing import Any

import torch
from torch import Tensor

from innerloop.report.plots.panels import Panel, line, panel, panels_figure
from innerloop.theory.rate.forms import adapted_loss, erm_solution, maml_solution, task_sums
from innerloop_studies.papers.adaptlr.shared import Law, seeded
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "AdaptLR, Figure 5: MAML against ERM after t steps, in loss and in distance"
VERSION = 1
SAMPLES, DIM, RATE, ETA = 50, 20, 1e-4, 1e-5
LAWS = (Law("uniform", -5, 5), Law("normal", 0, 2), Law("exponential", 1.0))
OPTIMA = Law("normal", 0, 3**0.5)
STEPS = [0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]
Gaps = dict[str, Any]
"""MAML's minus ERM's, for every t of :data:`STEPS`; and the share of draws that are as in Figure 5."""


def run(scale: str, say: Say) -> Reproduction:
    """The paper shows one draw of training tasks; distances here are means over draws."""
    tasks, draws = {"smoke": (200, 20), "cpu": (2000, 40), "paper": (5000, 100)}[scale]
    by_law: dict[str, Gaps] = {str(law): _gaps(law, tasks, draws, seed=i) for i, law in enumerate(LAWS)}
    for law, gaps in by_law.items():
        distance, test, training = (gaps[key][0] for key in ("distance", "test", "training"))
        loss = f"{test:+.3g} on test tasks, {training:+.3g} on training tasks"
        say(f"{law}: at t = 0 the distance gap is {distance:.3g}, the loss gap {loss}")
    rows = [one for law, gaps in by_law.items() for one in _rows(law, gaps, draws)]
    sizes = {"training tasks": tasks, "draws": draws, "α": RATE, "η": ETA}
    protocol = {
        **sizes,
        "optima": "N(0, 3I)",
        "seeds": "0, 1, 2",
        "test tasks": f"{tasks} per law; the same features in every draw, optima drawn anew",
        "distance and loss on test tasks": "mean over draws, expectation over the optima of test tasks exact",
        "loss on training tasks": "of the first draw",
    }
    return Reproduction(rows, {"adaptlr-fig5": panels_figure(_panels(by_law))}, by_law, protocol)


def _rows(law: str, gaps: Gaps, draws: int) -> list[Row]:
    test, training, shares, distance = (gaps[key] for key in ("test", "training", "shares", "distance"))
    what = f"{law}: MAML's loss is above ERM's before adaptation, below it after a few steps"
    said = f"test tasks: t = 0: {test[0]:+.2g}, last t: {test[-1]:+.2g} (mean of {draws} draws); as "
    said += f"published in {shares['as published']:.0%} of the draws, above at t = 0 in "
    said += f"{shares['above at first']:.0%}"
    why = "on tasks they were not fitted to, w_m is the better one before adaptation already; "
    why += "single draws that look as published are the minority"
    rows = [row(what, "marginally higher, then lower", said, test[0] > 0 and min(test) < 0, fails=why)]
    what = f"{law}: the same on the training tasks, which H.3 does not say"
    said = f"t = 0: {training[0]:+.2g}, t = 100: {training[5]:+.2g}"
    why = "w_r minimises the unadapted loss of these tasks, w_m the loss after one step"
    rows.append(row(what, "–", said, training[0] > 0 and min(training) < 0, reason=why))
    what = f"{law}: F_t(w_m) < F_t(w_r) for every t, averaged over {draws} draws"
    said = f"t = 0: {distance[0]:.2g} ± {gaps['error'][0]:.1g}; last: {distance[-1]:.2g}"
    why = "Theorem 2 is about the mean over draws of training tasks"
    return [*rows, row(what, "always smaller", said, all(gap < 0 for gap in distance), reason=why)]


def _panels(by_law: dict[str, Gaps]) -> list[Panel]:
    panels = []
    for key, title in (
        ("test", "(a) loss of MAML − loss of ERM, test tasks, relative to t = 0"),
        ("training", "the same on training tasks"),
        ("distance", "(b) F_t(w_m) − F_t(w_r)"),
    ):
        along = {law: gaps[key] for law, gaps in by_law.items()}
        by = {law: 1.0 if key == "distance" else abs(values[0]) for law, values in along.items()}
        lines = [line(law, STEPS[1:], [v / by[law] for v in values[1:]]) for law, values in along.items()]
        panels.append(panel("adaptation steps t", title, lines, log_x=True))
    return panels


def _gaps(law: Law, tasks: int, draws: int, seed: int) -> Gaps:
    made, made_test = seeded(seed), seeded(100 + seed)
    fresh = law.draw(made_test, tasks, SAMPLES, DIM)
    values, v = torch.linalg.eigh(fresh.mT @ fresh)
    left = [(1 - 2 * ETA / SAMPLES * values).square() ** t for t in STEPS]  # (I − (2η/K)S)^{2t}
    weights = {"distance": left, "test": [one * values for one in left]}
    # optima have mean zero: what is left of the mean gaps is wᵀQw, free of their noise
    products = {n: [torch.einsum("nik,nk,njk->ij", v, one, v) for one in w] for n, w in weights.items()}
    shapes = {name: torch.stack(each) / tasks for name, each in products.items()}
    gaps: dict[str, list[Tensor]] = {name: [] for name in (*shapes, "drawn")}
    training: list[float] = []
    for _ in range(draws):
        features = law.draw(made, tasks, SAMPLES, DIM)
        optima = OPTIMA.draw(made, tasks, DIM)
        sums = task_sums(features, optima)
        w_m, w_r = maml_solution(sums, RATE), erm_solution(sums)
        for name, q in shapes.items():
            maml, erm = (torch.einsum("i,tij,j->t", w, q, w) for w in (w_m, w_r))
            gaps[name].append(maml - erm)
        own = torch.einsum("nik,ni->nk", v, OPTIMA.draw(made_test, tasks, DIM))
        pulls = torch.stack([torch.einsum("nik,nk->i", v, one * own) for one in weights["test"]]) / tasks
        gaps["drawn"].append(gaps["test"][-1] - 2 * pulls @ (w_m - w_r))
        if not training:
            ends = [adapted_loss(features, optima, w, ETA, STEPS) for w in (w_m, w_r)]
            training = [m - r for m, r in zip(*ends, strict=True)]
    means = {name: torch.stack(gaps[name]).mean(0).tolist() for name in shapes}
    error = (torch.stack(gaps["distance"]).std(0) / draws**0.5).tolist()
    drawn = torch.stack(gaps["drawn"])
    above = drawn[:, 0] > 0
    found = {"above at first": above, "as published": above & (drawn < 0).any(1)}
    shares = {name: float(share.double().mean()) for name, share in found.items()}
    return {**means, "training": training, "error": error, "shares": shares}
