"""The tasks that advice is asked for, and a recipe for every method that can be raced on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from innerloop.choose.advisor.asked import Asked
from innerloop.choose.advisor.methods import NUMBERS, PICTURES, Method
from innerloop.choose.advisor.settings import YOURS
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, is_classification
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.fitted import learns_by_heart
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe

QUERIES = 5
"""Query pictures of a class in validation tasks, at most: more tasks tell more than more pictures of one."""

LABELS = ("protonet", "r2d2", "anil", "maml")
"""Methods for labels of what is not a picture: those that need no classes across tasks."""


class Entrant(NamedTuple):
    """A method in a race."""

    name: str
    words: str
    recipe: Recipe
    together: bool = False

    def short(self, steps: int, queries: int | None) -> dict[str, Any]:
        """Its recipe within so many steps, as plain data: schedule and warm-up are shortened."""
        outer = self.recipe.outer
        warmup = min(outer.warmup, math.ceil(outer.warmup * steps / outer.steps))
        short = outer.model_copy(update={"steps": steps, "warmup": warmup})
        judged = self.recipe.eval
        if queries is not None:
            judged = judged.model_copy(update={"queries": queries})
        return self.recipe.model_copy(update={"outer": short, "eval": judged}).model_dump(exclude_none=True)


class Problem(NamedTuple):
    """What is raced on what."""

    asked: Asked
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


def pose(asked: Asked) -> Problem:
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
    own = asked.recipe.eval.queries or asked.recipe.tasks.queries
    queries = min(QUERIES, own) if asked.kind == "pictures" else None
    loss = get_loss(entrants[0].recipe.inner.loss)
    return Problem(
        asked, _distinct(entrants), left_out, queries, "accuracy" if is_classification(loss) else "mse"
    )


def _entrant(asked: Asked, name: str, table: Mapping[str, Method]) -> Entrant:
    if name == YOURS:
        if not asked.named:
            raise UserError("no recipe was named, so there is no method of yours.")
        made = Entrant(YOURS, f"your recipe ({asked.recipe.inner.method})", _with_a_rate(asked.recipe))
    elif name not in table:
        raise UserError(f"it is not for these tasks; there are {', '.join(table)}.")
    else:
        method = table[name]
        recipe = make_recipe(with_method(asked, method))
        made = Entrant(name, method.words, recipe, method.together and recipe.model.norm == "transductive")
    build(made.recipe)  # what does not fit is found here
    return made


def with_method(asked: Asked, method: Method) -> dict[str, Any]:
    """Plain data of a recipe: the tasks and the network of what was asked, and the method's own settings.

    Where a recipe was named, its network stays, with a norm policy that suits the method if it has one of
    batches; the steps of training stay those of the method. Where none was, few pictures are augmented for
    the methods that learn them by heart, unless ``data.augment`` was typed.
    """
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
    from innerloop.choose.rates.auto import advice_for, provisional, refuse_unknown_rate, with_rate

    refuse_unknown_rate(recipe)
    return with_rate(recipe, advice_for(build(provisional(recipe)), tasks=32).alpha)


def _distinct(entrants: list[Entrant]) -> list[Entrant]:
    """Without methods that are trained and judged as another one before them."""
    seen, kept = set(), []
    for entrant in entrants:
        key = entrant.recipe.model_dump_json(exclude={"name", "description", "run"})
        if key not in seen:
            seen.add(key)
            kept.append(entrant)
    return kept
