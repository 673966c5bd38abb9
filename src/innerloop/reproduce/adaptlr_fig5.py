"""AdaptLR, Figure 5: MAML against ERM after t steps of adaptation, in loss and in distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from innerloop.plots.panels import Panel, line, panel, panels_figure
from innerloop.reproduce.adaptlr import Law, seeded
from innerloop.reproduce.rows import Reproduction, Row, Say, row
from innerloop.theory.rate_forms import adapted_loss, erm_solution, maml_solution, task_sums

SAMPLES, DIM, RATE, ETA = 50, 20, 1e-4, 1e-5
LAWS = (Law("uniform", -5, 5), Law("normal", 0, 2), Law("exponential", 1.0))
STEPS = [0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000]


def run(scale: str, say: Say) -> Reproduction:
    """The paper shows one draw of training tasks; distances here are means over draws."""
    tasks, draws = {"smoke": (200, 20), "cpu": (2000, 40), "paper": (5000, 100)}[scale]
    rows: list[Row] = []
    data: dict[str, Any] = {}
    for i, law in enumerate(LAWS):
        data[str(law)] = found = _gaps(law, tasks, draws, seed=i)
        rows += _rows(str(law), found, draws)
        say(f"{law}: distance gap {found['distance'][0]:.3g}, loss gap {found['loss'][0]:+.3g} at t = 0")
    protocol = {
        "training tasks": tasks,
        "draws": draws,
        "α": RATE,
        "η": ETA,
        "optima": "N(0, 3I)",
        "seeds": "0, 1, 2",
        "distance": "over fresh tasks, expectation over their optima exact",
        "loss": "of the training tasks of the first draw",
    }
    return Reproduction(rows, {"adaptlr-fig5": panels_figure(_panels(data))}, data, protocol)


def _rows(law: str, found: dict[str, Any], draws: int) -> list[Row]:
    loss, fresh = found["loss"], found["fresh_loss"]
    return [
        row(
            f"{law}: F_t(w_m) < F_t(w_r) for every t, averaged over {draws} draws",
            "always smaller",
            f"t = 0: {found['distance'][0]:.2g} ± {found['error'][0]:.1g}; last: {found['distance'][-1]:.2g}",
            all(gap < 0 for gap in found["distance"]),
            reason="Theorem 2 is about the mean over draws of training tasks",
        ),
        row(
            f"{law}: MAML's loss is above ERM's before adaptation, below it after a few steps",
            "marginally higher, then lower",
            f"training tasks: t = 0: {loss[0]:+.2g}, t = 100: {loss[5]:+.2g}",
            loss[0] > 0 and min(loss) < 0,
            reason="w_r minimises the unadapted loss of these tasks, w_m the loss after one step",
        ),
        row(
            f"{law}: the same on fresh tasks",
            "marginally higher, then lower",
            f"t = 0: {fresh[0]:+.2g}, last t: {fresh[-1]:+.2g} (mean over draws)",
            fresh[0] > 0 and min(fresh) < 0,
            expected=False,
            reason="on tasks they were not fitted to, w_m is the better one before adaptation already",
        ),
    ]


def _panels(data: dict[str, Any]) -> list[Panel]:
    later = slice(1, None)
    return [
        panel(
            "adaptation steps t",
            title,
            [line(law, STEPS[later], found[key][later]) for law, found in data.items()],
            log_x=True,
        )
        for key, title in (
            ("relative_loss", "(a) loss of MAML − loss of ERM, relative to t = 0"),
            ("distance", "(b) F_t(w_m) − F_t(w_r)"),
        )
    ]


def _shapes(fresh: Tensor, with_values: bool) -> Tensor:
    """E[(I − (2η/K)S)^{2t}] (or with a factor S) for every t: what the gaps weigh w by."""
    values, vectors = torch.linalg.eigh(fresh.mT @ fresh)
    shrink = (1 - 2 * ETA / SAMPLES * values).square()
    weights = values if with_values else torch.ones_like(values)
    return torch.stack(
        [torch.einsum("nik,nk,njk->ij", vectors, shrink**t * weights, vectors) / len(fresh) for t in STEPS]
    )


def _gaps(law: Law, tasks: int, draws: int, seed: int) -> dict[str, Any]:
    made = seeded(seed)
    fresh = law.draw(made, 1000, SAMPLES, DIM)
    # optima have mean zero: what is left of the gaps is wᵀQw, free of their noise
    shapes = {"distance": _shapes(fresh, False), "fresh_loss": _shapes(fresh, True)}
    gaps: dict[str, list[Tensor]] = {name: [] for name in shapes}
    loss: list[float] = []
    for _ in range(draws):
        features = law.draw(made, tasks, SAMPLES, DIM)
        optima = Law("normal", 0, 3**0.5).draw(made, tasks, DIM)
        sums = task_sums(features, optima)
        w_m, w_r = maml_solution(sums, RATE), erm_solution(sums)
        for name, q in shapes.items():
            gaps[name].append(
                torch.einsum("i,tij,j->t", w_m, q, w_m) - torch.einsum("i,tij,j->t", w_r, q, w_r)
            )
        if not loss:
            ends = [adapted_loss(features, optima, w, ETA, STEPS) for w in (w_m, w_r)]
            loss = [m - r for m, r in zip(*ends, strict=True)]
    means = {name: torch.stack(values).mean(0).tolist() for name, values in gaps.items()}
    error = (torch.stack(gaps["distance"]).std(0) / draws**0.5).tolist()
    return {**means, "loss": loss, "relative_loss": [v / abs(loss[0]) for v in loss], "error": error}
