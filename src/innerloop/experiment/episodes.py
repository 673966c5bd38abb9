"""Which held-out tasks a recipe is judged on."""

from __future__ import annotations

from pathlib import Path

from innerloop.data.hashing import file_hash, text_hash
from innerloop.data.source import ImageSource
from innerloop.evaluation.episodes import Episodes
from innerloop.experiment.kept import digest, own_folder
from innerloop.experiment.pictures import plain_source
from innerloop.experiment.recipe.protocols import IMAGE_FAMILIES, family_asked, pictures_asked
from innerloop.experiment.recipe.schema import Data, Recipe
from innerloop.experiment.run_data import test_digest
from innerloop.tasks.families import FAMILIES, get_family
from innerloop.tasks.few_shot import split_classes
from innerloop.tasks.sampler import full_settings


def episodes_of(recipe: Recipe, split: str = "test") -> Episodes:
    """The episodes that a recipe is judged on: two recipes draw the same tasks if these are equal.

    >>> from innerloop.experiment import make_recipe
    >>> short, long = (make_recipe({}, [f"outer.steps={steps}"]) for steps in (10, 1000))
    >>> episodes_of(short) == episodes_of(long)
    True
    """
    if recipe.tasks.family in IMAGE_FAMILIES:
        return pictures_asked(
            recipe, split, _pictures(recipe.data, split), _grouping(plain_source(recipe.data), split)
        )
    family = get_family(recipe.tasks.family)
    name = next((known for known, each in FAMILIES.items() if each is family), recipe.tasks.family)
    return family_asked(recipe, split, name, full_settings(family, recipe.tasks.settings))


def _pictures(data: Data, split: str) -> str:
    """Twelve digits for the classes of a split and their pictures, before they are converted.

    A folder's pictures are its files. Other pictures have a size of their own, and opening them in it only
    maps a file; the files of a folder would all have to be converted once more.
    """
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
    if source.groups is None:
        return None
    of_classes = source.groups[split_classes(source, split)]
    # groups are drawn by their number, so that their order counts as well
    order = [name for g, name in enumerate(source.group_names) if (of_classes == g).any()]
    return text_hash(*order, *(source.group_names[g] for g in of_classes))[:12]
