"""Where else the numbers of a run go: TensorBoard, trackio, Weights & Biases."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from innerloop.core.errors import UserError

Scalars = Mapping[str, int | float]
NO_TRACKER = "none"
LONGEST_ID = 64  # of a run at Weights & Biases


class Follower(Protocol):
    """Something that is given every record of a run."""

    def write(self, values: Scalars, step: int | None) -> None:
        """Takes the numbers of one record."""

    def close(self) -> None:
        """Nothing more comes."""


class TrackerRun(NamedTuple):
    """How a run is known to a tracker."""

    by: str
    project: str
    name: str
    config: Mapping[str, Any]
    folder: Path
    resumed: bool
    say: Callable[[str], None]


def scalars(values: Mapping[str, Any]) -> dict[str, int | float]:
    """The numbers of a record, without its step: what a chart can show."""
    return {
        key: value
        for key, value in values.items()
        if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)
    }


class Events:
    """TensorBoard's event files."""

    def __init__(self, folder: Path, step: int | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _no_tensorboard() from None
        self._writer = SummaryWriter(str(folder), purge_step=None if step is None else step + 1)

    def write(self, values: Scalars, step: int | None) -> None:
        """Adds a point to every curve, and hands it to the operating system."""
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


class Tracker:
    """trackio or Weights & Biases, which share ``init``, ``log`` and ``finish``."""

    def __init__(self, tracked: TrackerRun) -> None:
        self._tracked = tracked
        self._module: Any = None  # what is open; None once it was closed or given up
        self._attempt(self._start)

    def write(self, values: Scalars, step: int | None) -> None:
        """Logs the numbers of one record."""
        if self._module is not None:
            self._attempt(lambda: self._module.log(dict(values), step=step))

    def close(self) -> None:
        """Finishes the tracked run; harmless when called twice."""
        if self._module is not None:
            self._attempt(lambda: self._module.finish())
            self._module = None

    def _start(self) -> None:
        by, project, name, config, folder, *_ = self._tracked
        module = importlib.import_module(by)
        own = _ARGUMENTS[by](module, self._tracked)
        module.init(project=project, name=name, group=folder.parent.name, config=dict(config), **own)
        self._module = module
        self._tracked.say(f"tracked by {by} as {name} in project {project}{_SEE[by](self._tracked)}")

    def _attempt(self, act: Callable[[], Any]) -> None:
        try:
            with _quiet():
                act()
        except Exception as error:  # whatever happens in there, it is not worth a training
            module, self._module = self._module, None
            with contextlib.suppress(Exception), _quiet():
                module.finish()  # else it would finish, and talk, when Python ends
            reason = (str(error).splitlines() or [""])[0] or type(error).__name__
            self._tracked.say(
                f"warning: {self._tracked.by} has failed ({reason}): the run goes on without it, and "
                "metrics.jsonl has everything."
            )


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """Trackers print greetings to standard output, which belongs to the command's answer."""
    return contextlib.redirect_stdout(io.StringIO())


def followers(path: Path, tensorboard: bool, tracked: TrackerRun | None, step: int | None) -> list[Follower]:
    """Everything besides ``metrics.jsonl`` that is given the numbers of a run."""
    followers: list[Follower] = []
    if tensorboard:
        followers.append(Events(path.parent / "tensorboard", step))
    if tracked is not None:
        followers.append(Tracker(tracked))
    return followers


def check_followers(tensorboard: bool = False, track: str = NO_TRACKER) -> None:
    """Refuses what is asked for and not installed."""
    if tensorboard and not _installed("tensorboard"):
        raise _no_tensorboard()
    if track != NO_TRACKER and not _installed(track):
        fix = f"`pip install 'innerloop[{track}]'`, or leave it out."
        raise UserError(f"{{track}}={track} needs the package {track}: {fix}", names=("track",))


def _no_tensorboard() -> UserError:
    return UserError(
        "{tensorboard}=true needs TensorBoard: `pip install 'innerloop[tensorboard]'`, or leave it out.",
        names=("tensorboard",),
    )


def _installed(package: str) -> bool:
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was put in by hand, and says nothing of where it comes from
        return True
    # Weights & Biases makes folders of its own name, which Python takes for packages without content
    return spec is not None and spec.origin is not None


def _trackio(module: Any, tracked: TrackerRun) -> dict[str, Any]:
    """Kept on this machine, unless trackio's own environment variables name a Space or a server."""
    del module
    return {"resume": "allow" if tracked.resumed else "never", "embed": False}


def _wandb(module: Any, tracked: TrackerRun) -> dict[str, Any]:
    """Offline, unless its own environment variable says otherwise; the id is what continues a run."""
    mode = _wandb_mode()
    resume = "allow" if tracked.resumed and mode == "online" else None
    quiet = module.Settings(silent=True, console="off")  # the run has a log of its own
    name, folder = tracked.name[-LONGEST_ID:], str(tracked.folder)
    return {"id": name, "dir": folder, "mode": mode, "resume": resume, "settings": quiet}


def _wandb_mode() -> str:
    return os.environ.get("WANDB_MODE") or "offline"


def _upload(tracked: TrackerRun) -> str:
    if _wandb_mode() != "offline":
        return ""
    return f", offline: `wandb sync {tracked.folder}/wandb/offline-run-*` uploads it"


_ARGUMENTS = {"trackio": _trackio, "wandb": _wandb}
_SEE = {"trackio": lambda tracked: f": `trackio show --project {tracked.project}`", "wandb": _upload}
