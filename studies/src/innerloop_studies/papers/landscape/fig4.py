"""Figures 4, 5 and 6: loss landscapes of a neuron before and after adaptation, side by side."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop_studies.papers.figures import Field, fields_figure
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Landscape, Figures 4, 5 and 6: loss landscapes of neurons, before and after a step"
VERSION = 1

F64 = torch.float64
# an activation and its derivative
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "softplus": (F.softplus, torch.sigmoid),
    "sigmoid": (torch.sigmoid, lambda z: torch.sigmoid(z) * torch.sigmoid(-z)),
}


class NeuronTask(NamedTuple):
    """A task with one true neuron: its weights, the variance of its inputs, and whether it counts as hard."""

    weight: tuple[float, float]
    variance: float

    @property
    def kind(self) -> str:
        """``hard`` where the inputs vary less than those of the standard task."""
        return "hard" if self.variance < 1 else "easy"


def inputs(task: NeuronTask, n: int, generator: torch.Generator) -> Tensor:
    """``(n, 2)`` Gaussian inputs."""
    return task.variance**0.5 * torch.randn(n, 2, generator=generator, dtype=F64)


def loss(w: Tensor, x: Tensor, task: NeuronTask, activation: str) -> Tensor:
    """Half the mean squared error of every weight ``(G, 2)`` on these inputs, ``(G,)``."""
    act, _ = ACTIVATIONS[activation]
    truth = act(x @ torch.tensor(task.weight, dtype=F64))
    return 0.5 * (act(w @ x.T) - truth).square().mean(-1)


def step(w: Tensor, x: Tensor, task: NeuronTask, activation: str, lr: float) -> Tensor:
    """Every weight after one gradient step on these inputs."""
    act, slope = ACTIVATIONS[activation]
    z = w @ x.T
    truth = act(x @ torch.tensor(task.weight, dtype=F64))
    return w - lr * ((act(z) - truth) * slope(z)) @ x / len(x)


def nal_loss(w: Tensor, tasks: Sequence[NeuronTask], activation: str, n: int, seed: int) -> Tensor:
    """Eq. 3 on ``n`` samples per task, averaged over the tasks."""
    g = torch.Generator().manual_seed(seed)
    return torch.stack([loss(w, inputs(t, n, g), t, activation) for t in tasks]).mean(0)


def maml_loss(
    w: Tensor, tasks: Sequence[NeuronTask], activation: str, lr: float, shots: tuple[int, int, int], seed: int
) -> Tensor:
    """Eq. 4 with ``shots = (n₂, n₁, τ)``: inner and outer samples of each of τ episodes per task."""
    inner, outer, episodes = shots
    g = torch.Generator().manual_seed(seed)
    total = torch.zeros(len(w), dtype=F64)
    for task in tasks:
        for _ in range(episodes):
            moved = step(w, inputs(task, inner, g), task, activation, lr)
            total += loss(moved, inputs(task, outer, g), task, activation)
    return total / (len(tasks) * episodes)


def grid(low: float, high: float, points: int) -> tuple[list[float], Tensor]:
    """The axis, and all its pairs ``(points², 2)``, row by row."""
    axis = torch.linspace(low, high, points, dtype=F64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return axis.tolist(), torch.stack([x.flatten(), y.flatten()], -1)


SIZES = {"smoke": (25, 25), "cpu": (81, 25), "paper": (161, 25)}
"""Points of the grid per axis, episodes per task (the paper: τ = 25)."""
WHAT = {"NAL": "before adaptation: what NAL minimises", "MAML": "after one step: what MAML minimises"}
CORNERS = ((1.5, 1.5), (-1.5, 1.5), (-1.5, -1.5), (1.5, -1.5))
FIRST_HARD = ((2.0, 2.0), (-1.0, 0.0), (0.0, -1.0), (-1.0, -1.0))
NEAR = ((1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (-1.0, -1.0))  # two hard, two easy, one centre
FAR = ((1.2, 0.8), (0.8, 1.2), (-1.0, 1.0), (1.0, -1.0))  # two hard ones together, away from the easy centre
ENVIRONMENTS = {  # titles, activations, neurons, and how many of them are hard: the first
    "fig4 equally hard": ("four equally hard tasks", "softplus", CORNERS, 0),
    "fig4 one hard task": ("three easy tasks, one hard one far off", "softplus", FIRST_HARD, 1),
    "fig6 small R": ("hard and easy tasks around one centre", "sigmoid", NEAR, 2),
    "fig6 large R, small r_H": ("hard tasks together, off the easy ones", "sigmoid", FAR, 2),
}

INNER = {"softplus": (250, 2.4), "sigmoid": (80, 25.0)}  # inner samples and rate


def run(scale: str, say: Say) -> Reproduction:
    """Four tasks each; softplus (Figures 4, 5) and sigmoid (Figure 6)."""
    points, episodes = SIZES[scale]
    solved: dict[str, dict[str, Any]] = {}
    for name, (title, activation, weights, hard) in ENVIRONMENTS.items():
        tasks = [NeuronTask(w, 0.5 if i < hard else 1.0) for i, w in enumerate(weights)]
        solved[name] = one = _environment(title, activation, tasks, episodes, points)
        say(f"{name}: solutions {one['distance']:.2f} apart, loss after a step {one['ratio']:.2f} to 1")
    names = list(solved)
    axis, w = grid(-3.2, 3.2, points)
    alone = []
    for i, task in enumerate(NeuronTask(weight, 1.0) for weight in CORNERS):
        title, z = f"task {i + 1} alone, before adaptation", nal_loss(w, [task], "softplus", 500, i)
        alone.append(_field(title, axis, z, [task], {}, {}))
    four, six = ([f for name in some for f in solved[name]["fields"]] for some in (names[:2], names[2:]))
    by_name = {"landscape-fig4": four, "landscape-fig5": alone, "landscape-fig6": six}
    figures = {name: fields_figure(fields) for name, fields in by_name.items()}
    protocol = {
        "samples": f"n = 500 for NAL; n₁ = 20, τ = {episodes}, n₂ = 250 (softplus) and 80 (sigmoid) for MAML",
        "inputs": "variance 0.5 (hard) and 1 (easy)",
        "not printed in the paper": "the tasks' neurons and the inner rate; here 2.4 (softplus) and 25, "
        "about one over the smoothness of the easy tasks",
        "grid": f"{points} by {points}",
    }
    data = {n: {k: v for k, v in one.items() if k != "fields"} for n, one in solved.items()}
    return Reproduction(_rows(solved, names), figures, data, protocol)


def _field(
    title: str, axis: list[float], z: Tensor, tasks: list[NeuronTask], solutions: Any, at: dict[str, float]
) -> Field:
    heights, optima = z.view(len(axis), -1).tolist(), [(*t.weight, t.kind) for t in tasks]
    return Field(title=title, x=axis, y=axis, z=heights, optima=optima, solutions=solutions, at=at)


def _environment(title: str, activation: str, tasks: list[NeuronTask], episodes: int, points: int) -> Any:
    """Where NAL and MAML end in an environment."""
    axis, w = grid(-3.2, 3.2, points)
    inner, lr = INNER[activation]
    losses = {"NAL": nal_loss(w, tasks, activation, 500, 0)}
    losses["MAML"] = maml_loss(w, tasks, activation, lr, (inner, 20, episodes), 1)
    ends = {key: w[value.argmin()] for key, value in losses.items()}
    solutions = {key: end.tolist() for key, end in ends.items()}
    fields = []
    for key, value in losses.items():
        at = {name: float(value[other.argmin()]) for name, other in losses.items()}
        fields.append(_field(f"{title}\n{WHAT[key]}", axis, value, tasks, solutions, at))
    hard = torch.tensor([t.weight for t in tasks if t.kind == "hard"], dtype=torch.float64).view(-1, 2)
    gaps = {key: float((end - hard).norm(dim=-1).mean()) for key, end in ends.items()}  # nan without any
    ratio = float(losses["MAML"][losses["NAL"].argmin()] / losses["MAML"].min())
    distance, cell = float((ends["NAL"] - ends["MAML"]).norm()), axis[1] - axis[0]
    about = {"distance": distance, "cell": cell, "ratio": ratio, "to_hard": gaps}
    return {"fields": fields, "solutions": solutions, **about}


def _rows(solved: dict[str, dict[str, Any]], names: list[str]) -> list[Row]:
    even, one, near, far = (solved[name] for name in names)
    to_hard = closer, further = [one["to_hard"][method] for method in ("MAML", "NAL")]
    hard, small, large = (which["ratio"] for which in (one, near, far))
    distances = [far["distance"], near["distance"]]
    together = "equally hard: NAL's and MAML's solutions, apart by"
    finite = "holds below 0.8 (the optima lie 2.1 from the centre): samples are finite"
    above = "one hard task: loss after a step, NAL's over MAML's"
    apart = "sigmoid: solutions apart by, with large R and with small R"
    clear = "holds above 1.3; the paper shows pictures, no number"
    return [
        row(together, "identical", even["distance"], even["distance"] < 0.8, reason=finite),
        row("one hard task: distance to it, MAML's and NAL's", "MAML is nearer", to_hard, closer < further),
        row(above, "well above 1", hard, hard > 1.3, reason=clear),
        row("equally hard: the same ratio", "smaller", even["ratio"], even["ratio"] < hard),
        row("sigmoid, small R: the same ratio", "similar loss", small, small < 1.1, reason="holds below 1.1"),
        row("sigmoid, large R: the same ratio", "well above 1", large, large > 1.3, reason=clear),
        row(apart, "further with large R", distances, distances[0] > distances[1]),
    ]
