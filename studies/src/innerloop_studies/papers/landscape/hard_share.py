"""Hard tasks more often, or with more weight: what that brings on test tasks (Landscape, §6)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from innerloop.core.random import derive_seed
from innerloop.core.statistics import Interval, mean_interval
from innerloop.evaluation.scores import evaluate
from innerloop.experiment import Parts, Recipe, make_recipe
from innerloop.experiment.data import build_data
from innerloop.experiment.fitting import fit_parts
from innerloop.tasks import Kind, few_shot_sampler
from innerloop.tasks.hard_groups import by_hardness, hardest_groups
from innerloop_studies.papers.figures import bars_figure
from innerloop_studies.papers.training import combined, plan_for
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, row, same_row

TITLE = "Hard alphabets and superclasses more often, or with more weight (ours)"
VERSION = 1
QUERIES = 10
KINDS = ("hard", "easy", "all")
ARMS: dict[str, dict[str, Any]] = {  # settings beside those of plain training
    "plain": {},
    "share": {"tasks": {"hard_share": 0.5}},
    "weight": {"outer": {"hard_weight": 5.0}},
}

Runs = Sequence[Mapping[str, Any]]
"""Seed by seed: accuracies on test tasks by kind (``scores``), and the groups that were hard in training."""

ByArm = Mapping[str, Runs]  # runs by how hard tasks are treated


class PictureTasks(NamedTuple):
    """Pictures, and what a task of them is."""

    data: str
    choice: str
    shots: int
    rate: float
    hardest: int
    hardest_test: int


CASES = {
    "alphabets": PictureTasks("omniglot", "one-group", 1, 0.4, 5, 4),
    "superclasses": PictureTasks("cifar-fs", "any", 5, 0.3, 5, 3),
}
"""Omniglot's tasks are within an alphabet. CIFAR-FS has too few classes of a superclass for that."""


class HardShareBudget(NamedTuple):
    """Meta-steps by case, tasks per step, filters, tasks judged per kind."""

    steps: dict[str, int]
    tasks: int
    filters: int
    episodes: int


def recipe_of(scale: str, name: str, arm: str, budget: HardShareBudget, seed: int) -> Recipe:
    """How an arm trains: MAML of one step, by Adam; at ``smoke`` on the embedded glyphs."""
    case, own = CASES[name], ARMS[arm]
    tasks = {"family": "few-shot", "choice": case.choice, "shots": case.shots, "queries": QUERIES}
    hardest, data = {"hardest": case.hardest} if own else {}, "glyphs" if scale == "smoke" else case.data
    outer = {"steps": budget.steps[name], "batch": budget.tasks, "lr": 1e-3}
    sections: dict[str, Any] = {
        "data": {"name": data, "standardise": name == "superclasses"},
        "tasks": {**tasks, **hardest, **own.get("tasks", {})},
        "model": {"kind": "conv4", "filters": budget.filters, "pooling": "stride"},
        "inner": {"method": "maml", "lr": case.rate, "loss": "cross-entropy"},
        "outer": {**outer, **own.get("outer", {})},
        "run": {"seed": seed},
    }
    return make_recipe(sections)


def trained(scale: str, case: str, arm: str, budget: HardShareBudget, seed: int) -> dict[str, Any]:
    """One run: per kind of test tasks the accuracy of every one, the same for all arms and seeds."""
    parts = Parts(recipe_of(scale, case, arm, budget, seed))
    data, plan, about, ways = parts.data, plan_for(parts.recipe), CASES[case], parts.recipe.tasks.ways
    state = fit_parts(parts, plan=plan)
    learner, by_kind = parts.learner_after(1), {}
    scaled: dict[str, Any] = {"mean": data.scale.mean, "std": data.scale.std}
    # test tasks of hard groups, of the others, and of all as they come
    every = Kind(ways, about.shots, QUERIES, about.choice, name="all")  # type: ignore[arg-type]
    hard = hardest_groups(data.pictures, "test", ways, about.hardest_test)
    for kind in (*by_hardness(every, data.pictures, "test", hard, 0.5), every):
        seeded = derive_seed(0, "landscape-hard-share", kind.name)
        stream = few_shot_sampler(data.pictures, "test", seed=seeded, kinds=[kind], **scaled)
        judged = evaluate(learner, state.params, state.buffers, stream, parts.loss, budget.episodes, plan)
        by_kind[kind.name] = judged.scores
    return {"scores": by_kind, "hard groups": list(data.hard_groups)}


def drawn_share(scale: str, case: str, arm: str, budget: HardShareBudget, tasks: int) -> float:
    """The share of hard tasks among the first of the training stream, counted by names of classes."""
    data = build_data(recipe_of(scale, case, arm, budget, 0))
    source = data.pictures
    assert source.groups is not None
    pairs = zip(source.class_names, source.groups, strict=True)
    hard = {name for name, group in pairs if source.group_names[group] in data.hard_groups}
    return sum(set(data.train.files(i)["classes"]) <= hard for i in range(tasks)) / tasks


NAME = "landscape-hard-share"
WAYS = 5
SEEDS = {"smoke": 1, "cpu": 3, "paper": 5}
BUDGETS = {
    "smoke": HardShareBudget({"alphabets": 3, "superclasses": 3}, 4, 2, 4),
    "cpu": HardShareBudget({"alphabets": 800, "superclasses": 500}, 4, 32, 200),
    "paper": HardShareBudget({"alphabets": 20_000, "superclasses": 20_000}, 8, 64, 1000),
}
SAID = {
    "share": "hard tasks in half of training (tasks.hard_share=0.5)",
    "weight": "hard tasks at five times the weight (outer.hard_weight=5)",
}
COUNTED = 400


def run(scale: str, say: Say) -> Reproduction:
    """At ``smoke`` on the embedded glyphs, otherwise on Omniglot and CIFAR-FS; finished runs are kept."""
    budget = BUDGETS[scale]
    jobs = combined(scale=[scale], seed=range(SEEDS[scale]), case=[*CASES], arm=[*ARMS], budget=[budget])
    by_case: dict[str, dict[str, list[Any]]] = {case: {arm: [] for arm in ARMS} for case in CASES}
    for job, one in zip(jobs, compute_parts(NAME, VERSION, trained, jobs), strict=True):
        by_case[job["case"]][job["arm"]].append(one)
        means = ", ".join(f"{kind} {100 * mean(one, kind):.1f}" for kind in KINDS)
        say(f"{job['case']}, {job['arm']}, seed {job['seed']}: {means}")
    every = [one for arms in by_case.values() for runs in arms.values() for one in runs]
    answers = WAYS * QUERIES * budget.episodes
    rows = [counts_row([(mean(one, kind), answers) for one in every for kind in KINDS])]
    rows += _smoke_rows(by_case) if scale == "smoke" else _rows(by_case, scale)
    groups = {}
    for (case, arms), kind in itertools.product(by_case.items(), KINDS):
        groups[f"{case}, {kind} test tasks"] = {a: percent(runs, kind)[:2] for a, runs in arms.items()}
    title = "Hard tasks more often, or with more weight: accuracy on test tasks, %"
    figure = bars_figure(groups, title, columns=len(KINDS))
    hard = {case: ", ".join(arms["share"][0]["hard groups"]) for case, arms in by_case.items()}
    protocol = {
        "tasks": "alphabets: Omniglot, 5-way 1-shot within an alphabet; superclasses: CIFAR-FS, 5-way "
        f"5-shot, a task's classes all of hard superclasses or all of others; {QUERIES} queries a class",
        "training": f"MAML of one step by Adam at 1e-3, {budget.tasks} tasks a step, steps {budget.steps}; "
        f"Conv4-{budget.filters}, strided",
        "hard groups": f"hardest of nearest neighbours of pixels in the training split: {hard}",
        "hard test groups": "the same measure in the test split: "
        + ", ".join(f"{one.hardest_test} of {name}" for name, one in CASES.items()),
        "judged": f"{budget.episodes} test tasks of each kind, {SEEDS[scale]} seed(s), after one step",
    }
    return Reproduction(rows, {NAME: figure}, by_case, protocol)


def percent(runs: Runs, kind: str) -> Interval:
    """Accuracy over seeds."""
    return mean_interval([100 * mean(one, kind) for one in runs])


def _smoke_rows(by_case: Mapping[str, ByArm]) -> list[Row]:
    """What must hold however little was trained."""
    again = trained("smoke", "alphabets", "weight", BUDGETS["smoke"], 0)["scores"]
    mine = by_case["alphabets"]["weight"][0]["scores"]
    pairs = [pair for kind in KINDS for pair in zip(mine[kind], again[kind], strict=True)]
    rows = [same_row("alphabets, weight: trained again, every task has the same accuracy", pairs)]
    for case in CASES:
        share = drawn_share("smoke", case, "share", BUDGETS["smoke"], COUNTED)
        what = f"{case}: share of hard tasks among the first {COUNTED}, within three deviations of 0.5"
        rows.append(row(what, 0.5, share, abs(share - 0.5) < 3 * 0.5 / COUNTED**0.5))
    return rows


def _rows(by_case: Mapping[str, ByArm], scale: str) -> list[Row]:
    rows = []
    for case, arms in by_case.items():
        hard, easy = (percent(arms["plain"], kind).mean for kind in ("hard", "easy"))
        what = f"{case}: plain training is worse on hard test tasks than on easy ones"
        rows.append(row(what, "by definition", f"{hard:.1f} against {easy:.1f} %", hard < easy))
        for (arm, words), kind in itertools.product(SAID.items(), KINDS):
            pairs = zip(arms[arm], arms["plain"], strict=True)
            gained = mean_interval([100 * (mean(one, kind) - mean(plain, kind)) for one, plain in pairs])
            # better beyond its interval; on easy tasks, not worse beyond it
            holds = gained.mean + gained.ci95 >= 0 if kind == "easy" else gained.mean - gained.ci95 > 0
            effect = "no loss on easy" if kind == "easy" else f"gain on {kind}"
            what = f"{case}: {words}: {effect} test tasks, points"
            paper = "improves (§6, of others' work)" if kind == "hard" else "not stated"
            expected = scale != "cpu" or what not in FAILS
            rows.append(row(what, paper, str(gained), holds, expected=expected, reason=REASON))
    return rows


REASON = "paired with plain training: same first weights, same test tasks; interval over seeds decides"
FAILS = [
    f"{case}: {words}: gain on {kind} test tasks, points"
    for case, words, kind in itertools.product(CASES, SAID.values(), ("hard", "all"))
]
FAILS.append(f"superclasses: {SAID['weight']}: no loss on easy test tasks, points")
"""What is not shown at `cpu`: no gain is beyond its interval, and one loss is."""


def mean(one: Mapping[str, Any], kind: str) -> float:
    """The mean accuracy of one run on one kind of test tasks."""
    return math.fsum(one["scores"][kind]) / len(one["scores"][kind])
