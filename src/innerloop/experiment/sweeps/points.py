"""What the trials of a shared sweep may be: the cells of a grid, or points that are drawn from a space.

A study is data of somebody else: only values that the command itself asks for are read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop.experiment.sweeps.grid import Cell, SweepSpace, as_toml

FIRST = "first"
"""Attribute of a trial: the number of the one that it repeats after a failure."""


class Points:
    """How the values of a trial and the settings of a run belong together."""

    def __init__(self, space: SweepSpace, cells: list[Cell] | None = None) -> None:
        self.space = space
        self.drawn = cells is None
        self.cells = {} if cells is None else {_key(cell.settings): cell for cell in cells}
        self._made: dict[str, Cell] = {}

    def distributions(self) -> dict[str, Any]:
        """What Optuna calls the ranges and lists."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        by_key: dict[str, Any] = {}
        for key, each in self.space.ranges.items():
            by_key[key] = (
                IntDistribution(int(each.low), int(each.high), log=each.log)
                if each.whole
                else FloatDistribution(each.low, each.high, log=each.log)
            )
        for key, values in self.space.choices.items():
            by_key[key] = CategoricalDistribution([told(value) for value in values])
        return by_key

    def suggest(self, trial: Any, key: str) -> None:
        """Lets Optuna draw one value of a trial, unless it has it already."""
        ends = self.space.ranges.get(key)
        if ends is None:
            trial.suggest_categorical(key, [told(value) for value in self.space.choices[key]])
        elif ends.whole:
            trial.suggest_int(key, int(ends.low), int(ends.high), log=ends.log)
        else:
            trial.suggest_float(key, ends.low, ends.high, log=ends.log)

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """The settings that the values of a trial mean; None where one is missing, or not of the space."""
        settings: dict[str, Any] = {}
        for key, ends in self.space.ranges.items():
            value = params.get(key)
            if not isinstance(value, (int, float)) or not ends.low <= value <= ends.high:
                return None
            settings[key] = int(value) if ends.whole else float(value)
        for key, values in self.space.choices.items():
            meant = [each for each in values if key in params and repr(told(each)) == repr(params[key])]
            if not meant:
                return None
            settings[key] = meant[0]
        return settings

    def is_asked_for(self, params: Mapping[str, Any]) -> bool:
        """Whether a trial with these values is one of the command's; those that are not yet drawn are."""
        settings = self.settings(params)
        if settings is None:
            return self.drawn and not all(key in params for key in (*self.space.ranges, *self.space.choices))
        return self.drawn or _key(settings) in self.cells

    def identity(self, number: int, params: Mapping[str, Any], attributes: Mapping[str, Any]) -> Any:
        """What a run that failed and the trial that repeats it have in common."""
        if not self.drawn:
            return _key(self.settings(params) or {})
        first = attributes.get(FIRST)
        return first if isinstance(first, int) and 0 <= first <= number else number

    def cell(self, identity: Any, params: Mapping[str, Any]) -> Cell | None:
        """The run of a trial; None if the command does not ask for such a run."""
        settings = self.settings(params)
        if settings is None:
            return None
        if not self.drawn:
            return self.cells.get(_key(settings))
        key = f"{identity} {_key(settings)}"
        if key not in self._made:
            self._made[key] = self.space.cell(identity, settings)
        return self._made[key]


def told(value: Any) -> Any:
    """A value of a list as Optuna keeps it: lists and tables as text.

    >>> told("maml"), told([40, 40])
    ('maml', '[40, 40]')
    """
    return value if isinstance(value, (str, bool, int, float)) else as_toml(value)


def _key(settings: Mapping[str, Any]) -> str:
    return repr(sorted((key, repr(value)) for key, value in settings.items()))
