"""Tables 1 and 4: Omniglot with easy tasks across alphabets and hard tasks within one."""

import functools
import itertools
from typing import Any, NamedTuple

from innerloop.core.random import derive_seed
from innerloop.data import ImageSource, glyphs, open_source
from innerloop.tasks.episodes import Kind
from innerloop.tasks.hard_groups import group_errors
from innerloop_studies.papers.figures import bars_figure
from innerloop_studies.papers.landscape import images
from innerloop_studies.papers.landscape.images import JUDGED, SEEDS, STEPS, TASKS, Accuracies, Budget
from innerloop_studies.papers.training import combined
from innerloop_studies.reproduce.parts import compute_parts
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, counts_row, row, same_row

TITLE = "Landscape, Tables 1 and 4: Omniglot, easy and hard alphabets"
VERSION = 1


class AlphabetArm(NamedTuple):
    """A line of the table."""

    method: str
    training: tuple[str, float]
    shots: int = 1
    learn_shots: int = 1


FURTHER = {"MAML": "MAML at 1e-1", "NAL-1": "NAL-1 at 1e-4"}
"""SGD at a hundred times the published rates: MAML learns at that one in a tenth of the published steps."""
ARMS = {
    "MAML": AlphabetArm("MAML", images.SGD["MAML"]),
    "NAL-1": AlphabetArm("NAL", images.SGD["NAL"], 1, 5),
    "NAL-10": AlphabetArm("NAL", images.SGD["NAL"], 10, 10),
    FURTHER["MAML"]: AlphabetArm("MAML", ("sgd", 1e-1)),
    FURTHER["NAL-1"]: AlphabetArm("NAL", ("sgd", 1e-4), 1, 5),
    "MAML by Adam": AlphabetArm("MAML", images.ADAM["MAML"]),
    "NAL-1 by Adam": AlphabetArm("NAL", images.ADAM["NAL"], 1, 5),
    "NAL-10 by Adam": AlphabetArm("NAL", images.ADAM["NAL"], 10, 10),
    **{method: AlphabetArm(method, images.BASELINE) for method in ("MTL", "ProtoNet", "RFS")},
}
"""Lines of the table; the numbers are NAL's K at test and in training.

With ten targets a class these are 75 pictures a task, as C.4 says, and 100. C.4 makes that 300 for K = 10,
which are 60 drawings a character of 20: all 20, each three times, and then the mean loss, and the statistics
of batch normalisation, are those of 100.
"""
WAYS, QUERIES = 5, 10
SETTINGS = ("Large", "Small")
SANSKRIT, BENGALI = "Sanskrit", "Bengali"


def trained(scale: str, setting: str, method: str, budget: Budget, seed: int) -> dict[str, float]:
    """Accuracies in percent of one arm, trained in one setting."""
    arm = ARMS[method]
    return images.judge_all(arm.method, *tasks_of(scale, setting, arm), budget, seed, arm.training)


def tasks_of(
    scale: str, setting: str, arm: AlphabetArm
) -> tuple[tuple[ImageSource, list[Kind]], dict[str, tuple[ImageSource, Kind]]]:
    """What is trained on, and what is judged on."""
    source, alphabets = alphabets_of(scale)

    def kinds(part: str, shots: int) -> list[Kind]:
        easy, hard = (tuple(alphabets[f"{part} {name}"]) for name in ("easy", "hard"))
        hard = hard[:1] if setting == "Small" else hard
        return [
            Kind(WAYS, shots, QUERIES, "across-groups", easy, 0.5, "easy"),
            Kind(WAYS, shots, QUERIES, "one-group", hard, 0.5, "hard"),
        ]

    both = [(part, kind) for part in ("train", "test") for kind in kinds(part, arm.shots)]
    judged = {f"{part} {kind.name}": (source, kind) for part, kind in both}
    return (source, kinds("train", arm.learn_shots)), judged


@functools.lru_cache(maxsize=1)
def alphabets_of(scale: str) -> tuple[ImageSource, dict[str, list[str]]]:
    """Easy and hard alphabets: 25 and 5 to train on, 15 and 5 to test on (fewer for the glyphs)."""
    # by the error of the nearest neighbour of raw pixels on 5-way 1-shot tasks within each
    if scale == "smoke":
        source = glyphs()
        one, other, *easy = group_errors(source, "all", WAYS, 6)
        train, test, cut = [one], [other], len(easy) // 2
    else:
        source = open_source("omniglot", size=28, splits="all")
        ranked = list(group_errors(source, "all", WAYS, 40))
        named = [next(name for name in ranked if name.startswith(start)) for start in (SANSKRIT, BENGALI)]
        rest = [name for name in ranked if name not in named]
        train, test, cut = [named[0], *rest[:8:2]], [named[1], *rest[1:8:2]], 25
        easy = sorted(rest[8:], key=lambda name: derive_seed(0, "landscape-table1", name))
    parts = {"train hard": train, "test hard": test, "train easy": easy[:cut], "test easy": easy[cut:]}
    return source, parts


PUBLISHED = {
    ("Large", "MAML"): (99.2, 96.0, 98.0, 81.2),
    ("Large", "NAL-1"): (69.4, 41.5, 57.8, 45.2),
    ("Large", "NAL-10"): (70.0, 45.3, 67.2, 47.9),
    ("Small", "MAML"): (99.2, 99.1, 98.1, 95.4),
    ("Small", "NAL-1"): (69.2, 46.0, 55.8, 45.8),
    ("Small", "NAL-10"): (70.2, 44.0, 67.8, 48.9),
}
AS_PUBLISHED = tuple(name for name in ARMS if name not in FURTHER.values())
METHODS = {"smoke": AS_PUBLISHED, "cpu": tuple(ARMS), "paper": AS_PUBLISHED}
FAIR = ("MTL", "ProtoNet", "RFS")
BUDGETS = {
    "smoke": Budget(4, 2, 4, "stride", 4),
    "cpu": Budget(1000, 4, 32, "stride", 100),
    "paper": Budget(STEPS, TASKS, 64, "stride", 250),
}


def run(scale: str, say: Say) -> Reproduction:
    """At ``smoke`` on the embedded glyphs, otherwise on Omniglot; finished runs are kept."""
    budget = BUDGETS[scale]
    _, alphabets = alphabets_of(scale)
    methods, lengths = METHODS[scale], {"budget": [budget], "seed": range(SEEDS[scale])}
    jobs = combined(scale=[scale], method=methods, setting=SETTINGS, **lengths)
    values = compute_parts("landscape-table1", VERSION, trained, jobs)
    accuracies = images.over_seeds(jobs, lambda job: f"{job['setting']} {job['method']}", values, say)
    groups = {}
    for size in SETTINGS:
        bars = {method: accuracies[f"{size} {method}"]["test hard"][:2] for method in methods}
        groups[f"{size} r_H, hard test tasks"] = bars
    figure = bars_figure(groups, "Omniglot, 5-way 1-shot within an unseen alphabet, after one step")
    first = {}  # before training: one network, which takes the same step in the same tasks
    for name in ("MAML", "NAL-1") if scale == "smoke" else ():
        arm = ARMS[name]
        first[name] = images.judge_all(arm.method, *tasks_of(scale, "Large", arm), budget, 0, None)
    protocol = {
        "data": "embedded glyphs" if scale == "smoke" else "Omniglot, 28×28",
        "training": f"{budget.steps} steps of {budget.tasks} tasks (the paper: 20,000 of 8), SGD at its "
        "rates, 1e-3 for MAML and 1e-6 for NAL; beside it Adam at the same ones; inner rate 0.1, one step",
        "pictures of a task": "MAML 5 and 50. NAL-1 75, NAL-10 100. The paper contradicts itself: n = n₁ + "
        "n₂ (§5) is 55 and 100, n = n₁ + 5n₂ (C.4) is 75 and 300, and 5 characters have 100 drawings",
        "network": f"Conv4-{budget.filters}, strided, flattened; batch statistics of the query set",
        "judged": f"{budget.episodes} tasks of each kind, {SEEDS[scale]} seed(s); intervals over seeds",
        "hard alphabets": "largest error of raw pixels' nearest neighbours (the paper: of MAML); train "
        f"{', '.join(alphabets['train hard'])}; test {', '.join(alphabets['test hard'])}; Small: the first",
        "baselines": "Adam at 1e-3, same steps; MTL and RFS with logistic regression on frozen unit features "
        "(C = 3)",
    }
    rows = _rows(accuracies, scale, first)
    return Reproduction(rows, {"landscape-table1": figure}, images.plain_accuracies(accuracies), protocol)


def _rows(accuracies: Accuracies, scale: str, first: dict[str, dict[str, float]]) -> list[Row]:
    answers = WAYS * QUERIES * BUDGETS[scale].episodes * SEEDS[scale]
    every = [value.mean for kinds in accuracies.values() for value in kinds.values()]
    rows = [counts_row([(value / 100, answers) for value in every])]

    def mean(setting: str, method: str, part: str = "test hard") -> float:
        return accuracies[f"{setting} {method}"][part].mean

    def gap(setting: str, one: str, other: str, part: str = "test hard") -> float:
        return round(mean(setting, one, part) - mean(setting, other, part), 1)

    if scale == "smoke":  # what must hold however little was trained
        both = [(mean("Large", m, part), mean("Small", m, part)) for m in METHODS[scale] for part in JUDGED]
        what = "before training, MAML's and NAL-1's accuracies are the same"
        return [
            *rows,
            same_row("Large and Small give the same accuracies", both, "one hard alphabet is in both here"),
            images.alike_row(what, first["MAML"], first["NAL-1"]),
        ]

    def statement(what: str, published: Any, ours: Any, holds: bool, more: str = "") -> None:
        expected = scale != "cpu" or what not in FAILS
        rows.append(row(what, published, ours, holds, expected=expected, reason=deviations(scale) + more))

    # MAML against NAL by SGD as published, Adam's number beside it; at ``cpu`` faster SGD too
    for setting, (i, part) in itertools.product(SETTINGS, enumerate(JUDGED)):
        theirs = {o: round(PUBLISHED[setting, "MAML"][i] - PUBLISHED[setting, o][i], 1) for o in PICTURES}
        for other, pictures in PICTURES.items():
            ours, adam = (gap(setting, f"MAML{by}", f"{other}{by}", part) for by in ("", " by Adam"))
            what = f"{setting}: MAML above {other} on {part} tasks, points"
            said = f"{ours} (by Adam {adam})"
            statement(what, theirs[other], said, ours > MARGIN, f"; {RULE}; {pictures}")
        if scale == "cpu":
            ours = gap(setting, FURTHER["MAML"], FURTHER["NAL-1"], part)
            what = f"{setting}: MAML above NAL-1 on {part} tasks, both at a hundred times the rate, points"
            statement(what, theirs["NAL-1"], ours, ours > MARGIN, f"; {RULE}; {FASTER}")
    by_size = [(by, size) for by in ("", " by Adam") for size in ("Small", "Large")]
    small, large, *adam_s = (gap(size, f"MAML{by}", f"NAL-1{by}") for by, size in by_size)
    said = f"{small:.1f} against {large:.1f} (by Adam {adam_s[0]:.1f} against {adam_s[1]:.1f})"
    what = "the gain over NAL-1 on hard test tasks is larger for Small r_H"
    statement(what, "49.6 against 36.0", said, small > large + MARGIN, f"; {RULE}")
    for setting in SETTINGS:  # all by Adam; the paper has no such baseline
        means = {method: mean(setting, method) for method in FAIR}
        best = max(means, key=means.__getitem__)
        ours = gap(setting, "MAML by Adam", best)
        what = f"{setting}: MAML above the best of MTL, ProtoNet and RFS on hard test tasks, all by Adam"
        statement(f"{what}, points", "not compared", f"{ours} ({best})", ours > 0)
    return rows


def deviations(scale: str) -> str:
    """What is not as published, for every row."""
    budget = BUDGETS[scale]
    said = "hard alphabets are the worst of raw pixels' nearest neighbours (the paper: of MAML)"
    if scale == "paper":
        return f"SGD as published; {said}"
    share = budget.steps * budget.tasks / (STEPS * TASKS)
    said = f"and {budget.filters} filters of 64; {said}"
    steps = f"{budget.steps:,} steps of {budget.tasks} tasks"
    return f"SGD as published, but {steps} ({share:.0%} of the paper's {STEPS:,} of {TASKS}) {said}"


PICTURES = {
    "NAL-1": "NAL trains on C.4's 75 pictures a task (§5 says 55)",
    "NAL-10": "NAL trains on 100 pictures a task, as §5 says; C.4's 300 are 60 drawings of a character that "
    "has 20, and each three times weighs as these 100 do",
}
FASTER = (
    "at 1e-1 and 1e-4: in 240 steps MAML's loss did not fall at 1e-3, nor at 1e-2, the paper's largest rate"
)
MARGIN = 5
"""Points: published gaps are 27 to 55, and three seeds of untrained networks differ by two or three."""
RULE = f"it holds above {MARGIN} points"
FAILS = (  # what does not hold at `cpu`, where SGD at the published rate does not begin to learn
    *(f"{s}: MAML above {o} on {p} tasks, points" for s in SETTINGS for o in PICTURES for p in JUDGED),
    "the gain over NAL-1 on hard test tasks is larger for Small r_H",
    "Large: MAML above the best of MTL, ProtoNet and RFS on hard test tasks, all by Adam, points",
)
