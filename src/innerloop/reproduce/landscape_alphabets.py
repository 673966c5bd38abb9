"""Omniglot's easy and hard alphabets, and the training runs behind Tables 1 and 4 (Landscape, §5).

They stand apart from the rows that are made of them, so that finished runs outlive a change of words there
(:func:`innerloop.reproduce.parts.remembered`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innerloop.data.source import ImageSource
    from innerloop.tasks.few_shot import Kind

FURTHER = "NAL-1 at 1e-5"
"""NAL's steps are a tenth of the published ones: at ten times the rate it comes as far."""
WAYS, QUERIES = 5, 10
SANSKRIT, BENGALI = "Sanskrit", "Bengali"


def trained(scale: str, setting: str, method: str, budget: Any, seed: int) -> dict[str, float]:
    """Accuracies in percent of one method, trained in one setting."""
    from innerloop.reproduce.landscape_images import judge_all

    train, judged = tasks_of(scale, setting, method)
    return judge_all(method.split("-")[0], train, judged, budget, seed, 1e-5 if method == FURTHER else None)


def untrained(scale: str, budget: Any) -> dict[str, dict[str, float]]:
    """MAML and NAL before training: the same network, which takes the same step in the same tasks."""
    from innerloop.reproduce.landscape_images import judge_first

    return {
        method: judge_first(method.split("-")[0], *tasks_of(scale, "Large", method), budget, 0)
        for method in ("MAML", "NAL-1")
    }


def tasks_of(
    scale: str, setting: str, method: str
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
    shape = Shape(WAYS, 10 if method == "NAL-10" else 1, QUERIES)

    def easy_kind(part: str) -> Kind:
        return Kind(shape, "across-groups", tuple(alphabets[f"{part} easy"]), 0.5, "easy")

    def hard_kind(part: str) -> Kind:
        return Kind(shape, "one-group", tuple(hard[part]), 0.5, "hard")

    judged = {f"{part} easy": (source, easy_kind(part)) for part in ("train", "test")}
    judged |= {f"{part} hard": (source, hard_kind(part)) for part in ("train", "test")}
    return (source, [easy_kind("train"), hard_kind("train")]), judged


@functools.lru_cache(maxsize=1)
def alphabets_of(scale: str) -> tuple[ImageSource, dict[str, list[str]]]:
    """Easy and hard alphabets: 25 and 5 to train on, 15 and 5 to test on (fewer for the glyphs)."""
    from innerloop.data import open_source
    from innerloop.data.glyphs import glyphs

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
    from innerloop.core.types import TaskBatch
    from innerloop.tasks.episodes import Shape
    from innerloop.tasks.few_shot import Kind, few_shot_sampler
    from innerloop.theory.hardness import nearest_neighbour_error

    errors = {}
    for name in source.group_names:
        kind = Kind(Shape(WAYS, 1, 5), "one-group", (name,))
        batch = few_shot_sampler(source, "all", seed=0, kinds=[kind]).episodes(range(episodes))
        assert isinstance(batch, TaskBatch)
        flat = batch._replace(x_support=batch.x_support.flatten(2), x_query=batch.x_query.flatten(2))
        errors[name] = float(nearest_neighbour_error(*flat[:4]).mean())
    return sorted(errors, key=lambda name: -errors[name])
