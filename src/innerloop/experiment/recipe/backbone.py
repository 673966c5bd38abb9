"""The recipe that judges a pretrained backbone, on tasks of one's choice or on those of a run. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.place import user_path
from innerloop.experiment.recipe.fitted import fitted_shape, pictures_of, with_settings
from innerloop.experiment.recipe.other_pictures import folders_among, judged_on
from innerloop.experiment.recipe.rules import WITH_WEIGHTS
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe, parse_assignments, typed_keys
from innerloop.experiment.recipe.trust import admit

NOTHING = "none"
"""The value of ``outer.objective`` of runs that train nothing."""

_SHOWN = ("augment", "auto", "standardise", "size", "colour")
"""How a run's network was shown its pictures: a backbone has its own way."""
_PROTOCOL = (
    "episodes",
    "seed",
    "ways",
    "shots",
    "queries",
    "C",
    "normalise_features",
    "baselines",
    "predictions",
)


def backbone_recipe(backbone: str, items: Sequence[str] = (), like: Recipe | None = None) -> Recipe:
    """A recipe that trains nothing and judges a backbone by a head on its features.

    >>> recipe = backbone_recipe("efficientnet-lite0", ["data.name=cifar-fs", "eval.shots=5"])
    >>> recipe.name, recipe.outer.objective, recipe.eval.head
    ('cifar-fs-efficientnet-lite0', 'none', 'logistic')
    """
    if not backbone.startswith(WITH_WEIGHTS) and ":" not in backbone:
        from innerloop.nets.factory import BACKBONES, backbone_hint

        if backbone not in BACKBONES:
            raise UserError(
                f"unknown backbone '{backbone}'{backbone_hint(backbone)}: set efficientnet-lite0, "
                "timm:NAME or hf:NAME-or-FOLDER."
            )
    given = parse_assignments(items)
    if like is None and not any(key == "data" or key.startswith("data.name") for key in given):
        raise UserError(
            f"which pictures is {backbone} to be judged on? Add data.name=NAME (`innerloop data ls` lists "
            "them) or a folder, or --against RUN for those of a run."
        )
    base: dict[str, Any] = {
        "model": {"kind": backbone},
        "inner": {"method": "none", "loss": "cross-entropy"},
        "outer": {"objective": NOTHING},
        **(_shape() if like is None else _tasks_of(like)),
    }
    recipe = make_recipe(base, items, fresh=True)
    if like is None and not recipe.tasks.mixture and user_path(recipe.data.name).exists():
        data = recipe.data.model_copy(update={"splits": None})  # a split of all classes is still that folder
        shape = fitted_shape(pictures_of(data), recipe, typed_keys(items))
        recipe = with_settings(recipe, {"tasks": shape})
    recipe = admit(recipe, {"model.kind", *typed_keys(items)}, backbone, trust=False)
    if "name" in given:
        return recipe
    what = re.sub(r"[^\w.]+", "-", f"{Path(recipe.data.name).name}-{recipe.model.kind}").strip("-.")
    return recipe.model_copy(update={"name": what})


def with_folder(backbone: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Settings that judge a backbone on a folder which stands among them, and what is said of it.

    All classes are tested on, unless the folder is divided into ``train`` and ``test`` itself, and tasks have
    no more ways, shots and queries than it allows.
    """
    folders = folders_among(words)
    items = [word for word in words if word not in folders]
    if len(folders) > 1:
        raise UserError(f"a backbone is judged on one folder at a time: leave out {list(folders)[1]}.")
    if not folders or any("=" not in item for item in items):
        return items, []
    (name,) = folders.values()
    return judged_on(backbone_recipe(backbone, [*items, f"data.name={name}"]), name, items)


def _shape() -> dict[str, Any]:
    return {
        "tasks": {"family": "few-shot", "ways": 5, "shots": 1, "queries": 15},
        "eval": {"head": "logistic"},
    }


def _tasks_of(like: Recipe) -> dict[str, Any]:
    """The pictures, the tasks and the protocol of another recipe; its head, where that is one on features."""
    data = like.data.model_dump(exclude_none=True, exclude=set(_SHOWN))
    if like.data.size is not None and user_path(like.data.name).is_dir():
        data["size"] = like.data.size  # pictures of unequal sizes need one to be stored; files are read anew
    names = ("ways", "shots", "queries", "choice", "groups", "balanced", "mixture")
    tasks = {name: like.tasks.model_dump(exclude_none=True)[name] for name in names}
    protocol = {n: v for n, v in like.eval.model_dump(exclude_none=True).items() if n in _PROTOCOL}
    head = like.eval.head if like.eval.head not in ("learner", "finetune") else "logistic"
    return {"data": data, "tasks": {"family": "few-shot", **tasks}, "eval": {**protocol, "head": head}}
