"""Episode ``i`` is one thing: alone, in any batch, in any order, by its file names, and in an evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from innerloop.core.random import derive_seed, hashed_bits
from innerloop.core.types import Task
from innerloop.data.arrays import from_arrays
from innerloop.data.augment import episode_transform, lee2019
from innerloop.data.source import ImageSource
from innerloop.evaluation import Protocol, evaluate_head
from innerloop.nets import conv4
from innerloop.tasks.episodes import Kind, choose_rows
from innerloop.tasks.few_shot import few_shot, few_shot_sampler
from innerloop.tasks.sampler import Sampler
from innerloop.tasks.supervised import supervised_sampler, with_rotations
from innerloop.testing import check_tasks


def unequal(counts: list[int], groups: list[int] | None = None, side: int = 3, seed: int = 0) -> ImageSource:
    """Classes of these sizes; every picture is different, so that it tells its row."""
    pixels = np.random.default_rng(seed).integers(0, 256, (sum(counts), side, side, 1), dtype=np.uint8)
    names = [f"class{c:03d}" for c in range(len(counts))]
    return from_arrays(pixels, np.repeat(names, counts), splits={"train": names}, groups=groups)


def rows_by_bytes(source: ImageSource) -> dict[bytes, int]:
    rows = {picture.tobytes(): row for row, picture in enumerate(source.images)}
    assert len(rows) == len(source.images)
    return rows


def served(task: Task, rows: dict[bytes, int]) -> tuple[list[int], ...]:
    """Rows of the support and query pictures, labels and classes of a task."""

    def of(x: torch.Tensor) -> list[int]:
        pixels = (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        return [rows[picture.tobytes()] for picture in pixels]

    return (
        of(task.x_support),
        of(task.x_query),
        task.y_support.tolist(),
        task.y_query.tolist(),
        task.id.tolist(),
    )


def named(sampler: Sampler, i: int, source: ImageSource, number: dict[str, int]) -> tuple[list[int], ...]:
    files = sampler.files(i)
    classes = [source.class_names.index(name) for name in files["classes"]]
    return [number[name] for name in files["support"]], [number[name] for name in files["query"]], classes


def some_sampler(random: np.random.Generator) -> tuple[ImageSource, Sampler, list[str]]:
    """A source with classes and groups of random sizes, and a sampler with random settings."""
    many = int(random.integers(24, 60))
    groups = [c if c < 6 else int(random.integers(0, 6)) for c in range(many)]
    source = unequal(random.integers(16, random.choice([18, 90, 400]), many).tolist(), groups)
    if random.random() < 0.2:
        source = with_rotations(source)
    ways, words = int(random.integers(2, 5)), source.group_names
    ragged = random.random() < 0.5

    def kind(place: int) -> Kind:
        size = (ways + place * ragged, int(random.integers(1, 4)) if ragged else 2, 2 + place * ragged)
        choice = str(random.choice(["any", "across-groups", "one-group"]))
        large = [w for g, w in enumerate(words) if (source.groups == g).sum() >= size[0]]  # type: ignore[union-attr]
        if choice == "one-group":
            return Kind(*size, "one-group", (large[0],) if random.random() < 0.3 else None, name="one")
        if choice == "across-groups":
            return Kind(*size, "across-groups", words[:5] if random.random() < 0.3 else None, name="across")
        return Kind(*size, "any", words[:3] if random.random() < 0.3 else None, float(random.random()) + 0.1)

    kinds = [kind(place) for place in range(int(random.integers(1, 4)))]
    balanced = bool(random.random() < 0.5)
    sampler = few_shot_sampler(source, "train", seed=int(random.integers(99)), kinds=kinds, balanced=balanced)
    return source, sampler, [str(k) for k in kinds]


@pytest.mark.parametrize("seed", range(24))
def test_an_episode_is_the_same_however_it_is_asked_for(seed: int) -> None:
    random = np.random.default_rng(seed)
    source, sampler, kinds = some_sampler(random)
    rows = rows_by_bytes(source)
    number = {source.files(row): row for row in range(len(source.images))}
    size, count = int(random.integers(1, 60)), 140
    wanted: dict[int, tuple[list[int], ...]] = {}
    for step in range(-(-count // size)):
        for place, task in enumerate(sampler.batch(step, size).tasks()):
            wanted[step * size + place] = served(task, rows)
    scattered = random.integers(0, count, 40).tolist()
    for i, task in zip(scattered, sampler.episodes(scattered).tasks(), strict=True):
        assert served(task, rows) == wanted[i], (i, size, kinds)
    for i in scattered:
        assert served(sampler.episode(i), rows) == wanted[i], (i, size, kinds)
        support, query, _, _, classes = wanted[i]
        assert named(sampler, i, source, number) == (support, query, classes), (i, size, kinds)
        assert not set(support) & set(query)


def test_the_sizes_that_users_have() -> None:
    counts = np.random.default_rng(0).integers(25, 400, 160).tolist()
    source = unequal(counts)
    rows, number = rows_by_bytes(source), {f"X[{row}]": row for row in range(sum(counts))}
    sampler = few_shot_sampler(source, "train", seed=0, ways=5, shots=1, queries=15)
    for step in range(8):
        for place, task in enumerate(sampler.batch(step, 25).tasks()):
            i, rows_served = 25 * step + place, served(task, rows)
            assert served(sampler.episode(i), rows) == rows_served
            assert named(sampler, i, source, number) == (rows_served[0], rows_served[1], rows_served[4])


@pytest.mark.parametrize("counts", [[7, 30, 12, 9, 70, 8], [20] * 6])
def test_keys_lie_class_after_class_within_the_episode(counts: list[int]) -> None:
    """The rule in full, one picture at a time; with equal sizes it is what it always was."""
    source, seed = unequal(counts), 5
    index = np.arange(3, 9)
    classes = np.stack([np.random.default_rng(int(i)).permutation(6)[:4] for i in index])
    chosen = choose_rows(seed, index, classes, source, 5)
    for episode, mine, taken in zip(index, classes, chosen, strict=True):
        sizes = [counts[c] for c in mine]
        keys = hashed_bits(derive_seed(seed, "rows"), np.array([episode]), sum(sizes))[0]
        for c, first, size, got in zip(mine, np.cumsum([0, *sizes]), sizes, taken, strict=False):
            smallest = sorted(range(size), key=lambda row: keys[first + row])[:5]
            assert got.tolist() == [int(source.starts[c]) + row for row in smallest]


def test_pictures_of_other_classes_do_not_matter() -> None:
    """A class that grows changes the episodes that show it, and no others."""
    small, large = unequal([9] * 11 + [10]), unequal([9] * 11 + [900])
    index = np.arange(60)
    kinds = [Kind(3, 1, 2)]
    one, other = (few_shot(source, "train", 0, kinds).rows(index, 0) for source in (small, large))
    assert np.array_equal(one.classes, other.classes)
    without = ~(one.classes == 11).any(1)
    assert 0 < without.sum() < 60
    assert np.array_equal(one.query[without], other.query[without])
    assert np.array_equal(one.support[without], other.support[without])


@pytest.mark.parametrize("balanced", [True, False])
def test_augmented_episodes_of_unequal_classes_are_pure(balanced: bool) -> None:
    random = np.random.default_rng(0)
    counts = random.integers(12, 80, 30).tolist()
    names = [f"class{c}" for c in range(30)]
    colours = random.integers(0, 256, (sum(counts), 9, 9, 3), dtype=np.uint8)
    source = from_arrays(colours, np.repeat(names, counts), splits={"train": names})
    transform = episode_transform(3, lee2019(9))
    options: dict[str, Any] = {"seed": 0, "shots": 2, "queries": 1, "transform": transform}
    sampler = few_shot_sampler(source, "train", balanced=balanced, **options)
    check_tasks(sampler, 40)
    check_tasks(supervised_sampler(source, "train", seed=0, size=7, transform=transform), 40)


def test_writing_into_a_task_changes_no_other() -> None:
    sampler = few_shot_sampler(unequal([9, 12, 30, 8, 11, 10]), "train", seed=0, ways=3, queries=2)
    before = [torch.cat([t.y_support, t.y_query, t.id]) for t in sampler.batch(0, 4).tasks()]
    batch, task = sampler.batch(0, 4), sampler.episode(1)
    for tensor in (*batch, *task):
        tensor.zero_()
    after = [torch.cat([t.y_support, t.y_query, t.id]) for t in sampler.batch(0, 4).tasks()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    alone = sampler.episode(1)
    assert torch.equal(torch.cat([alone.y_support, alone.y_query, alone.id]), before[1])


@pytest.mark.parametrize("mixed", [False, True])
def test_an_evaluation_of_more_episodes_begins_with_those_of_fewer(mixed: bool) -> None:
    random = np.random.default_rng(1)
    counts = random.integers(8, 60, 24).tolist()
    groups = [c // 6 for c in range(24)]
    source = unequal(counts, groups, side=8)
    net = conv4(1, 8, 5, filters=4, pooling="stride", norm="group")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    params = {name: value.double() for name, value in params.items()}
    kinds = [Kind(3, 1, 4), Kind(3, 1, 4, "one-group")] if mixed else [Kind(3, 1, 4)]

    def scores(episodes: int) -> list[float]:
        protocol = Protocol(ways=3, shots=1, queries=4, episodes=episodes, norm="group", head="cosine")
        evaluation = evaluate_head(net, params, buffers, source, protocol, "train", kinds=kinds)
        return list(evaluation.scores)

    few, many = scores(30), scores(230)
    assert few == many[:30]
