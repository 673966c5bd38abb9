"""By what protocol a recipe is judged: which held-out tasks, how each is learned, and what to call that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innerloop.core.losses import get_loss
from innerloop.data.hashing import file_hash, text_hash
from innerloop.data.source import ImageSource
from innerloop.evaluation.episodes import Episodes
from innerloop.experiment.learner import test_steps
from innerloop.experiment.picture_record import digest, own_folder
from innerloop.experiment.pictures import build_kinds, plain_source
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, family_asked, pictures_asked, shapes_asked
from innerloop.experiment.recipe.schema import DataSettings, Recipe
from innerloop.experiment.run_data import seen_word, test_digest
from innerloop.nets.norms import kind_of
from innerloop.tasks.families import FAMILIES, get_family
from innerloop.tasks.sampler import full_settings

if TYPE_CHECKING:
    from innerloop.evaluation.protocol import Protocol


def episodes_of(recipe: Recipe, split: str = "test") -> Episodes:
    """The episodes that a recipe is judged on: two recipes draw the same tasks if these are equal."""
    if recipe.tasks.family in IMAGE_FAMILIES:
        return pictures_asked(
            recipe, split, _pictures(recipe.data, split), _grouping(plain_source(recipe.data), split)
        )
    family = get_family(recipe.tasks.family)
    name = next((known for known, each in FAMILIES.items() if each is family), recipe.tasks.family)
    return family_asked(recipe, split, name, full_settings(family, recipe.tasks.settings))


def _pictures(data: DataSettings, split: str) -> str:
    """Twelve digits for the classes of a split and their pictures, before they are converted."""
    # a folder's pictures are its files: opened in their own size they would all be converted once more
    from innerloop.tasks.few_shot import split_classes

    folder = own_folder(data.name)
    if folder is not None:
        source = plain_source(data)
        told = [_class(source, int(c), folder) for c in split_classes(source, split)]
        return text_hash(*(text for texts in told for text in texts))[:12]
    unchanged = data.model_copy(update={"size": None, "colour": "auto"})
    return test_digest(unchanged) if split == "test" else digest(plain_source(unchanged), split, data.name)


def _class(source: ImageSource, c: int, folder: Path) -> list[str]:
    """The name of a class of a folder, and hashes of its files."""
    rows = range(source.starts[c], source.starts[c + 1])
    return [source.class_names[c], *(file_hash(folder / source.files(row)) for row in rows)]


def _grouping(source: ImageSource, split: str) -> str | None:
    """Twelve digits for which class of a split is in which group; None where there are no groups."""
    from innerloop.tasks.few_shot import split_classes

    if source.groups is None:
        return None
    of_classes = source.groups[split_classes(source, split)]
    # groups are drawn by their number, so that their order counts as well
    order = [name for g, name in enumerate(source.group_names) if (of_classes == g).any()]
    return text_hash(*order, *(source.group_names[g] for g in of_classes))[:12]


def head_protocol(recipe: Recipe, norm: str, episodes: int) -> Protocol:
    """The ``eval`` section as a protocol, for a network of this norm policy."""
    from innerloop.evaluation.grid import PENALTIES
    from innerloop.evaluation.protocol import Protocol

    kind, wanted = build_kinds(recipe, training=False)[0], recipe.eval
    return Protocol(
        kind.ways,
        kind.shots,
        kind.queries,
        episodes=episodes,
        norm=norm,
        seed=wanted.seed,
        head=wanted.head,
        C=wanted.C,
        normalise=wanted.normalise_features,
        copies=wanted.copies,
        lr=wanted.head_lr,
        steps=wanted.head_steps,
        grid=tuple(wanted.C_grid) or (PENALTIES if wanted.ensemble else ()),
        ensemble=wanted.ensemble,
    )


def protocol_of(recipe: Recipe, norm: str, weights: str, trained: Recipe | None = None) -> dict[str, Any]:
    """Everything that a reported number depends on besides the training."""
    tasks = recipe.tasks
    pictures = {}
    if tasks.family in IMAGE_FAMILIES:
        pictures = {"data": recipe.data.name, "test_classes": test_digest(recipe.data)}
    return {
        "tasks": tasks.family,
        **pictures,
        **shapes_asked(recipe),
        "episodes": recipe.eval.episodes,
        "seed": recipe.eval.seed,
        **_adaptation(recipe),
        "norm": norm,
        "kind": kind_of(norm),
        "weights": weights,
        "train_seed": recipe.run.seed,
        **seen_word(recipe, trained),
    }


def _adaptation(recipe: Recipe) -> dict[str, Any]:
    """How a task is learned: by the recipe's inner loop, or by a head with its settings."""
    inner = recipe.inner
    if recipe.eval.head == "learner":
        return {
            "method": inner.method,
            "inner_steps": test_steps(recipe),
            "inner_lr": inner.lr,
            "inner_loss": get_loss(inner.loss).convention,
            **({"head_start": inner.head_start} if inner.head_start != "learned" else {}),
            **({"label_orders": recipe.eval.label_orders} if recipe.eval.label_orders > 1 else {}),
        }
    told = head_protocol(recipe, "running", 1).as_dict()
    settings: tuple[str, ...] = ("C", "normalise", "copies", "lr", "steps", "grid", "ensemble")
    own = {name: told[name] for name in settings if name in told}
    return {"method": f"{recipe.eval.head} head", "head": recipe.eval.head, **own}


def label(recipe: Recipe) -> str:
    """A file's name for evaluations by this protocol: tasks, shape and method."""
    tasks, shape = recipe.tasks, shapes_asked(recipe)
    name = Path(recipe.data.name).name if tasks.family in IMAGE_FAMILIES else tasks.family
    if "shares" in shape:
        name += "-mixture"
    else:
        name += f"-{shape['ways']}way" if "ways" in shape else ""
        name += f"-{shape['shots']}shot"
    how = f"{recipe.inner.method}{test_steps(recipe)}" if recipe.eval.head == "learner" else recipe.eval.head
    # a leading dash would be read as an option by rm, cat and the like
    return re.sub(r"[^\w.-]+", "-", f"{name}-{how}").strip("-.")
