"""``innerloop search --storage FOLDER``: whoever comes first leads, whoever comes later trains with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.choose.pilot.asked import Asked
from innerloop.choose.pilot.keep import RESULT, asked_for, is_search
from innerloop.choose.pilot.run import resume_search, search
from innerloop.choose.pilot.sharing import CLAIMS, POLL, posted, train_free
from innerloop.core.cores import available_cores
from innerloop.core.errors import UserError
from innerloop.core.files import plain, read_json
from innerloop.core.telling import tell
from innerloop.experiment.words import recipe_words
from innerloop.report.page import write_page
from innerloop.runs.claims import Claims
from innerloop.runs.directory import list_runs
from innerloop.runs.manifest import read_manifest

LEAD = "lead"


@recipe_words()
def search_together(
    storage: Path,
    asked: Asked,
    *,
    validate: bool = False,
    trust: bool = False,
    workers: int | None = None,
    argv: list[str] | None = None,
    show: bool = True,
    started: float | None = None,
) -> dict[str, Any]:
    """A search in a folder that other processes work on as well; every one of them gives its answer.

    The answer is plain data, as in the file of the run: whoever does not lead reads it there.
    """
    if asked.recipe.run.ranks > 1:
        raise UserError(
            "--storage and run.ranks both divide a search: start the command several times instead of "
            "setting run.ranks."
        )
    claims, helping = Claims(storage / CLAIMS), False
    while True:
        run = _run_of(storage, asked, validate)
        if run is not None and _is_finished(run):
            return {**read_json(run / RESULT), "report": str(write_page([run]))}
        claim = claims.take(LEAD)
        if claim is not None:
            with claim:
                run = _run_of(storage, asked, validate)
                if run is not None and _is_finished(run):  # by the last leader, just before it let go
                    continue
                how = Leading(trust, workers, argv, show, started)
                return _begun(storage, asked, validate, how) if run is None else _resumed(run, how)
        if not helping and show:
            tell(f"{claims.holder(LEAD)} leads this search; its candidates are trained here, too")
        helping = True
        if run is None or not _helped(run, asked, trust, workers):
            time.sleep(POLL)


class Leading(NamedTuple):
    """How this process carries out the search if it leads: arguments of :func:`search_together`."""

    trust: bool
    workers: int | None
    argv: list[str] | None
    show: bool
    started: float | None


def _begun(storage: Path, asked: Asked, validate: bool, how: Leading) -> dict[str, Any]:
    there = asked.recipe.run.model_copy(update={"folder": str(storage)})
    here = asked._replace(recipe=asked.recipe.model_copy(update={"run": there}))
    return search(
        here,
        validate=validate,
        workers=how.workers,
        argv=how.argv,
        show=how.show,
        started=how.started,
        shared=True,
    ).as_dict()


def _resumed(run: Path, how: Leading) -> dict[str, Any]:
    """The claim says that whoever led before is gone."""
    trust, workers, show = how.trust, how.workers, how.show
    return resume_search(run, trust=trust, workers=workers, show=show, force=True, shared=True).as_dict()


def _is_finished(run: Path) -> bool:
    return bool(read_manifest(run).get("status") == "finished")


def _helped(run: Path, asked: Asked, trust: bool, workers: int | None) -> int:
    """Trains what is posted and free; how many that were."""
    trials = [trial for trial in posted(run, asked.recipe, trust=trust) if not trial.file.is_file()]
    return train_free(trials, run, workers or available_cores(), lambda *_: None) if trials else 0


def _run_of(storage: Path, asked: Asked, validate: bool) -> Path | None:
    """The search in the folder, if it has been begun."""
    runs = [run for run in list_runs(storage) if is_search(run)] if storage.is_dir() else []
    if not runs:
        return None
    there = _comparable(read_manifest(runs[0]).get("asked"))
    if there != _comparable(plain(asked_for(asked, validate=validate))):
        raise UserError(
            f"{storage} holds another search, of {there.get('source')}: give the same command as there, or "
            "another folder."
        )
    return runs[0]


def _comparable(asked: Any) -> dict[str, Any]:
    """Without the places of runs, which machines may see under different names."""
    if not isinstance(asked, dict) or not isinstance(asked.get("recipe"), dict):
        return {}
    recipe = dict(asked["recipe"])
    recipe["run"] = {key: value for key, value in dict(recipe.get("run", {})).items() if key != "folder"}
    return {**asked, "recipe": recipe}
