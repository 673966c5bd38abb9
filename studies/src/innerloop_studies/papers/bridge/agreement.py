"""Bridge, Theorem 1 on trained networks: how far ANIL and MTL lie apart, beside two seeds of one method."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.core.types import Params, TaskBatch
from innerloop.experiment import load_recipe
from innerloop.kernels.empirical.exact import jacobian
from innerloop.kernels.empirical.kernel import empirical_kernel
from innerloop.kernels.meta.descent import Descent, response
from innerloop.kernels.meta.kernel import anil_kernel_without_split, mtl_kernel, stack
from innerloop.nets import Network, antisymmetric, mlp
from innerloop.report.plots.panels import line, panels_figure
from innerloop.theory.kernels import log_slope, spectrum
from innerloop_studies.papers.bridge.shared import DIM, TEST_TASKS, figure_1_tasks, train_wide
from innerloop_studies.papers.figures import loglog
from innerloop_studies.papers.training import by_frozen_features, combined, conv4_recipe, fitted
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, listed, row

TITLE = "Bridge, Theorem 1 on trained networks: ANIL against MTL beside two seeds of one"
VERSION = 1


class Wide(NamedTuple):
    """One network on the quadratic tasks."""

    method: str
    depth: int
    width: int
    seed: int
    steps: int
    regime: str


INNER = Descent(0.001, 1)  # ANIL's inner loop in training: λτ, summed loss
TEST = Descent(1.0)
"""Adaptation of a test task's head, the same for both methods: gradient flow, in closed form."""
RECIPES = {"anil": "bridge-quadratic-anil", "mtl": "bridge-quadratic-multitask"}


def trained_wide(method: str, depth: int, width: int, seed: int, steps: int, regime: str) -> dict[str, Any]:
    """What a trained network predicts for the queries of the test tasks, and what is left of the loss."""
    job = Wide(method, depth, width, seed, steps, regime)
    outputs, left = _by_theorem(job) if regime == "theorem" else _by_recipe(job)
    return {"outputs": outputs.squeeze(-1).tolist(), "left": left}


def _by_theorem(job: Wide) -> tuple[Tensor, float]:
    train, test = figure_1_tasks(0, standard=True, sphere=False)
    plain = mlp(DIM, [job.width] * (job.depth - 1), 1, parametrisation="ntk")
    drawn, _ = plain.init(torch.Generator().manual_seed(job.seed))
    rate = 1 / _largest(job.method, plain, drawn, train)
    net = antisymmetric(plain)
    params, _ = net.init(torch.Generator().manual_seed(job.seed))
    train, test = train.to(dtype=torch.float32), test.to(dtype=torch.float32)
    if job.method == "anil":
        train = train._replace(x_query=train.x_support, y_query=train.y_support)
    trained, losses = train_wide(job.method, net, params, train, rate, job.steps, INNER)
    started = {**trained, **{name: params[name] for name in net.head_names}}  # the head is reset
    with torch.no_grad():
        return adapted(net, started, test, TEST), losses[-1] / losses[0]


def _largest(method: str, net: Network, params: Params, tasks: TaskBatch) -> float:
    """σ_max of this network's own kernel: narrow and deep ones are far from the limit."""
    x = stack(tasks.x_support).float()
    base = empirical_kernel(net, params)(x, x)
    own = (base.ntk, base.nngp, tasks.size)
    return float(spectrum(mtl_kernel(*own) if method == "mtl" else anil_kernel_without_split(*own, INNER))[0])


def adapted(net: Network, params: Params, test: TaskBatch, how: Descent) -> Tensor:
    """Query outputs ``(tests, queries, 1)`` once the head moved; linear in it: its kernel is exact."""
    params = {name: value.double() for name, value in params.items()}

    def tangents(x: Tensor) -> tuple[Tensor, Tensor]:
        z = net.features(params, {}, x.double(), "batch")[0]
        head = {name: params[name] for name in net.head_names}
        return net.head(params, z), jacobian(lambda own: net.head(own, z), head)

    by_task = []
    for task in test.tasks():
        (first, own), (outputs, cross) = tangents(task.x_support), tangents(task.x_query)
        answer = response(own @ own.mT, how) @ (task.y_support - first)
        by_task.append(outputs + cross @ own.mT @ answer)
    return torch.stack(by_task)


def _by_recipe(job: Wide) -> tuple[Tensor, float]:
    """As shipped but for depth, width and steps; ANIL keeps the head it trained, MTL has only its first."""
    hidden = ",".join([str(job.width)] * (job.depth - 1))
    settings = [f"model.hidden=[{hidden}]", f"outer.steps={job.steps}", f"run.seed={job.seed}"]
    outcome = fitted(load_recipe(RECIPES[job.method], settings))
    batch = outcome.parts.data.test.episodes(range(TEST_TASKS))
    assert isinstance(batch, TaskBatch)
    if outcome.state is None:
        return torch.full_like(batch.y_query, math.nan), math.nan
    names = outcome.parts.params
    params = {name: value for name, value in outcome.state.params.items() if name in names}
    with torch.no_grad():
        return adapted(outcome.parts.network, params, batch, TEST), math.nan


def trained_pictures(
    method: str, seed: int, steps: int, episodes: int, filters: int, data: str
) -> dict[str, Any]:
    """Conv4's answers in thousandths, and its accuracy: logistic regression (C = 3), as in Bridge."""
    objective = "multitask" if method == "mtl" else "episodic"
    sections: dict[str, dict[str, Any]] = {
        "model": {"filters": filters, "pooling": "max", "norm": "transductive"},
        "inner": {"method": "anil", "lr": 0.1, "steps": 3},
        "outer": {"objective": objective, "steps": steps, "batch": 4, "lr": 2e-3},
        "eval": {"episodes": episodes, "queries": 10},
        "run": {"threads": 1},
    }
    pictures = {"name": data, "standardise": True}
    recipe = conv4_recipe("bridge-agreement", pictures, (5, 5, 5), seed, **sections)
    outcome = fitted(recipe)
    assert outcome.state is not None
    model = outcome.parts.network, outcome.state.params, outcome.state.buffers
    tasks = (outcome.parts.data.test.episode(i) for i in range(episodes))
    with torch.no_grad():
        judged = [(by_frozen_features(*model, task, 5).softmax(1), task.y_query) for task in tasks]
    shares, truth = (torch.cat(part) for part in zip(*judged, strict=True))
    right = (shares.argmax(1) == truth).double().mean()
    return {"thousandths": (1000 * shares).round().int().tolist(), "accuracy": float(right)}


METHODS = ("anil", "mtl")
# a few steps from the start pictures are labelled by their common weights, and width does not count yet
FAILS = {"smoke": ("width", "recipe depth"), "cpu": ("recipe depth", "pictures")}
FAILS["paper"] = FAILS["cpu"]  # as found at ``smoke`` and ``cpu``; ``paper`` has not been run


class Apart(NamedTuple):
    """How far predictions lie apart in one cell, as a share of their own size."""

    gap: float
    anil: float
    mtl: float
    left: float | None

    @property
    def floor(self) -> float:
        """What another seed changes, at least."""
        return min(self.anil, self.mtl)


def _depth_row(what: str, depths: list[int], cells: list[Apart], **more: Any) -> Row:
    gaps = [one.gap for one in cells]
    slope = log_slope([float(d) for d in depths], gaps)
    said = f"{listed(gaps)} of the predictions' size at L = {depths}; slope {slope:.2f}"
    return row(f"{what} shrinks with depth", "shrinks", said, gaps[-1] < gaps[0] and slope < 0, **more)


def theorem_rows(depths: list[int], theorem: dict[int, list[Apart]], scale: str) -> list[Row]:
    """Gradient descent in the theorem's setting."""
    what = "the gap of trained networks"
    why = "holds if the slope on log–log axes is negative and the deepest gap the smaller"
    narrow, wide = min(theorem), max(theorem)
    pairs = list(zip(theorem[narrow], theorem[wide], strict=True))
    ratios = [one.gap / one.floor for cells in theorem.values() for one in cells]
    rows = [_depth_row(f"Theorem 1, width {n}: {what}", depths, theorem[n], reason=why) for n in theorem]
    what, paper = "Theorem 1: the gap shrinks with width", "shrinks (the ε of h > O(ε⁻²))"
    said = f"{listed(b.gap / a.gap for a, b in pairs)} times from width {narrow} to {wide} at L = {depths}"
    holds, expected = all(b.gap < a.gap for a, b in pairs), "width" not in FAILS[scale]
    rows.append(row(what, paper, said, holds, expected=expected))
    what = "ANIL and MTL from one start are nearer to each other than two seeds of one method"
    said = f"the gap is {min(ratios):.2f} to {max(ratios):.2f} of the smaller distance of two seeds"
    return [*rows, row(what, "close", said, max(ratios) < 1, reason="holds if it is so in every cell")]


def recipe_rows(depths: list[int], cells: list[Apart], scale: str) -> list[Row]:
    """Adam, as the shipped recipes train."""
    ratios, expected = [one.gap / one.floor for one in cells], "recipe depth" not in FAILS[scale]
    what = "the recipes (Adam, raw labels): the gap"
    why = "far from the lazy regime that the theorem speaks of"
    nearer = "the recipes: ANIL and MTL from one start are nearer than two seeds of one method"
    said = f"{listed(ratios)} of the smaller distance of two seeds at L = {depths}"
    return [
        _depth_row(what, depths, cells, expected=expected, reason=why),
        row(nearer, "close", said, max(ratios) < 1),
    ]


def picture_rows(pictures: dict[str, Any], scale: str) -> list[Row]:
    """Labels of pictures."""
    gap, seeds = pictures["gap"], [pictures[method] for method in METHODS]
    floor, apart = max(one["agreement"] for one in seeds), min(one["distance"] for one in seeds)
    accuracy = [f"{m.upper()} {100 * sum(a) / len(a):.1f} %" for m, a in pictures["accuracy"].items()]
    said = f"{100 * gap['agreement']:.1f} % of labels against {100 * floor:.1f} % (two seeds, the better of "
    said += f"both methods); probabilities {gap['distance']:.3f} apart against {apart:.3f}; "
    said += f"accuracy {', '.join(accuracy)}"
    what = "Conv4, 5-way 5-shot: ANIL and MTL give the same labels as often as two seeds of one do"
    expected = "pictures" not in FAILS[scale]
    return [row(what, "close", said, gap["agreement"] >= floor, expected=expected)]


NAME = "bridge-agreement"


class AgreementSize(NamedTuple):
    """What is trained."""

    depths: list[int]
    widths: list[int]
    steps: int
    seeds: int
    recipe: tuple[list[int], int, int]
    pictures: tuple[int, int, int, str]


_FEW, _MANY = [2, 4, 8, 20], [2, 4, 8, 12, 16, 20]
_LONG = ([2, 4, 8, 12, 20], 512, 2000), (20_000, 600, 64, "cifar-fs")
SIZES = {
    "smoke": AgreementSize([2, 4], [16, 64], 30, 2, ([2, 4], 32, 10), (2, 4, 8, "glyphs")),
    "cpu": AgreementSize(_FEW, [64, 256], 200, 2, (_FEW, 128, 300), (300, 100, 32, "cifar-fs")),
    "paper": AgreementSize(_MANY, [64, 256, 512], 1000, 5, *_LONG),
}


def run(scale: str, say: Say) -> Reproduction:
    """Trains everything, two at a time, and compares predictions on the same held-out tasks."""
    size = SIZES[scale]
    depths, width, steps = size.recipe
    cells = [(depth, wide, size.steps, "theorem") for wide in size.widths for depth in size.depths]
    cells += [(depth, width, steps, "recipe") for depth in depths]
    chosen = itertools.product(cells, range(size.seeds), METHODS)
    jobs = [Wide(method, *cell[:2], seed, *cell[2:]) for cell, seed, method in chosen]
    trained = {}
    for job, value in zip(jobs, compute_parts(NAME, VERSION, trained_wide, jobs), strict=True):
        trained[job] = value
        say(f"{job.method}, L = {job.depth}, width {job.width}, seed {job.seed}, {job.regime}")
    apart = {cell: _apart(cell, trained, size.seeds) for cell in cells}
    pictures = _pictures(size, say)
    theorem = {n: [apart[depth, n, size.steps, "theorem"] for depth in size.depths] for n in size.widths}
    recipes = [apart[depth, width, steps, "recipe"] for depth in depths]
    rows = theorem_rows(size.depths, theorem, scale) + recipe_rows(depths, recipes, scale)
    rows += picture_rows(pictures, scale)
    told = {str(wide): [one._asdict() for one in each] for wide, each in theorem.items()}
    data = {"theorem": told, "recipe": [one._asdict() for one in recipes]}
    data |= {"pictures": pictures, "size": size._asdict()}
    return Reproduction(rows, {NAME: _figure(size, theorem, recipes)}, data, _protocol(size))


def _pairs(found: dict[Any, Tensor], seeds: int) -> dict[str, list[tuple[Tensor, Tensor]]]:
    """What is compared: ANIL and MTL from one start (``gap``), and two seeds of one method."""
    between = list(itertools.combinations(range(seeds), 2))
    gap = [(found["anil", seed], found["mtl", seed]) for seed in range(seeds)]
    return {"gap": gap, **{m: [(found[m, a], found[m, b]) for a, b in between] for m in METHODS}}


def _distance(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    norms = [float((one - other).norm(dim=1).mean()) for one, other in pairs]
    return sum(norms) / len(norms)


def _apart(cell: tuple[int, int, int, str], trained: dict[Wide, Any], seeds: int) -> Apart:
    keys = itertools.product(METHODS, range(seeds))
    made = {(m, seed): trained[Wide(m, *cell[:2], seed, *cell[2:])] for m, seed in keys}
    outputs = {key: _tensor(value["outputs"]) for key, value in made.items()}
    size = sum(float(one.norm(dim=1).mean()) for one in outputs.values()) / len(outputs)
    left = [value["left"] for value in made.values() if value["left"] is not None]
    distances = {name: _distance(pairs) / size for name, pairs in _pairs(outputs, seeds).items()}
    return Apart(**distances, left=max(left, default=None))


def _tensor(values: list[list[float | None]]) -> torch.Tensor:
    """What JSON keeps as none is not a number: training or adaptation diverged."""
    return torch.tensor([[math.nan if v is None else v for v in each] for each in values]).double()


def _pictures(size: AgreementSize, say: Say) -> dict[str, Any]:
    """Accuracies; how often two networks give the same label, and how far their probabilities are apart."""
    names = ("steps", "episodes", "filters", "data")
    settings = {name: [value] for name, value in zip(names, size.pictures, strict=True)}
    jobs = combined(seed=range(size.seeds), method=METHODS, **settings)
    by_job = {}
    for job, value in zip(jobs, compute_parts(NAME, VERSION, trained_pictures, jobs), strict=True):
        by_job[job["method"], job["seed"]] = value
        say(f"Conv4, {job['method']}, seed {job['seed']}: {100 * value['accuracy']:.1f} %")
    shares = {key: torch.tensor(value["thousandths"]).double() / 1000 for key, value in by_job.items()}

    def compare(pairs: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
        same = [float((one.argmax(1) == other.argmax(1)).double().mean()) for one, other in pairs]
        return {"agreement": sum(same) / len(same), "distance": _distance(pairs)}

    accuracy = {m: [by_job[m, s]["accuracy"] for s in range(size.seeds)] for m in METHODS}
    return {"accuracy": accuracy, **{n: compare(each) for n, each in _pairs(shares, size.seeds).items()}}


def _protocol(size: AgreementSize) -> dict[str, Any]:
    _, width, steps = size.recipe
    made, tests, filters, name = size.pictures
    return {
        "theorem": f"antisymmetric MLPs (f₀ = 0), NTK parametrisation, {size.steps} full-batch steps of "
        f"1/σ_max of each network's own kernel, λτ = {INNER.time}, no split, shared heads, head reset at "
        f"test, ŝ = {TEST.time}",
        "tasks": "20 training tasks × 10 and 20 test tasks (5 + 10) of Bridge §5.1, inputs not rescaled, "
        "labels standardised; the same for all networks",
        "recipes": f"bridge-quadratic-anil and -multitask, width {width}, {steps} steps of Adam",
        "pictures": f"{name}, Conv4-{filters}, {made} meta-steps of 4 tasks, {tests} test tasks, logistic "
        "head on normalised features for both",
        "seeds": f"0 to {size.seeds - 1}; ANIL and MTL of one seed start from the same weights",
    }


def _figure(size: AgreementSize, theorem: dict[int, list[Apart]], recipes: list[Apart]) -> Any:
    names = {"gap": "ANIL − MTL", "anil": "two seeds of ANIL", "mtl": "two seeds of MTL"}

    def lines(depths: list[int], cells: list[Apart], what: str) -> list[Any]:
        return [line(name + what, depths, [getattr(one, k) for one in cells]) for k, name in names.items()]

    by_width = [one for n, cells in theorem.items() for one in lines(size.depths, cells, f", {n}")]
    by_title = {"theorem": by_width, "recipes": lines(size.recipe[0], recipes, "")}
    name = "distance of predictions / their size"
    return panels_figure([loglog("depth L", f"{name}, {what}", each) for what, each in by_title.items()])
