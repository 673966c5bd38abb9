"""Does the ranking of hard groups that `innerloop advise` gives hold after training, on unseen groups?"""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from innerloop.choose.estimates import GROUP_EPISODES
from innerloop.choose.validation import agreement
from innerloop.core.random import derive_seed
from innerloop.data.source import ImageSource
from innerloop.evaluation.scores import evaluate
from innerloop.experiment import Parts, Recipe
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.report.plots.panels import line, panel, panels_figure, points
from innerloop.tasks import Kind, few_shot_sampler
from innerloop.tasks.hard_groups import group_errors, groups_of
from innerloop.training.execution.plan import Plan
from innerloop_studies.papers.training import combined, conv4_recipe
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "innerloop advise: is the ranking of hard groups that of trained networks? (ours)"
VERSION = 1
WAYS, QUERIES = 5, 5
METHODS: dict[str, dict[str, Any]] = {
    "protonet": {"model": {"norm": "running"}, "inner": {"method": "protonet"}, "outer": {"lr": 3e-3}},
    "maml": {
        "model": {"norm": "transductive"},
        "inner": {"method": "maml", "lr": 0.3, "steps": 1},
        "outer": {"lr": 2e-3},
    },
}
Fold = Sequence[dict[str, float]]
"""Errors within groups by their names: of raw pixels before training, and of a trained network."""


class HardnessBudget(NamedTuple):
    """Meta-steps, filters, and test tasks within every group."""

    steps: int
    filters: int
    episodes: int


def recipe_of(data: str, method: str, budget: HardnessBudget, seed: int) -> Recipe:
    """Training on any classes of the training groups, 5-way 1-shot."""
    own = METHODS[method]
    outer = {"steps": budget.steps, "batch": 2, "schedule": "cosine", "clip": 10.0, **own["outer"]}
    model = {"filters": budget.filters, "pooling": "stride", **own["model"]}
    pictures = {"name": data, "standardise": True}
    given = {"model": model, "inner": own["inner"], "outer": outer}
    return conv4_recipe("advice-hardness", pictures, (WAYS, 1, QUERIES), seed, **given)


def without_half(source: ImageSource, fold: int) -> ImageSource:
    """Half of the groups of enough classes to train on, the other half to test; fold 1 swaps them."""
    assert source.groups is not None
    members = [classes for classes in groups_of(source, "all").values() if len(classes) >= WAYS]
    order = torch.randperm(len(members), generator=torch.Generator().manual_seed(0)).tolist()
    half = len(members) // 2
    parts = [order[:half], order[half:]]
    classes = [np.sort(np.concatenate([members[i] for i in part])) for part in parts]
    train, test = classes if fold == 0 else classes[::-1]
    return source._replace(splits={"train": train, "validation": test, "test": test})


def errors_of(data: str, method: str, fold: int, seed: int, budget: HardnessBudget) -> Fold:
    """Errors within every group that was not trained on: of raw pixels before training, and of a network."""
    recipe = recipe_of(data, method, budget, seed)
    pictures = without_half(build_data(recipe).pictures, fold)
    parts, plan = Parts(recipe, build_data(recipe, pictures)), Plan("loop")
    state, scale = fit_parts(parts, plan=plan), parts.data.scale
    learner, trained = parts.learner_after(1), dict[str, float]()
    before = group_errors(pictures, "test", WAYS, GROUP_EPISODES)
    for name in before:
        kind = Kind(WAYS, 1, QUERIES, "one-group", (name,))
        seeded = derive_seed(seed, "advice-hardness", name)
        stream = few_shot_sampler(pictures, "test", seed=seeded, kinds=[kind], mean=scale.mean, std=scale.std)
        judged = evaluate(learner, state.params, state.buffers, stream, parts.loss, budget.episodes, plan)
        trained[name] = 1 - sum(judged.scores) / len(judged.scores)
    return before, trained


NAME = "advice-hardness"
PROMISED = 0.7
"""What earlier trials had led us to state, 0.7 to 0.85: the advice now says what was found here."""
DATA = {"smoke": ("glyphs",), "cpu": ("omniglot", "cifar100"), "paper": ("omniglot", "cifar100")}
SIZES = {
    # meta-steps, filters, tasks within a group; seeds
    "smoke": (HardnessBudget(3, 4, 4), 1),
    "cpu": (HardnessBudget(600, 32, 100), 1),
    "paper": (HardnessBudget(20_000, 64, 1000), 3),
}
FOLDS = (0, 1)


def run(scale: str, say: Say) -> Reproduction:
    """Every run is kept; two at a time."""
    budget, seeds = SIZES[scale]
    jobs = combined(data=DATA[scale], method=[*METHODS], seed=range(seeds), fold=FOLDS, budget=[budget])
    by_kind: dict[tuple[str, str], list[Fold]] = {}
    for job, errors in zip(jobs, compute_parts(NAME, VERSION, errors_of, jobs), strict=True):
        by_kind.setdefault((job["data"], job["method"]), []).append(errors)
        middle = statistics.fmean(errors[1].values())
        where = f"{job['data']}, {job['method']}, fold {job['fold']}, seed {job['seed']}"
        say(f"{where}: mean error within unseen groups {middle:.3f}")
    protocol = {
        "meta-steps": budget.steps,
        "network": f"strided Conv4-{budget.filters}",
        "tasks": "5-way 1-shot within a group that was not trained on",
        "test tasks of a group": budget.episodes,
        "seeds": seeds,
    }
    rows = [_row(*key, some, scale) for key, some in by_kind.items()]
    panels = [_panel(f"{data}, {method}", some) for (data, method), some in by_kind.items()]
    kept = {}
    for key, some in by_kind.items():
        kept[" ".join(key)] = [{"before": before, "trained": after} for before, after in some]
    figures = {NAME: panels_figure(panels, columns=2, width=3.6, height=3.0)}
    return Reproduction(rows, figures, {"errors": kept}, protocol)


def _row(data: str, method: str, folds: Sequence[Fold], scale: str) -> Row:
    """Rank correlation over all groups, each judged by a network that has not seen it."""
    before, after = _pooled(folds)
    if scale == "smoke":
        names = sorted(before) == sorted(after)
        return row(f"{data}, {method}: every group has both errors", len(before), len(after), names)
    told = agreement([before[name] for name in before], [after[name] for name in before]).spearman
    what = f"{data}, {method}: groups that are hard for raw pixels are hard after training"
    paper = f"rank correlation of {PROMISED} or more (as in earlier trials)"
    said = f"{told.value:.2f} [{told.low:.2f}, {told.high:.2f}] over {len(before)} groups"
    return row(what, paper, said, told.value >= PROMISED, expected=False)  # as found everywhere at `cpu`


def _pooled(folds: Sequence[Fold]) -> list[dict[str, float]]:
    """Means over seeds of all groups, before and after training."""
    pooled = []
    for some in zip(*folds, strict=True):
        names = dict.fromkeys(name for errors in some for name in errors)
        pooled.append({n: statistics.fmean(errors[n] for errors in some if n in errors) for n in names})
    return pooled


def _panel(title: str, folds: Sequence[Fold]) -> Any:
    before, after = _pooled(folds)
    groups = line("groups", [], [], points=points([*before.values()], [after[name] for name in before]))
    return panel("error of raw pixels", f"error after training: {title}", [groups])
