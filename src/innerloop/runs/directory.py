"""Where a run lives: ``runs/<recipe>/<YYYYmmdd-HHMMSS>-s<seed>/``. Nothing is ever overwritten."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.formatting import printable
from innerloop.core.paths import user_path

MANIFEST = "manifest.json"
PREDICTIONS = "predictions"
"""Folder of a run with the labels that evaluations gave, each file under the name of its evaluation."""
RECIPE = "recipe.toml"
_NAME = re.compile(r"^(\d{8}-\d{6})-s(\d+)(?:-(\d+))?$")


def create_run(folder: Path, name: str, seed: int, now: datetime | None = None) -> Path:
    """Make the directory of a new run; a second run in the same second gets ``-2``, then ``-3`` and so on."""
    parent = user_path(folder) / (re.sub(r"[^\w.+=-]+", "-", name).strip("-.") or "unnamed")
    stem = f"{(now or datetime.now()).strftime('%Y%m%d-%H%M%S')}-s{seed}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        attempt = 1
        while True:
            run = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                run.mkdir(exist_ok=False)
            except FileExistsError:
                attempt += 1
            else:
                return run
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot make a run directory in {parent} ({reason}): set {{folder}} elsewhere.",
            names=("folder",),
        ) from error


def refuse_links(run: Path) -> None:
    """Refuses a run from elsewhere with links, pipes or devices, before anything in it is read or written."""
    for folder, folders, files in os.walk(run):
        for name in (*folders, *files):
            if (path := Path(folder, name)).is_symlink():
                raise UserError(
                    f"{printable(path)} is a symbolic link, and a run has none: what is written there would "
                    "go elsewhere. Put a copy in its place, or remove it."
                )
        for name in files:
            if (path := Path(folder, name)).exists() and not path.is_file():
                raise UserError(f"{printable(path)} is a pipe or a device, and a run has none: remove it.")


def is_run(path: Path) -> bool:
    """Whether ``path`` is the directory of a run."""
    return any(_is_file(path / name) for name in (MANIFEST, RECIPE))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, or a folder that may not be looked into
        return False


def list_runs(folder: Path) -> list[Path]:
    """All runs below ``folder``, oldest first; also those one level deeper, where a sweep keeps its own."""
    names = [f"{depth}/{name}" for depth in ("*/*", "*/*/*") for name in (MANIFEST, RECIPE)]
    folders = {file.parent for name in names for file in folder.glob(name)}
    return sorted(filter(is_run, folders), key=_age)


def find_run(text: str, folder: Path = Path("runs")) -> Path:
    """The run that ``text`` names: a path, ``last``, or the unique beginning of a run under ``folder``.

    A beginning may be that of ``recipe/time-seed`` or of ``time-seed`` alone.

    Raises:
        UserError: nothing or more than one thing is meant; the message lists what there is.
    """
    path = user_path(text)
    if text and is_run(path):
        return path
    if path.name in (MANIFEST, RECIPE) and is_run(path.parent):
        return path.parent
    runs = list_runs(folder)
    if text == "last" and runs:
        return runs[-1]
    labels = {run: run.relative_to(folder).as_posix() for run in runs}
    wanted = text.rstrip("/").removeprefix(f"{folder.as_posix()}/")
    exact = [run for run, label in labels.items() if wanted in (label, run.name)]
    close = [
        run
        for run, label in labels.items()
        if wanted and (label.startswith(wanted) or run.name.startswith(wanted))
    ]
    matches = exact if len(exact) == 1 else close
    if len(matches) == 1:
        return matches[0]
    raise UserError(_not_found(text, path, [labels[run] for run in matches], list(labels.values()), folder))


def _not_found(text: str, path: Path, matches: list[str], labels: list[str], folder: Path) -> str:
    if matches:
        return f"'{text}' names {len(matches)} runs: {_some(matches)}. Give more of the name, or `last`."
    if text and path.is_dir() and any(path.iterdir()):
        inside = [run.as_posix() for run in list_runs(path.parent) if path in run.parents]
        hint = f": try {inside[-1]}" if inside else ""
        return f"{path} is a folder but not a run (no {MANIFEST} in it){hint}."
    if not labels:
        return f"no run '{text}': there are none under {folder}/ yet; `innerloop train sine-maml` makes one."
    hint = did_you_mean(text, labels) or f"; the newest are {_some(labels)}"
    return f"no run '{text}' under {folder}/{hint}. `innerloop ls` lists all, `last` is the newest."


def _some(labels: list[str]) -> str:
    shown = ", ".join(reversed(labels[-3:]))
    return shown + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")


def _age(run: Path) -> tuple[str, float, int, str]:
    match = _NAME.match(run.name)
    if match is None:
        modified = datetime.fromtimestamp(_changed(run))
        return modified.strftime("%Y%m%d-%H%M%S"), 0.0, 1, run.as_posix()
    # names have seconds; of runs of the same second the recipe that was written first is older
    return match[1], _changed(run / RECIPE), int(match[3] or 1), run.as_posix()


def _changed(path: Path) -> float:
    try:
        return max(0.0, path.stat().st_mtime)
    except OSError:  # removed while we look
        return 0.0
