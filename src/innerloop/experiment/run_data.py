"""The pictures of a run: kept when it is trained, and compared when it is judged or continued."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.data.source import ImageSource
from innerloop.experiment.data import Data
from innerloop.experiment.picture_record import KEPT, changes, digest, keep, read_kept, refuse, remark
from innerloop.experiment.pictures import Scale, build_source, held_out, own_scale, plain_source
from innerloop.experiment.recipe.picture_fit import with_settings
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES
from innerloop.experiment.recipe.rules import INIT, NOTHING
from innerloop.experiment.recipe.schema import DataSettings as DataSection
from innerloop.experiment.recipe.schema import Recipe
from innerloop.runs.manifest import read_manifest


def data_record(data: Data) -> dict[str, Any]:
    """What the manifest keeps of the pictures: name, content, shape, and the scale that training used."""
    if data.recipe.tasks.family not in IMAGE_FAMILIES:
        return {}
    source, (mean, std) = data.pictures, data.scale
    said, seen = held_out(data.recipe), seen_notes(data.recipe)
    return {
        "name": source.name,
        "content_sha256": source.content_sha256,
        "shape": list(source.images.shape[1:]),
        "mean": mean,
        "std": std,
        **({"validation": said} if said else {}),
        **({"seen": seen[0]} if seen else {}),
        **({"hard_groups": list(data.hard_groups)} if data.hard_groups else {}),
    }


def hard_words(data: Data) -> str | None:
    """What is said of hard tasks before training; None where all are alike."""
    if not data.hard_groups:
        return None
    how = "named" if data.recipe.tasks.hard_groups else "measured by nearest neighbours of pixels"
    return f"hard tasks are those of {', '.join(data.hard_groups)} ({how})"


def keep_data(data: Data, run: Path) -> None:
    """Leaves the split of the recipe's pictures, and what they hold, in the run."""
    section = data.recipe.data
    if data.recipe.tasks.family in IMAGE_FAMILIES:
        keep(run / KEPT, plain_source(section), section.name, data.scale)


def with_kept_data(recipe: Recipe, trained: Recipe, run: Path) -> Recipe:
    """The recipe with the pictures divided as the run kept them; as it is where it names other pictures."""
    kept = read_kept(run / KEPT)
    ours, theirs = recipe.data, trained.data
    same = all(getattr(ours, key) == getattr(theirs, key) for key in ("splits", "split_file"))
    if kept is None or not same or recipe.tasks.family not in IMAGE_FAMILIES:
        return recipe
    if ours.name != theirs.name:
        changed = changes(kept, plain_source(ours))
        if changed.gone or changed.altered:
            return recipe  # other pictures, not the same ones at another place
    return with_settings(recipe, {"data": {"split_file": str(run / KEPT)}})


def shown_as_trained(recipe: Recipe, trained: Recipe, shape: Sequence[int]) -> Recipe:
    """The recipe with another dataset's pictures in the run's size and colour, unless these were typed."""
    ours, theirs = recipe.data, trained.data
    if recipe.tasks.family not in IMAGE_FAMILIES or ours.name == theirs.name or shape[-1] != shape[-2]:
        return recipe
    colour = "grey" if shape[0] == 1 else "rgb"
    if (ours.size, ours.colour) != (theirs.size, theirs.colour):
        return recipe
    if tuple(plain_source(ours).images.shape[1:]) == (*shape[1:], shape[0]):
        return recipe
    return with_settings(recipe, {"data": {"size": shape[-1], "colour": colour}})


def shown_words(recipe: Recipe, asked: Recipe) -> list[str]:
    """What is said of pictures that :func:`shown_as_trained` converts."""
    ours, theirs = recipe.data, asked.data
    if (ours.size, ours.colour) == (theirs.size, theirs.colour):
        return []
    colour = "grey" if ours.colour == "grey" else "in colour"
    return [
        f"pictures of {ours.name} are shown as those that the run was trained on, {ours.size}×{ours.size} "
        f"pixels, {colour}."
    ]


def kept_scale(recipe: Recipe, trained: Recipe, run: Path) -> Scale | None:
    """Mean and deviation that a run was trained with: they belong to its weights. None for its own."""
    kept, ours = read_kept(run / KEPT), recipe.data
    if recipe.tasks.family not in IMAGE_FAMILIES or kept is None or kept["mean"] is None:
        return None
    own = ours.name == trained.data.name or ours.split_file == str(run / KEPT)
    if own or ours.standardise != trained.data.standardise or own_scale(recipe.model.kind):
        return None
    return Scale(kept["mean"], kept["std"])


def check_data(recipe: Recipe, trained: Recipe, run: Path, parts: Sequence[str]) -> list[str]:
    """Sentences on pictures that are not as they were in training."""
    if recipe.tasks.family not in IMAGE_FAMILIES:
        return []
    source, kept = plain_source(recipe.data), read_kept(run / KEPT)
    if kept is None:
        before = (read_manifest(run).get("data") or {}).get("content_sha256")
        same = recipe.data == trained.data
        if before and same and before != build_source(recipe).content_sha256:
            return [
                "the pictures are not those of the training, and this run, made by an earlier version, kept "
                "no split: classes that it was trained on may be among its test classes now."
            ]
        return []
    if recipe.data.split_file != str(run / KEPT):
        return _overlap(source, kept)
    converted = ("size", "colour", "on_bad", "leave_out")
    if any(getattr(recipe.data, key) != getattr(trained.data, key) for key in converted):
        return []  # other pixels on purpose: only the split can be kept
    changed = changes(kept, source)
    refuse(changed, parts, run)
    said = remark(changed)
    return [said] if said else []


def _overlap(source: ImageSource, kept: dict[str, Any]) -> list[str]:
    """A warning where classes of another test set have the names of classes that were trained on."""
    trained = set(kept["splits"].get("train", ()))
    test = [source.class_names[c] for c in source.splits.get("test", ())]
    both = [name for name in test if name in trained]
    if not both:
        return []
    return [
        f"{len(both)} of the {len(test)} test classes have names of classes that the run was trained on, "
        f"such as '{both[0]}': if they are the same, this is no test on new classes."
    ]


@functools.lru_cache(maxsize=4)
def test_digest(data: DataSection) -> str:
    """Stands for the classes and pictures of the test split."""
    return digest(plain_source(data), "test", data.name)


def seen_notes(recipe: Recipe, trained: Recipe | None = None) -> list[str]:
    """A sentence where pretrained weights have seen the classes that they are judged on."""
    if recipe.tasks.family not in IMAGE_FAMILIES:
        return []
    from innerloop.nets.pretrained import overlap

    seen = _seen_by(trained or recipe)
    told = overlap(seen, recipe.data.name) if seen else None
    return [told] if told else []


def seen_word(recipe: Recipe, trained: Recipe | None = None) -> dict[str, str]:
    """The same as an entry of a protocol, for tables: ``yes`` or ``perhaps``; nothing where there is none."""
    if recipe.tasks.family not in IMAGE_FAMILIES:
        return {}
    from innerloop.nets.pretrained import seen_before

    seen = _seen_by(trained or recipe)
    word = seen_before(seen, recipe.data.name) if seen else "no"
    return {} if word == "no" else {"seen": word}


def _seen_by(made: Recipe) -> str | None:
    """What a network had seen before its run; None if it started from nothing that others trained."""
    from innerloop.nets.hugging_face import is_hugging_face
    from innerloop.nets.pretrained import PRETRAINED, UNKNOWN

    kind, start = made.model.kind, INIT if made.outer.objective == NOTHING else made.model.init
    if is_hugging_face(kind):
        return UNKNOWN
    return PRETRAINED[kind].seen if start == INIT and kind in PRETRAINED else None
