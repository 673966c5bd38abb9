"""What is raced on what: recipes of methods on the tasks of a problem, or of networks on its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from innerloop.choose.architectures.draws import PictureDraws
from innerloop.choose.architectures.space import Space, get_space, random_candidate, size_of
from innerloop.choose.methods import NUMBERS, PICTURES, TrainingMethod
from innerloop.choose.race import Entrant
from innerloop.choose.request import CLASSIFIER, TRAINING, Request
from innerloop.choose.settings import YOURS, AdviseSettings, SpaceSettings
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.data.source import ImageSource
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.parts import build
from innerloop.experiment.pictures import build_source, training_classes
from innerloop.experiment.recipe.picture_fit import learns_by_heart, with_settings
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.nets.norms import kind_of
from innerloop.tasks.few_shot import split_classes

QUERIES = 5
"""Query pictures of a class in validation tasks, at most: more tasks tell more than more pictures of one."""

LABELS = ("protonet", "r2d2", "anil", "maml")
"""Methods for labels of what is not a picture: those that need no classes across tasks."""

SCORED_SIDE = 32
"""Larger pictures are scored at this side in spaces whose networks take any, as published."""

SCORED_WAYS = 5
"""Classes of the tasks that scores look at."""

MANY_PICTURES = 100
"""Of every training class: then candidates are trained as one classifier of all classes."""

_OF_MODEL = ("outputs", "last_layer", "cosine_scale")  # of the recipe's network, what every network has


def few_queries(recipe: Recipe) -> int:
    """Query pictures of a class in the validation tasks of a race."""
    return min(QUERIES, recipe.eval.queries or recipe.tasks.queries)


class AdviceProblem(NamedTuple):
    """Methods, and the tasks that they race on."""

    asked: Request[AdviseSettings]
    entrants: list[Entrant]
    left_out: list[str]
    queries: int | None
    score: str

    @property
    def better(self) -> int:
        """1 where a higher score is better, −1 where a lower one is."""
        return 1 if self.score == "accuracy" else -1

    @property
    def recipe(self) -> Recipe:
        """Whose tasks are meant."""
        return self.asked.recipe


def pose_advice(asked: Request[AdviseSettings]) -> AdviceProblem:
    """Recipes of all methods that can be built on these tasks; nothing is trained."""
    table = {"pictures": PICTURES, "labels": {n: PICTURES[n] for n in LABELS}, "numbers": NUMBERS}[asked.kind]
    wanted = asked.settings.methods or [*([YOURS] if asked.named else []), *table]
    entrants, left_out = list[Entrant](), list[str]()
    for name in dict.fromkeys(wanted):
        try:
            entrants.append(_entrant(asked, name, table))
        except UserError as error:
            left_out.append(f"{name} was not raced: {str(error).splitlines()[0]}")
    if not entrants:
        raise UserError("no method can be raced on these tasks:\n" + "\n".join(left_out))
    queries = few_queries(asked.recipe) if asked.kind == "pictures" else None
    score = "accuracy" if is_classification(get_loss(entrants[0].recipe.inner.loss)) else "mse"
    return AdviceProblem(asked, _distinct(entrants), left_out, queries, score)


def normalised_together(entrant: Entrant) -> bool:
    """Whether query pictures of a task are normalised together, by a method of the table."""
    return bool(entrant.about) and entrant.recipe.model.norm == "transductive"


def _entrant(asked: Request[AdviseSettings], name: str, table: Mapping[str, TrainingMethod]) -> Entrant:
    if name == YOURS:
        if not asked.named:
            raise UserError("no recipe was named, so there is no method of yours.")
        made = Entrant(YOURS, _with_a_rate(asked.recipe), f"your recipe ({asked.recipe.inner.method})")
    elif name not in table:
        raise UserError(f"it is not for these tasks; there are {', '.join(table)}.")
    else:
        method = table[name]
        made = Entrant(name, make_recipe(with_method(asked, method)), method.words, about=method.together)
    build(made.recipe)  # what does not fit is found here
    return made


def with_method(asked: Request[AdviseSettings], method: TrainingMethod) -> dict[str, Any]:
    """Plain data of a recipe: the tasks and the network of what was asked, and the method's own settings."""
    # a named recipe's network stays, with a norm that suits the method; else few pictures are augmented for
    # the methods that learn them by heart, unless ``data.augment`` was typed; steps are the method's
    base = asked.recipe.model_dump(exclude_none=True)
    sections = {name: dict(values) for name, values in method.settings.items()}
    wanted = sections.pop("model", {})
    kept = dict(base["model"])
    if not asked.named:
        kept = {**({} if asked.kind == "numbers" else kept), **wanted}
    elif kept.get("norm") in ("running", "transductive") and "norm" in wanted:
        kept |= {key: value for key, value in wanted.items() if key in ("norm", "last_layer")}
    tasks = {**base["tasks"], **sections.pop("tasks", {})}
    judged = {**base["eval"], **_shape(asked.recipe), **sections.pop("eval", {})}
    whole = {"name": base["name"], "data": dict(base["data"]), "run": base["run"]}
    free = not asked.named and "data.augment" not in asked.said
    if free and not learns_by_heart(tasks["family"], sections["inner"]["method"]):
        whole["data"]["augment"] = "none"
    return {**whole, "tasks": tasks, "model": kept, "eval": judged, **sections}


def _shape(recipe: Recipe) -> dict[str, int]:
    """Ways, shots and queries of held-out tasks, whatever training tasks a method has."""
    if recipe.tasks.mixture:
        return {}
    return {
        key: getattr(recipe.eval, key) or getattr(recipe.tasks, key) for key in ("ways", "shots", "queries")
    }


def _with_a_rate(recipe: Recipe) -> Recipe:
    """``inner.lr=auto`` is estimated when it is trained; in the race it is the middle of the estimate."""
    if recipe.inner.lr != "auto":
        return recipe
    from innerloop.choose.rates import advice_for
    from innerloop.experiment.inner_rate import provisional, refuse_unknown_rate, with_rate

    refuse_unknown_rate(recipe)
    return with_rate(recipe, advice_for(build(provisional(recipe)), tasks=32).alpha)


def _distinct(entrants: list[Entrant]) -> list[Entrant]:
    """Without methods that are trained and judged as another one before them."""
    kept: dict[str, Entrant] = {}
    for entrant in entrants:
        kept.setdefault(entrant.recipe.model_dump_json(exclude={"name", "description", "run"}), entrant)
    return [*kept.values()]


class Architecture(NamedTuple):
    """A candidate, described."""

    genotype: Any
    description: str
    parameters: int


class SearchProblem(NamedTuple):
    """The pictures, the space of networks for them, and how candidates are trained."""

    recipe: Recipe
    space: Space[Any]
    draws: PictureDraws
    seed: int

    @property
    def ways(self) -> int:
        """Classes of a validation task."""
        return self.recipe.eval.ways or self.recipe.tasks.ways

    @property
    def queries(self) -> int:
        """Query pictures of a class in a validation task of a race."""
        return few_queries(self.recipe)

    def entrant(self, candidate: Any, name: str = "", field: str = "") -> Entrant:
        """A candidate with the recipe that trains it in full."""
        return Entrant(name, with_network(self.recipe, self.space, candidate), "", field, candidate)

    def describe(self, candidate: Any) -> Architecture:
        """What a candidate is."""
        settings = self.space.settings(candidate, "running")["settings"]
        genotype, size = settings.get("genotype", settings), size_of(self.space, candidate)
        return Architecture(genotype, self.space.describe(candidate), size.parameters)

    def protocol(self, steps: int, episodes: int) -> dict[str, Any]:
        """What accuracies depend on, after so many steps and on so many tasks."""
        recipe = self.recipe
        return {
            "data": recipe.data.name,
            "split": "validation",
            "ways": self.ways,
            "shots": recipe.eval.shots or recipe.tasks.shots,
            "queries": self.queries,
            "episodes": episodes,
            "steps": steps,
            "method": recipe.inner.method,
            "objective": recipe.outer.objective,
            "head": recipe.eval.head,
            "norm": recipe.model.norm,
            "kind": kind_of(recipe.model.norm),
            "train_seed": recipe.run.seed,
            "space": self.space.name,
        }


@recipe_words()
def pose_search(asked: Request[SpaceSettings]) -> SearchProblem:
    """Opens the pictures and makes a space for them; refuses what does not fit before anything is written."""
    source = build_source(asked.recipe)
    recipe = _fit_recipe(asked, source)
    _, height, width, channels = source.images.shape
    if height != width:
        raise UserError(f"networks take square pictures, these are {height}×{width}: set data.size={height}.")
    section = asked.settings.space
    ways = min(SCORED_WAYS, training_classes(source))
    space = get_space(section.name, channels, height, ways, **section.arguments)
    side = SCORED_SIDE if section.name == "cells" and height > SCORED_SIDE else None
    draws = PictureDraws(source, recipe.run.seed, ways=ways, side=side)
    build(with_network(recipe, space, random_candidate(space, recipe.run.seed, "first")))
    return SearchProblem(recipe, space, draws, recipe.run.seed)


def _fit_recipe(asked: Request[SpaceSettings], source: ImageSource) -> Recipe:
    """How candidates are trained: many pictures of a class as one classifier, few classes in small tasks."""
    recipe, classes = asked.recipe, split_classes(source, "train")
    if TRAINING in asked.free and min(np.diff(source.starts)[classes], default=0) >= MANY_PICTURES:
        return make_recipe({**recipe.model_dump(exclude_none=True), **CLASSIFIER})
    if "tasks.ways" not in asked.free or len(classes) >= recipe.tasks.ways:
        return recipe
    return with_settings(recipe, {"tasks": {"ways": max(2, len(classes))}})


def with_network(recipe: Recipe, space: Space[Any], candidate: Any) -> Recipe:
    """The recipe with a candidate as its network."""
    kept = recipe.model.model_dump(include=set(_OF_MODEL), exclude_none=True)
    data = recipe.model_dump(exclude_none=True)
    return make_recipe({**data, "model": {**kept, **space.settings(candidate, recipe.model.norm)}})
