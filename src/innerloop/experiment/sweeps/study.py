"""What Optuna is asked, by the leader of a sweep alone: values of drawn runs, and which are clearly worse."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from innerloop.core.errors import UserError
from innerloop.core.files import read_json, write_json_atomic
from innerloop.experiment.sweeps.grid import SweepSpace, as_toml
from innerloop.experiment.sweeps.runs import Validated
from innerloop.runs.manifest import version_of

SAMPLERS = ("tpe", "random")

LEAST = (4, 3)
"""The first Optuna that this was tried with."""

BEFORE_PRUNING = 5
"""Runs that must have come to their end before others are compared with them."""

DRAWS = "draws.json"
"""In the folder of a sweep: the values that were drawn, in the order of their numbers."""


def optuna_problem() -> str:
    """What is wrong with the installed Optuna, in a sentence; empty if nothing is."""
    installed = version_of("optuna") if importlib.util.find_spec("optuna") else None
    numbers = [int(part) if part.isdigit() else 0 for part in (installed or "0").split(".")]
    if tuple(numbers) >= LEAST:
        return ""
    least = ".".join(map(str, LEAST))
    here = f"{installed} is installed" if installed else "it is not installed"
    return f"--trials and --prune need Optuna {least}, and {here}: `pip install 'innerloop[optuna]'`."


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna's own lines, and its remarks on what is experimental, are not for the users of a sweep."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


class Study:
    """The runs of one sweep as Optuna sees them, by their numbers."""

    def __init__(self, name: str, score: str, space: SweepSpace, sampler: str = SAMPLERS[0]) -> None:
        import optuna

        self.name, self._space, self._sampler = name, space, sampler
        self._sign = 1 if score == "accuracy" else -1
        self._states = optuna.trial.TrialState
        self._pruner = optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING)
        self._trials: list[Any] = []
        directions = optuna.study.StudyDirection
        direction = directions.MAXIMIZE if self._sign > 0 else directions.MINIMIZE
        with quiet_optuna():
            first = optuna.samplers.RandomSampler(0)  # draws nothing before it is asked
            self._study = optuna.create_study(study_name=name, direction=direction, sampler=first)

    def add(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The next run: with these settings, or with drawn ones, which are given."""
        number = len(self._trials)
        with quiet_optuna():
            if settings is not None:
                self._study.enqueue_trial({key: told(value) for key, value in settings.items()})
            trial = self._study.ask()
            for key in (*self._space.ranges, *self._space.choices):
                self._study.sampler = self._sampler_for(number, key)
                self._suggest(trial, key)
        self._trials.append(trial)
        drawn = read_settings(trial.params, self._space)
        assert drawn is not None, "Optuna has drawn what it was not asked for"
        return drawn

    def _suggest(self, trial: Any, key: str) -> None:
        ends = self._space.ranges.get(key)
        if ends is None:
            trial.suggest_categorical(key, [told(value) for value in self._space.choices[key]])
        elif ends.whole:
            trial.suggest_int(key, int(ends.low), int(ends.high), log=ends.log)
        else:
            trial.suggest_float(key, ends.low, ends.high, log=ends.log)

    def _sampler_for(self, number: int, key: str) -> Any:
        """Draws of a value; at random, they depend on the number of the run alone."""
        from optuna.samplers import RandomSampler, TPESampler

        digest = hashlib.sha256(f"{self.name} {number} {key}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        # the liar: runs that are under way count as bad ones, so that they are not all alike
        if self._sampler == "random":
            return RandomSampler(seed)
        return TPESampler(seed=seed, multivariate=False, constant_liar=True)

    def report(self, number: int, validations: list[Validated]) -> None:
        """How a run does on its way."""
        trial = self._trials[number]
        known = self._study.trials[number].intermediate_values
        for each in validations:
            if each.step not in known:
                trial.report(each.mean, each.step)

    def clearly_worse(self, number: int, validations: list[Validated]) -> bool:
        """Whether a run is worse than the median of finished ones at the same step, its interval granted."""
        trial = copy.deepcopy(self._study.trials[number])
        trial.intermediate_values = {each.step: each.mean + self._sign * each.ci95 for each in validations}
        return bool(self._pruner.prune(self._study, trial))

    def end(self, number: int, value: float | None) -> None:
        """A run has come to its end; without a value it was pruned, left out, or diverged."""
        state = self._states.PRUNED if value is None else self._states.COMPLETE
        with quiet_optuna():
            self._study.tell(number, value, state)


def told(value: Any) -> Any:
    """A value of a list as Optuna keeps it: lists and tables as text."""
    return value if isinstance(value, (str, bool, int, float)) else as_toml(value)


def read_settings(params: Any, space: SweepSpace) -> dict[str, Any] | None:
    """The settings that kept or drawn values mean; None where one is missing, or not of the space."""
    settings: dict[str, Any] = {}
    if not isinstance(params, Mapping):
        return None
    for key, ends in space.ranges.items():
        value = params.get(key)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is None or not number or not ends.low <= value <= ends.high:
            return None
        settings[key] = int(value) if ends.whole else float(value)
    for key, values in space.choices.items():
        meant = [each for each in values if key in params and repr(told(each)) == repr(params[key])]
        if not meant:
            return None
        settings[key] = meant[0]
    return settings


def kept_draws(folder: Path, space: SweepSpace) -> list[dict[str, Any]]:
    """What an earlier process has drawn; only values that the command itself asks for are read."""
    file = folder / DRAWS
    if not file.is_file():
        return []
    kept = read_json(file)
    draws = [read_settings(params, space) for params in kept] if isinstance(kept, list) else [None]
    if any(settings is None for settings in draws):
        raise UserError(
            f"{file} is damaged: move it away and give the same command again; finished runs stay where they "
            "are."
        )
    return [settings for settings in draws if settings is not None]


def keep_draws(folder: Path, draws: list[dict[str, Any]]) -> None:
    """Keeps what was drawn, before a run of it begins."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json_atomic(
        folder / DRAWS, [{key: told(value) for key, value in settings.items()} for settings in draws]
    )
