"""Flat key=value settings of a command that is no recipe: a pydantic model says what there is. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field

from innerloop.core.errors import UserError
from innerloop.core.formatting import parse_duration
from innerloop.experiment.recipe.grammar import Assignment, Grammar, Reading, read
from innerloop.experiment.recipe.problems import allowed, known_settings, settings_of, show
from innerloop.experiment.recipe.rules import Readers as Readers
from innerloop.experiment.recipe.rules import Ruled, Rules, unread_keys
from innerloop.experiment.recipe.rules import When as When
from innerloop.experiment.recipe.schema import Recipe


class FlatSettings(Ruled):
    """What a command takes: subclasses list their keys, each with a default and a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    READERS: ClassVar[Readers] = {}
    OF_RECIPES: ClassVar[Mapping[str, str]] = {}
    NO_RECIPE: ClassVar[str] = ""


Model = TypeVar("Model", bound=FlatSettings)


def read_flat(model: type[Model], items: Sequence[str], command: str, recipe: Recipe | None = None) -> Model:
    """The settings in ``items``, checked against ``model``."""
    reading = flat_reading(model, items, command, recipe)
    if reading.model is None or reading.problems:
        raise UserError("\n".join(reading.problems))
    return reading.model


def flat_reading(
    model: type[Model], items: Sequence[str], command: str, recipe: Recipe | None = None
) -> Reading[Model]:
    """As :func:`read_flat`, with what is wrong and not as an error."""
    fields = settings_of(model)
    first = next(iter(fields))
    grammar = Grammar(
        model,
        fields,
        example=f"{first}={show(fields[first].default).strip(chr(39))}",
        listing=f"innerloop {command} --keys",
        nearby=() if recipe is None else tuple(known_settings()),
    )

    def not_read(settings: Model, typed: Mapping[str, Assignment]) -> dict[str, str]:
        """What was typed and would be read by nothing, each with a sentence."""
        purposes = unread_keys(model.READERS, typed, settings, recipe)
        return {key: _not_read(model, typed[key], words, recipe) for key, words in purposes.items()}

    return read(grammar, items, further=not_read)


def _not_read(model: type[FlatSettings], given: Assignment, words: str, recipe: Recipe | None) -> str:
    key, own = given.key, model.OF_RECIPES.get(given.key)
    if recipe is None or own is None:
        fix = "leave it out"
    elif own.startswith("tasks.settings."):
        fix = f"leave it out, or give {own}={given.raw} where the recipe's family has that"
    else:
        fix = f"give the recipe's own setting, {own}={given.raw}"
    return f"{key}={given.raw} is not read here: {key} is for {words}; {fix}."


def describe(model: type[FlatSettings]) -> list[dict[str, Any]]:
    """Every key with its default, what it takes, what it means, and what must hold for it to be read."""
    return [
        {
            "key": key,
            "default": field.default,
            "takes": allowed(field),
            "meaning": field.description or "",
            "read": " and ".join(when.words for when in model.READERS.get(key, ())) or "always",
        }
        for key, field in settings_of(model).items()
    ]


def _budget_is_a_time(s: BudgetSettings) -> str | None:
    if parse_duration(s.budget):
        return None
    return f"budget={s.budget} is no length of time: write 60s, 30m or 2h."


class BudgetSettings(FlatSettings):
    """What a command takes that is given a time for everything."""

    RULES: ClassVar[Rules] = (_budget_is_a_time,)

    budget: str = Field("30m", description="time for everything: 60s, 30m, 2h")

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return parse_duration(self.budget) or 0.0
