"""Training as Bridge published it: RAdam, rates that drop on plateaus, early stopping, Lee's augmentation."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from innerloop.experiment.data import build_data
from innerloop.experiment.recipe.library import load_recipe
from innerloop.tasks import Sampler
from innerloop.testing.closeness import ROUNDED, assert_close
from innerloop.training import TrainState, fit, make_optimiser
from innerloop.training.loop import Validation
from oracles.training import Kept, judged, quadratic, sines


def trained(kept: Kept, validation: Validation | None, steps: int, optimiser: str = "sgd") -> TrainState:
    objective, state = quadratic()
    make = make_optimiser(optimiser, 0.5)
    return fit(
        *(objective, state, sines(), make),
        steps=steps,
        batch=1,
        validation=validation,
        save=kept.save,
        log=kept.records.append,
        log_every=1,
    )


def radam(weight: float, steps: int, lr: float) -> float:
    """Liu et al. (2020), Algorithm 2, on the gradient w − 1, one number at a time."""
    beta1, beta2, eps = 0.9, 0.999, 1e-8
    longest = 2 / (1 - beta2) - 1
    mean = square = 0.0
    for t in range(1, steps + 1):
        gradient = weight - 1
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        corrected = mean / (1 - beta1**t)
        length = longest - 2 * t * beta2**t / (1 - beta2**t)
        if length > 5:  # torch's and the released optimiser's bound; the paper's algorithm says 4
            above = (length - 4) * (length - 2) * longest
            rectified = math.sqrt(above / ((longest - 4) * (longest - 2) * length))
            weight -= lr * rectified * corrected * math.sqrt(1 - beta2**t) / (math.sqrt(square) + eps)
        else:
            weight -= lr * corrected
    return weight


@pytest.mark.parametrize("steps", [1, 5, 6, 40])
def test_radam_is_the_papers(steps: int) -> None:
    final = trained(Kept(), None, steps, "radam").params["w"]
    assert_close(final, torch.tensor([radam(0.0, steps, 0.5)], dtype=torch.float64))


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("patience", [1, 4])
def test_plateaus_are_those_of_torch(mode: str, patience: int) -> None:
    """torch's schedule with threshold 0: any improvement counts, as it does for the best weights."""
    draw = random.Random(3)
    scores = [round(draw.uniform(0, 1), 1) for _ in range(60)]
    kept = Kept()
    trained(kept, judged(scores, plateau=(0.1, patience), higher_is_better=mode == "max"), len(scores))
    rates = [record["lr"] for record in kept.records if "lr" in record]

    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=0.5)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser,
        mode=mode,  # type: ignore[arg-type]
        factor=0.1,
        patience=patience,
        threshold=0.0,
        eps=0.0,
    )
    expected = []
    for score in scores:
        expected.append(optimiser.param_groups[0]["lr"])
        schedule.step(score)
    assert rates == pytest.approx(expected, rel=ROUNDED)
    assert len(set(expected)) > 3


@pytest.mark.parametrize("patience", [1, 3, 15])
def test_early_stopping_counts_validations_without_improvement(patience: int) -> None:
    draw = random.Random(5)
    scores = [round(draw.uniform(0, 1), 1) for _ in range(60)]
    waited, best, stop = 0, -math.inf, 0
    for stop, score in enumerate(scores, 1):  # noqa: B007 (where it ends is what is asked)
        best, waited = (score, 0) if score > best else (best, waited + 1)
        if waited >= patience:
            break
    final = trained(Kept(), judged(scores, patience=patience, higher_is_better=True), len(scores))
    assert final.step == stop < len(scores)
    assert final.best == max(scores[:stop])


@pytest.mark.parametrize("name", ["cifar-fs", "fc100", "mini-imagenet", "tiered-imagenet"])
@pytest.mark.parametrize("shots", [5, 1])
def test_recipes_have_the_published_numbers(name: str, shots: int) -> None:
    """(Tasks per step, pictures per class) as released; an epoch is 1,600 tasks."""
    published = {
        ("mini-imagenet", 5): (2, 10),
        ("mini-imagenet", 1): (6, 10),
        ("tiered-imagenet", 5): (1, 40),
        ("tiered-imagenet", 1): (2, 40),
        ("cifar-fs", 5): (6, 10),
        ("cifar-fs", 1): (2, 20),
        ("fc100", 5): (6, 10),
        ("fc100", 1): (1, 5),
    }
    recipe = load_recipe(f"{name}-mtl" if shots == 5 else f"{name}-mtl-1shot")
    tasks, outer, judging = recipe.tasks, recipe.outer, recipe.eval
    assert (outer.batch, tasks.shots + tasks.queries) == published[name, shots]
    assert judging.every == math.ceil(1600 / outer.batch)
    assert (judging.validation_episodes, judging.episodes, judging.queries) == (400, 2000, 30)
    assert (judging.head, judging.C, judging.normalise_features) == ("logistic", 3.0, True)
    assert (judging.shots, judging.patience, outer.plateau_patience, outer.factor) == (shots, 15, 4, 0.1)
    assert (outer.optimiser, outer.lr, outer.options) == ("radam", 1e-3, {})
    assert (outer.heads, recipe.model.kind, recipe.model.norm) == ("released", "resnet12", "running")
    assert recipe.model.last_layer == ("linear" if name == "fc100" else "normalised")
    assert recipe.model.settings == {"ramp": round(40_000 / outer.batch)}  # DropBlock: so many tasks


# ---- augmentation of training tasks ----


def pictures(sampler: Sampler, i: int) -> Tensor:
    task = sampler.episode(i)
    return torch.cat([task.x_support, task.x_query])


def test_training_tasks_are_augmented_and_held_out_tasks_are_not() -> None:
    items = ["data.name=glyphs", "data.standardise=false", "eval.queries=5"]
    plain, augmented = (
        build_data(load_recipe("cifar-fs-mtl-thin", [*items, f"data.augment={kind}"]))
        for kind in ("none", "lee2019")
    )
    for i in (0, 7):
        before, after = pictures(plain.train, i), pictures(augmented.train, i)
        changed = (before != after).flatten(1).any(1)
        assert changed.float().mean() > 0.9  # support and query alike
        assert torch.equal(plain.train.episode(i).id, augmented.train.episode(i).id)
        again: Any = augmented.train.batch(i, 1)  # a picture's changes are those of its episode
        assert torch.equal(torch.cat([again.x_support[0], again.x_query[0]]), after)
        for split in ("validation", "test"):
            assert torch.equal(pictures(getattr(plain, split), i), pictures(getattr(augmented, split), i))
    support, query = augmented.train.episode(0)[0], augmented.train.episode(0)[2]
    assert not torch.equal(support - plain.train.episode(0)[0], query - plain.train.episode(0)[2])
