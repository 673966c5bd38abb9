"""Omniglot's easy and hard alphabets, and the training runs behind Tables 1 and 4 (Landscape, §5).

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop_studies.reproduce.parts.remembered`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from innerloop_studies.papers.landscape.images import ADAM, BASELINE, SGD, Budget, Training

if TYPE_CHECKING:
    from innerloop.data.source import ImageSource
    from innerloop.tasks.few_shot import Kind


class Arm(NamedTuple):
    """A line of the table."""

    method: str
    training: Training
    shots: int = 1
    learn_shots: int = 1


ONE, TEN = (1, 5), (10, 10)
"""NAL's K at test and in training: with ten targets a class, 75 pictures a task as C.4 says, and 100.

C.4 makes that 300 for K = 10, which are 60 drawings a character of 20: all 20, each three times, and then
the mean loss, and the statistics of batch normalisation, are those of 100.
"""
FURTHER = {"MAML": "MAML at 1e-1", "NAL-1": "NAL-1 at 1e-4"}
"""SGD at a hundred times the published rates: MAML learns at that one in a tenth of the published steps."""
ARMS = {
    "MAML": Arm("MAML", SGD["MAML"]),
    "NAL-1": Arm("NAL", SGD["NAL"], *ONE),
    "NAL-10": Arm("NAL", SGD["NAL"], *TEN),
    FURTHER["MAML"]: Arm("MAML", Training("sgd", 1e-1)),
    FURTHER["NAL-1"]: Arm("NAL", Training("sgd", 1e-4), *ONE),
    "MAML by Adam": Arm("MAML", ADAM["MAML"]),
    "NAL-1 by Adam": Arm("NAL", ADAM["NAL"], *ONE),
    "NAL-10 by Adam": Arm("NAL", ADAM["NAL"], *TEN),
    "MTL": Arm("MTL", BASELINE),
    "ProtoNet": Arm("ProtoNet", BASELINE),
    "RFS": Arm("RFS", BASELINE),
}
WAYS, QUERIES = 5, 10
SANSKRIT, BENGALI = "Sanskrit", "Bengali"


def trained(scale: str, setting: str, method: str, budget: Budget, seed: int) -> dict[str, float]:
    """Accuracies in percent of one arm, trained in one setting."""
    from innerloop_studies.papers.landscape.images import judge_all

    arm = ARMS[method]
    return judge_all(arm.method, *tasks_of(scale, setting, arm), budget, seed, arm.training)


def untrained(scale: str, budget: Budget) -> dict[str, dict[str, float]]:
    """MAML and NAL before training: the same network, which takes the same step in the same tasks."""
    from innerloop_studies.papers.landscape.images import judge_first

    return {
        method: judge_first(arm.method, *tasks_of(scale, "Large", arm), budget, 0)
        for method, arm in ARMS.items()
        if method in ("MAML", "NAL-1")
    }


def tasks_of(
    scale: str, setting: str, arm: Arm
) -> tuple[tuple[ImageSource, list[Kind]], dict[str, tuple[ImageSource, Kind]]]:
    """What is trained on, and what is judged on."""
    from innerloop.tasks.episodes import Shape
    from innerloop.tasks.few_shot import Kind

    source, alphabets = alphabets_of(scale)
    few = setting == "Small"
    hard = {
        part: alphabets[f"{part} hard"][:1] if few else alphabets[f"{part} hard"]
        for part in ("train", "test")
    }

    def kinds(part: str, shots: int) -> list[Kind]:
        """Easy and hard tasks of one part of the alphabets."""
        shape = Shape(WAYS, shots, QUERIES)
        return [
            Kind(shape, "across-groups", tuple(alphabets[f"{part} easy"]), 0.5, "easy"),
            Kind(shape, "one-group", tuple(hard[part]), 0.5, "hard"),
        ]

    judged = {
        f"{part} {kind.name}": (source, kind) for part in ("train", "test") for kind in kinds(part, arm.shots)
    }
    return (source, kinds("train", arm.learn_shots)), judged


@functools.lru_cache(maxsize=1)
def alphabets_of(scale: str) -> tuple[ImageSource, dict[str, list[str]]]:
    """Easy and hard alphabets: 25 and 5 to train on, 15 and 5 to test on (fewer for the glyphs)."""
    from innerloop.data.glyphs import glyphs
    from innerloop.data.opening import open_source

    source = glyphs() if scale == "smoke" else open_source("omniglot", size=28, splits="all")
    ranked = hardest_first(source, 6 if scale == "smoke" else 40)
    if scale == "smoke":
        n = len(ranked)
        return source, {
            "train hard": ranked[:1],
            "test hard": ranked[1:2],
            "train easy": ranked[2 : 2 + (n - 2) // 2],
            "test easy": ranked[2 + (n - 2) // 2 :],
        }
    named = {"train": _name(ranked, SANSKRIT), "test": _name(ranked, BENGALI)}
    rest = [name for name in ranked if name not in named.values()]
    hard = {"train": [named["train"], *rest[:8:2]], "test": [named["test"], *rest[1:8:2]]}
    easy = rest[8:]
    order = sorted(easy, key=lambda name: hash_of(name))
    return source, {
        "train hard": hard["train"],
        "test hard": hard["test"],
        "train easy": order[:25],
        "test easy": order[25:],
    }


def hash_of(name: str) -> int:
    """A fixed random order of names."""
    from innerloop.core.random import derive_seed

    return derive_seed(0, "landscape-table1", name)


def _name(names: list[str], start: str) -> str:
    return next(name for name in names if name.startswith(start))


def hardest_first(source: ImageSource, episodes: int) -> list[str]:
    """Alphabets by the error of the nearest neighbour of raw pixels on 5-way 1-shot tasks within each."""
    from innerloop.tasks.hard_groups import group_errors

    return list(group_errors(source, "all", WAYS, episodes))
