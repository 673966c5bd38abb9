"""Hard tasks more often, or with more weight: what that brings on test tasks (Landscape, §6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from innerloop.core.random import derive_seed
from innerloop.core.statistics import Interval, mean_interval
from innerloop.data.source import ImageSource
from innerloop.evaluation.scores import evaluate
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.tasks.hard_groups import by_hardness, hardest_groups
from innerloop.training.execution.plan import Plan
from innerloop_studies.papers.figures import bars_figure
from innerloop_studies.papers.landscape.images import bar
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, row, same_row

TITLE = "Hard alphabets and superclasses more often, or with more weight (ours)"
VERSION = 1
QUERIES = 10
KINDS = ("hard", "easy", "all")
ARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "share": {"tasks": {"hard_share": 0.5}},
    "weight": {"outer": {"hard_weight": 5.0}},
}
"""Settings beside those of plain training."""


class Case(NamedTuple):
    """Pictures, and what a task of them is."""

    data: str
    choice: str
    shots: int
    rate: float
    hardest: int
    hardest_test: int


CASES = {
    "alphabets": Case("omniglot", "one-group", 1, 0.4, 5, 4),
    "superclasses": Case("cifar-fs", "any", 5, 0.3, 5, 3),
}
"""Omniglot's tasks are within an alphabet. CIFAR-FS has too few classes of a superclass for that."""


class Budget(NamedTuple):
    """Meta-steps by case, tasks per step, filters, tasks judged per kind."""

    steps: dict[str, int]
    tasks: int
    filters: int
    episodes: int


def case_of(scale: str, name: str) -> Case:
    """The case; at ``smoke`` on the embedded glyphs."""
    return CASES[name]._replace(data="glyphs") if scale == "smoke" else CASES[name]


def recipe_of(scale: str, name: str, arm: str, budget: Budget, seed: int) -> Recipe:
    """How an arm trains: MAML of one step, by Adam."""
    case, own = case_of(scale, name), ARMS[arm]
    tasks = {"family": "few-shot", "choice": case.choice, "shots": case.shots, "queries": QUERIES}
    outer = {"steps": budget.steps[name], "batch": budget.tasks, "lr": 1e-3}
    hardest = {"hardest": case.hardest} if own else {}
    return make_recipe(
        {
            "data": {"name": case.data, "standardise": name == "superclasses"},
            "tasks": {**tasks, **hardest, **own.get("tasks", {})},
            "model": {"kind": "conv4", "filters": budget.filters, "pooling": "stride"},
            "inner": {"method": "maml", "lr": case.rate, "loss": "cross-entropy"},
            "outer": {**outer, **own.get("outer", {})},
            "run": {"seed": seed},
        }
    )


def test_kinds(scale: str, name: str, source: ImageSource, ways: int) -> dict[str, Kind]:
    """Test tasks of hard groups, of the others, and of all as they come."""
    case = case_of(scale, name)
    every = Kind(ways, case.shots, QUERIES, case.choice, name="all")  # type: ignore[arg-type]
    hard = hardest_groups(source, "test", ways, case.hardest_test)
    return {kind.name: kind for kind in (*by_hardness(every, source, "test", hard, 0.5), every)}


def trained(scale: str, case: str, arm: str, budget: Budget, seed: int) -> dict[str, Any]:
    """One run: per kind of test tasks the accuracy of every one, the same for all arms and seeds."""
    parts = Parts(recipe_of(scale, case, arm, budget, seed))
    data, plan = parts.data, Plan("loop")
    state = fit_parts(parts, plan=plan)
    learner, by_kind = parts.learner_after(1), {}
    for name, kind in test_kinds(scale, case, data.pictures, parts.recipe.tasks.ways).items():
        stream = few_shot_sampler(
            data.pictures,
            "test",
            seed=derive_seed(0, "landscape-hard-share", name),
            kinds=[kind],
            mean=data.scale.mean,
            std=data.scale.std,
        )
        judged = evaluate(learner, state.params, state.buffers, stream, parts.loss, budget.episodes, plan)
        by_kind[name] = judged.scores
    return {"scores": by_kind, "hard groups": list(data.hard_groups)}


def drawn_share(scale: str, case: str, arm: str, budget: Budget, tasks: int) -> float:
    """The share of hard tasks among the first of the training stream, counted by names of classes."""
    data = build_data(recipe_of(scale, case, arm, budget, 0))
    source = data.pictures
    assert source.groups is not None
    hard = {
        name
        for name, group in zip(source.class_names, source.groups, strict=True)
        if source.group_names[group] in data.hard_groups
    }
    return sum(set(data.train.files(i)["classes"]) <= hard for i in range(tasks)) / tasks


NAME = "landscape-hard-share"
WAYS = 5
SEEDS = {"smoke": 1, "cpu": 3, "paper": 5}
BUDGETS = {
    "smoke": Budget({"alphabets": 3, "superclasses": 3}, 4, 2, 4),
    "cpu": Budget({"alphabets": 800, "superclasses": 500}, 4, 32, 200),
    "paper": Budget({"alphabets": 20_000, "superclasses": 20_000}, 8, 64, 1000),
}
SAID = {
    "share": "hard tasks in half of training (tasks.hard_share=0.5)",
    "weight": "hard tasks at five times the weight (outer.hard_weight=5)",
}
COUNTED = 400


class Job(NamedTuple):
    """One training run."""

    scale: str
    case: str
    arm: str
    budget: Budget
    seed: int


class Run(NamedTuple):
    """What one run came to: accuracies on test tasks by kind, and the groups that were hard in training."""

    scores: dict[str, list[float]]
    hard_groups: list[str]

    @classmethod
    def kept(cls, plain: dict[str, Any]) -> Run:
        """From plain data."""
        return cls(plain["scores"], plain["hard groups"])

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"scores": self.scores, "hard groups": self.hard_groups}

    def mean(self, kind: str) -> float:
        """The mean accuracy on one kind of test tasks."""
        return math.fsum(self.scores[kind]) / len(self.scores[kind])


ByArm = Mapping[str, Sequence[Run]]
"""Runs by how hard tasks are treated, seed by seed."""


def run(scale: str, say: Say) -> Reproduction:
    """At ``smoke`` on the embedded glyphs, otherwise on Omniglot and CIFAR-FS; finished runs are kept."""
    budget, seeds = BUDGETS[scale], range(SEEDS[scale])
    jobs = [Job(scale, case, arm, budget, seed) for seed in seeds for case in CASES for arm in ARMS]
    by_case: dict[str, dict[str, list[Run]]] = {case: {arm: [] for arm in ARMS} for case in CASES}
    for job, value in zip(jobs, compute_parts(NAME, VERSION, trained, jobs), strict=True):
        one = Run.kept(value)
        by_case[job.case][job.arm].append(one)
        means = ", ".join(f"{kind} {100 * one.mean(kind):.1f}" for kind in KINDS)
        say(f"{job.case}, {job.arm}, seed {job.seed}: {means}")
    rows = [_whole(by_case, scale)] + (_smoke_rows(by_case) if scale == "smoke" else _rows(by_case, scale))
    data = {
        case: {arm: [one.as_dict() for one in runs] for arm, runs in arms.items()}
        for case, arms in by_case.items()
    }
    return Reproduction(rows, {NAME: _figure(by_case)}, data, _protocol(by_case, scale))


def gain(by_arm: ByArm, arm: str, kind: str) -> Interval:
    """Points above plain training on the same tasks and from the same first weights, over seeds."""
    pairs = zip(by_arm[arm], by_arm["plain"], strict=True)
    return mean_interval([100 * (one.mean(kind) - plain.mean(kind)) for one, plain in pairs])


def _whole(by_case: Mapping[str, ByArm], scale: str) -> Row:
    scores = [
        (one.mean(kind), WAYS * QUERIES * BUDGETS[scale].episodes)
        for arms in by_case.values()
        for runs in arms.values()
        for one in runs
        for kind in KINDS
    ]
    return counts_row(scores)


def _smoke_rows(by_case: Mapping[str, ByArm]) -> list[Row]:
    """What must hold however little was trained."""
    again = Run.kept(trained("smoke", "alphabets", "weight", BUDGETS["smoke"], 0))
    mine = by_case["alphabets"]["weight"][0]
    pairs = [pair for kind in KINDS for pair in zip(mine.scores[kind], again.scores[kind], strict=True)]
    rows = [same_row("alphabets, weight: trained again, every task has the same accuracy", pairs)]
    for case in CASES:
        share = drawn_share("smoke", case, "share", BUDGETS["smoke"], COUNTED)
        what = f"{case}: share of hard tasks among the first {COUNTED}, within three deviations of 0.5"
        rows.append(row(what, 0.5, share, abs(share - 0.5) < 3 * 0.5 / COUNTED**0.5))
    return rows


def _rows(by_case: Mapping[str, ByArm], scale: str) -> list[Row]:
    rows = []
    for case, arms in by_case.items():
        plain = {kind: _over_seeds(arms["plain"], kind) for kind in KINDS}
        what = f"{case}: plain training is worse on hard test tasks than on easy ones"
        said = f"{plain['hard'].mean:.1f} against {plain['easy'].mean:.1f} %"
        rows.append(row(what, "by definition", said, plain["hard"].mean < plain["easy"].mean))
        for arm, words in SAID.items():
            for kind in KINDS:
                rows.append(_effect(f"{case}: {words}", kind, gain(arms, arm, kind), scale))
    return rows


def _effect(of: str, kind: str, gained: Interval, scale: str) -> Row:
    """Better beyond its interval; on easy tasks, not worse beyond it."""
    holds = gained.mean + gained.ci95 >= 0 if kind == "easy" else gained.mean - gained.ci95 > 0
    what = f"{of}: {'no loss on easy' if kind == 'easy' else f'gain on {kind}'} test tasks, points"
    paper = {"hard": "improves (§6, of others' work)", "easy": "not stated", "all": "not stated"}[kind]
    expected = scale != "cpu" or what not in FAILS
    return row(what, paper, str(gained), holds, expected=expected, reason=REASON)


REASON = "paired with plain training: same first weights, same test tasks; interval over seeds decides"
FAILS: tuple[str, ...] = (
    *(
        f"{case}: {words}: gain on {kind} test tasks, points"
        for case in CASES
        for words in SAID.values()
        for kind in ("hard", "all")
    ),
    f"superclasses: {SAID['weight']}: no loss on easy test tasks, points",
)
"""What is not shown at `cpu`: no gain is beyond its interval, and one loss is."""


def _figure(by_case: Mapping[str, ByArm]) -> Figure:

    groups = {
        f"{case}, {kind} test tasks": {arm: bar(_over_seeds(runs, kind)) for arm, runs in arms.items()}
        for case, arms in by_case.items()
        for kind in KINDS
    }
    title = "Hard tasks more often, or with more weight: accuracy on test tasks, %"
    return bars_figure(groups, title, columns=len(KINDS))


def _over_seeds(runs: Sequence[Run], kind: str) -> Interval:
    """Of accuracies in percent."""
    return mean_interval([100 * one.mean(kind) for one in runs])


def _protocol(by_case: Mapping[str, ByArm], scale: str) -> dict[str, Any]:
    budget = BUDGETS[scale]
    hard = {case: ", ".join(arms["share"][0].hard_groups) for case, arms in by_case.items()}
    return {
        "tasks": "alphabets: Omniglot, 5-way 1-shot within an alphabet; superclasses: CIFAR-FS, 5-way "
        f"5-shot, a task's classes all of hard superclasses or all of others; {QUERIES} queries a class",
        "training": f"MAML of one step by Adam at 1e-3, {budget.tasks} tasks a step, steps {budget.steps}; "
        f"Conv4-{budget.filters}, strided",
        "hard groups": f"hardest of nearest neighbours of pixels in the training split: {hard}",
        "hard test groups": "the same measure in the test split: "
        + ", ".join(f"{one.hardest_test} of {name}" for name, one in CASES.items()),
        "judged": f"{budget.episodes} test tasks of each kind, {SEEDS[scale]} seed(s), after one step",
    }
