"""A sweep as an ordinary Optuna study in a folder that processes share.

A trial is one run. Which process works on it is decided by a claim (:mod:`innerloop.runs.claims`), because
Optuna's journal does not notice that a process has died: whoever takes over a claim goes on with the same
trial and the same run.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import threading
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.experiment.sweeps.grid import Cell
from innerloop.experiment.sweeps.journal import JOURNAL, open_journal, quiet_optuna
from innerloop.experiment.sweeps.points import FIRST, Points, told
from innerloop.experiment.sweeps.runs import Validated
from innerloop.runs.claims import Claim, Claims

SAMPLERS = ("tpe", "random")

BEFORE_PRUNING = 5
"""Runs that must have come to their end before others are compared with them."""

REASON, RUN = "reason", "run"


class Piece(NamedTuple):
    """A run that this process is to carry out."""

    number: int
    trial_id: int
    cell: Cell
    claim: Claim


class Ended(NamedTuple):
    """A run that came to an end: its point, and why it has no result, if it failed."""

    cell: Cell
    failed: str = ""


class SharedStudy:
    """The runs of one sweep, in a folder that any number of processes share. Threads may share it, too."""

    def __init__(
        self, storage: Path, name: str, score: str, points: Points, trials: int = 0, sampler: str = "tpe"
    ) -> None:
        import optuna

        self.name, self._points, self._trials, self._sampler = name, points, trials, sampler
        self._sign = 1 if score == "accuracy" else -1
        self.folder = storage / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.claims = Claims(self.folder / "claims")
        self._drawing = threading.Lock()
        self._states = optuna.trial.TrialState
        self._pruner = optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING)
        directions = optuna.study.StudyDirection
        direction = directions.MAXIMIZE if self._sign > 0 else directions.MINIMIZE
        with quiet_optuna():
            self._storage = open_journal(storage / JOURNAL)
            self._study = optuna.create_study(
                study_name=name, storage=self._storage, direction=direction, load_if_exists=True
            )
        self._study_id = self._storage.get_study_id_from_name(name)

    def fill(self) -> None:
        """Adds the runs that are missing: all of a new sweep, more of one that grows, failed ones again."""
        with self.claims.alone("fill"):
            trials = {self._identity(trial): trial for trial in self._study.get_trials(deepcopy=False)}
            kept = {key for key, trial in trials.items() if trial.state != self._states.FAIL}
            if not self._points.drawn:
                for key, cell in self._points.cells.items():
                    if key not in kept:
                        self._add(cell.settings)
                return
            for number, trial in trials.items():
                settings = self._points.settings(trial.params)
                if number not in kept and settings is not None:
                    self._add(settings, {FIRST: number})
                    kept.add(number)
            for _ in range(self._trials - len(kept)):
                self._add({})

    def _add(self, settings: dict[str, Any], attributes: dict[str, Any] | None = None) -> None:
        from optuna.trial import create_trial

        known = {key: each for key, each in self._points.distributions().items() if key in settings}
        params = {key: told(value) for key, value in settings.items()}
        state = self._states.WAITING
        new = create_trial(state=state, params=params, distributions=known, user_attrs=attributes or {})
        self._study.add_trial(new)

    def take(self) -> Piece | None:
        """A run that nobody works on, begun before or not; None while there is none."""
        for number in self.unfinished():
            claim = self.claims.take(f"trial-{number}")
            if claim is None:
                continue
            try:
                piece = self._begun(number, claim)
            except BaseException:
                claim.release()
                raise
            if piece is not None:
                return piece
            claim.release()
        return None

    def _begun(self, number: int, claim: Claim) -> Piece | None:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        with contextlib.suppress(RuntimeError):
            self._storage.set_trial_state_values(trial_id, self._states.RUNNING)
        trial = self._storage.get_trial(trial_id)
        if trial.state.is_finished():
            return None
        if self._points.drawn and self._points.settings(trial.params) is None:
            self._draw(number, trial_id)
            trial = self._storage.get_trial(trial_id)
        try:
            cell = self._cell(trial)
        except UserError as error:  # values that do not go together: a point that is left out
            self._end(number, trial_id, None, str(error).splitlines()[0])
            return None
        return None if cell is None else Piece(number, trial_id, cell, claim)

    def _draw(self, number: int, trial_id: int) -> None:
        """Draws the values of a trial; at random, they depend on its number alone, whoever draws them."""
        import optuna

        with self._drawing, quiet_optuna():
            first = optuna.samplers.RandomSampler(0)  # draws nothing before it is asked
            study = optuna.load_study(study_name=self.name, storage=self._storage, sampler=first)
            trial = optuna.trial.Trial(study, trial_id)
            for key in (*self._points.space.ranges, *self._points.space.choices):
                study.sampler = self._sampler_for(number, key)
                self._points.suggest(trial, key)

    def _sampler_for(self, number: int, key: str) -> Any:
        from optuna.samplers import RandomSampler, TPESampler

        digest = hashlib.sha256(f"{self.name} {number} {key}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        # the liar: runs that are under way count as bad ones, so that processes do not all draw the same
        if self._sampler == "random":
            return RandomSampler(seed)
        return TPESampler(seed=seed, multivariate=False, constant_liar=True)

    def report(self, piece: Piece, validations: list[Validated]) -> None:
        """Tells the study how a run does on its way."""
        known = self._storage.get_trial(piece.trial_id).intermediate_values
        with contextlib.suppress(RuntimeError):
            for each in validations:
                if each.step not in known:
                    self._storage.set_trial_intermediate_value(piece.trial_id, each.step, each.mean)

    def clearly_worse(self, piece: Piece, validations: list[Validated]) -> bool:
        """Whether a run is worse than the median of finished ones at the same step, its interval granted."""
        trial = copy.deepcopy(self._storage.get_trial(piece.trial_id))
        trial.intermediate_values = {each.step: each.mean + self._sign * each.ci95 for each in validations}
        return bool(self._pruner.prune(self._study, trial))

    def end(self, piece: Piece, run: str, value: float | None, reason: str = "") -> None:
        """Tells the study that a run has come to its end; without a value it was pruned, or diverged."""
        self._storage.set_trial_user_attr(piece.trial_id, RUN, run)
        self._end(piece.number, piece.trial_id, value, reason)

    def _end(self, number: int, trial_id: int, value: float | None, reason: str) -> None:
        if reason:
            self._storage.set_trial_user_attr(trial_id, REASON, reason)
        state = self._states.PRUNED if value is None else self._states.COMPLETE
        with quiet_optuna():
            self._study.tell(number, value, state, skip_if_finished=True)

    def fail(self, piece: Piece, reason: str) -> None:
        """Tells the study that a run has failed; the next process that joins tries it again."""
        self._storage.set_trial_user_attr(piece.trial_id, REASON, reason)
        with quiet_optuna():
            self._study.tell(piece.number, state=self._states.FAIL, skip_if_finished=True)

    def unfinished(self) -> list[int]:
        """The numbers of the runs that are not finished."""
        trials = [trial for trial in self._study.get_trials(deepcopy=False) if not trial.state.is_finished()]
        return sorted(trial.number for trial in trials if self._points.is_asked_for(trial.params))

    def ended(self) -> list[Ended]:
        """All runs that came to an end; one that failed and was tried again counts once."""
        by_identity: dict[Any, Ended] = {}
        for trial in self._study.get_trials(deepcopy=False):
            with contextlib.suppress(UserError):  # a point that was left out
                cell = self._cell(trial)
                if cell is not None and trial.state.is_finished():
                    failed = trial.state == self._states.FAIL
                    reason = str(trial.user_attrs.get(REASON) or "no message") if failed else ""
                    by_identity[self._identity(trial)] = Ended(cell, reason)
        return list(by_identity.values())

    def _identity(self, trial: Any) -> Any:
        return self._points.identity(trial.number, trial.params, trial.user_attrs)

    def _cell(self, trial: Any) -> Cell | None:
        return self._points.cell(self._identity(trial), trial.params)
