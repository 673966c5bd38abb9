"""Recipes that fit any pictures: what they leave open follows from the pictures (``data.auto``). No torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from innerloop.core.errors import UserError, spelling
from innerloop.experiment.recipe.rules import PICTURES
from innerloop.experiment.recipe.schema import DataSettings, Recipe

if TYPE_CHECKING:
    from innerloop.data.opening import Survey

PARTS = {"train": "to train on", "validation": "to validate", "test": "to test"}
WAYS, SHOTS, QUERIES = 5, 5, 15
"""The most that are chosen."""
ENOUGH = 2 * SHOTS
"""Pictures of a class from which on there are five shots, and five queries or more."""
EPOCHS = 60
MINIBATCH = 64
FEWEST_STEPS, MOST_STEPS = 300, 3000
"""Of plain supervision: sixty passes through the pictures, within these bounds."""
FEW = 10_000
"""No more training pictures than this are learnt by heart by plain supervision and prototypes: in colour they
are cropped, flipped and tinted at random. MAML did better without, see the docs page on own pictures.
Grey pictures may be characters, which mean something else when flipped."""
WORDS = {'on_bad="skip"': "data.on_bad=skip", "leave_out": "data.leave_out"}


def pictures_of(data: DataSettings) -> Survey:
    """The pictures of a recipe."""
    from innerloop.data.opening import survey

    with spelling(WORDS):
        return survey(
            data.name,
            splits=data.splits,
            split_file=data.split_file,
            on_bad=data.on_bad,
            leave_out=data.leave_out,
        )


def fit(recipe: Recipe, said: Collection[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Settings of a recipe that follow from its pictures, and what is said of them."""
    seen = pictures_of(recipe.data)
    _check_classes(seen)
    pictures = sum(seen.counts[name] for name in seen.splits["train"])
    grey = recipe.data.colour == "grey" if "data.colour" in said else seen.grey
    by_heart = learns_by_heart(recipe.tasks.family, recipe.inner.method)
    free: dict[str, dict[str, Any]] = {
        "data": {
            "size": seen.side,
            "colour": "grey" if seen.grey else "rgb",
            "augment": "lee2019" if by_heart and not grey and pictures <= FEW else "none",
        },
        "tasks": {} if recipe.tasks.mixture else fitted_shape(seen, recipe, said),
        "outer": {},
    }
    if recipe.tasks.family == "supervised":
        free["tasks"]["minibatch"] = min(MINIBATCH, pictures)
        free["outer"]["steps"] = max(FEWEST_STEPS, min(MOST_STEPS, EPOCHS * pictures // MINIBATCH))
    settings = {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in said}
        for section, values in free.items()
    }
    return settings, _lines(seen, with_settings(recipe, settings), said)


def learns_by_heart(family: str, method: str) -> bool:
    """Whether few pictures are learnt by heart, so that they are augmented: see :data:`FEW`."""
    return family == "supervised" or method == "protonet"


def with_settings(recipe: Recipe, settings: Mapping[str, Mapping[str, Any]]) -> Recipe:
    """A recipe with settings of known sections replaced; they are not checked."""
    sections = {name: getattr(recipe, name).model_copy(update=dict(new)) for name, new in settings.items()}
    return recipe.model_copy(update=sections)


def fitted_shape(seen: Survey, recipe: Recipe, said: Collection[str]) -> dict[str, int]:
    """Ways, shots and queries that all classes allow, apart from those that are said."""
    tasks = recipe.tasks
    given = {key: getattr(tasks, key) for key in ("ways", "shots", "queries") if f"tasks.{key}" in said}
    parts = [seen.splits[part] for part in PARTS if len(seen.splits.get(part, ())) > 1] or [[*seen.counts]]
    least = min(seen.counts[name] for part in parts for name in part)
    shots = given.get("shots") or _shots(least, given.get("queries"))
    shape = {
        "ways": min(WAYS, *map(len, parts)),
        "shots": shots,
        "queries": max(1, min(QUERIES, least - shots)),
    }
    return {key: value for key, value in shape.items() if key not in given}


def _shots(least: int, queries: int | None) -> int:
    if queries is not None:
        return max(1, min(SHOTS, least - queries))
    return SHOTS if least >= ENOUGH else max(1, least // 2)


def _check_classes(seen: Survey) -> None:
    """Refuses pictures of which no tasks can be made for training, validation and tests."""
    classes = len(seen.counts)
    if seen.divided and classes < 6:
        raise UserError(
            f"{seen.name} has {number(classes, 'class', 'classes')}, and training needs six or more, two "
            "each to train, validate and test on: add classes, or label pictures without training, "
            f"`innerloop predict --support {seen.name} PICTURES`."
        )
    few = [part for part in PARTS if len(seen.splits.get(part, ())) < 2]
    if few:
        have = len(seen.splits.get(few[0], ()))
        raise UserError(
            f"{seen.name} has {number(have, 'class', 'classes')} {PARTS[few[0]]} (split '{few[0]}'), and "
            "tasks need two or more: move classes there, or leave the split to innerloop."
        )


def _lines(seen: Survey, recipe: Recipe, said: Collection[str]) -> list[str]:
    """What there is, and what was chosen."""
    tasks, data = recipe.tasks, recipe.data
    counts = [seen.counts[name] for part in PARTS for name in seen.splits[part]]
    parts = ", ".join(f"{len(seen.splits[part])} {words}" for part, words in PARTS.items())
    shape = f"{tasks.ways}-way {tasks.shots}-shot with {number(tasks.queries, 'query', 'queries')}"
    colour = "grey" if data.colour == "grey" else "in colour"
    augmented = "" if data.augment == "none" else "; cropped, flipped and tinted at random"
    shown = ["tasks.ways", "tasks.shots", "tasks.queries", "data.size"]
    free = [key for key in [*shown, *(["data.augment"] if augmented else [])] if key not in said]
    return [
        f"{len(counts)} classes of {span(counts)} pictures ({parts}): "
        f"{'tasks.mixture as given' if tasks.mixture else shape}; {colour}, {data.size}×{data.size} pixels"
        f"{augmented}",
        *([f"this follows from the pictures; to choose otherwise, set {', '.join(free)}"] if free else []),
        *_hint(seen, min(counts), said),
    ]


def span(counts: Collection[int]) -> str:
    """The smallest and the largest of some numbers, in words."""
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def _hint(seen: Survey, least: int, said: Collection[str]) -> list[str]:
    """What it would bring to leave out a few small classes."""
    small = [name for name, count in seen.counts.items() if count < ENOUGH]
    rest = len(seen.counts) - len(small)
    if least >= ENOUGH or not small or rest < max(6, 2 * len(small)) or "tasks.shots" in said:
        return []
    smallest = min(small, key=lambda name: seen.counts[name])
    return [
        f"small classes decide the shots ('{smallest}' has {seen.counts[smallest]} pictures): "
        f"data.leave_out={ENOUGH} leaves out {number(len(small), 'class', 'classes')}, and the others allow "
        f"{SHOTS} shots"
    ]


def number(count: int, one: str, several: str) -> str:
    """A number of things."""
    return f"{count} {one if count == 1 else several}"


def refuse_unfitted(recipe: Recipe) -> None:
    """Refuses to train a recipe that fits any pictures on none."""
    if recipe.data.auto and recipe.tasks.family in PICTURES:
        raise UserError(
            f"{recipe.name} trains on pictures of yours: add data.name=FOLDER, a folder with one folder of "
            "pictures per class."
        )
