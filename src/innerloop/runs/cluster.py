"""Jobs on many machines, by Dask: each in a process of its own beside the worker, ended when nobody waits."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging
import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as StillRunning
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from innerloop._version import __version__
from innerloop.core.child_processes import KILLED
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.stderr import tell
from innerloop.runs.executors import RETRIES, ProcessExecutor

SLURM = "slurm"
ANSWER = 10.0
"""Seconds within which a scheduler must answer."""

FIRST_WORKER = 60.0
"""Seconds within which a scheduler must have a worker: those of a job may be about to start."""

PULSE = 0.5
"""Seconds between looks whether somebody still waits for a job."""

OURS = "innerloop"
_ENDING = ("closing", "closed", "failed", "stopping")
"""States of a worker that has lost its scheduler, or was told to end."""


class WorkerSetting(NamedTuple):
    """What a worker must have, and give to a job."""

    versions: dict[str, str]
    folder: str


@contextlib.contextmanager
def open_cluster(cluster: str, workers: int | None) -> Iterator[Executor]:
    """An executor on a cluster while the context lasts; jobs that are under way at its end are ended."""
    missing = [name for name in _packages(cluster) if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"--cluster {cluster} needs {' and '.join(missing)}: `pip install 'innerloop[cluster]'`."
        )
    setting = WorkerSetting(_versions_here(), str(Path.cwd()))
    with _quiet(), _connected(cluster, workers) as client:
        _check_workers(client, setting.versions)
        executor = Cluster(client, setting)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


def _packages(cluster: str) -> tuple[str, ...]:
    return ("distributed", "dask_jobqueue") if cluster == SLURM else ("distributed",)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own lines are not for people who wait for results: what matters is said in a sentence."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _connected(cluster: str, workers: int | None) -> Iterator[Any]:
    from distributed import Client

    if cluster == SLURM:
        with _slurm(workers) as started, Client(started, set_as_default=False) as client:
            tell("waiting for Slurm to start a worker")
            client.wait_for_workers(1)
            yield client
        return
    with _client(cluster) as client:
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER)
        except TimeoutError:
            address = client.scheduler.address
            raise UserError(
                f"the scheduler at {cluster} has no worker: start some with `dask worker {address}`."
            ) from None
        yield client


def _client(cluster: str) -> Any:
    from distributed import Client

    file = Path(cluster)
    if file.is_file():
        where = {"scheduler_file": str(file)}
    elif "://" in cluster:
        where = {"address": cluster}
    else:
        raise UserError(
            f"--cluster {cluster} is neither an address such as tcp://host:8786, nor the file of a "
            f"scheduler, nor {SLURM}{did_you_mean(cluster, [SLURM])}."
        )
    try:
        return Client(**where, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError):
        raise UserError(
            f"no Dask scheduler answers at {cluster} within {ANSWER:.0f} seconds: start one with "
            "`dask scheduler`, or correct --cluster."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"--cluster {cluster} leads to no Dask scheduler ({error}): correct it.") from None


def _slurm(jobs: int | None) -> Any:
    """A cluster whose workers are Slurm jobs of one core each, unless Dask's configuration says otherwise."""
    import dask
    from dask_jobqueue import SLURMCluster

    known = dask.config.get("jobqueue.slurm", {})
    missing = {"cores": 1, "memory": "4GB", "processes": 1}
    try:
        cluster = SLURMCluster(
            **{key: value for key, value in missing.items() if not known.get(key)}, silence_logs="CRITICAL"
        )
    except (ValueError, OSError) as error:
        raise UserError(f"--cluster {SLURM} could not be started ({error}).") from None
    cluster.scale(jobs=jobs or 1)
    return cluster


def _versions_here() -> dict[str, str]:
    return {OURS: __version__, "torch": importlib.metadata.version("torch")}


def _check_workers(client: Any, ours: dict[str, str]) -> None:
    """Refuses where the scheduler or a worker has another version, by a function that all have."""
    version = importlib.metadata.version
    for package, wanted in ours.items():
        there = {"scheduler": _asked(client.run_on_scheduler, version, package)} if package == OURS else {}
        there |= client.run(version, package, on_error="return")
        for address, found in there.items():
            if found != wanted:
                who = address if address == "scheduler" else f"worker at {address}"
                raise _other_version(who, package, found if isinstance(found, str) else None, wanted)


def _asked(question: Callable[..., Any], *given: Any) -> Any:
    try:
        return question(*given)
    except Exception as error:  # whatever the other side raises
        return error


def _other_version(where: str, package: str, theirs: str | None, ours: str) -> UserError:
    has = f"has {package} {theirs}" if theirs else f"does not have {package}"
    return UserError(
        f"the {where} {has}, and here is {ours}: install {package}=={ours} there and start it again."
    )


class Cluster(Executor):
    """Jobs on the workers of a Dask cluster; those of a worker that is lost are done again by another."""

    def __init__(self, client: Any, setting: WorkerSetting) -> None:
        self._client, self._setting = client, setting
        self._executor = client.get_executor(pure=False)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hands a job out."""
        packed = pickle.dumps((function, args, kwargs))  # only the process that does the job looks into it
        future: Future[Any] = self._executor.submit(_on_worker, self._setting, packed)
        return future

    def slots(self) -> int:
        """How many jobs are carried out at a time by the workers that are there now."""
        return sum(self._client.nthreads().values())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for all jobs, or ends them."""
        self._executor.shutdown(wait=wait and not cancel_futures)


_IDLE: list[ProcessExecutor] = []
"""Of a worker: processes that wait for a job."""


def _on_worker(setting: WorkerSetting, packed: bytes) -> Any:
    """A job in a process beside the worker of Dask, ended where nobody waits for it any more."""
    _check_here(setting)
    # Dask starts its workers as daemons, which may have no children; ours end with their parent by themselves
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    try:
        process = _IDLE.pop()
    except IndexError:
        process = ProcessExecutor(1, method="spawn")
    for _ in range(RETRIES):
        try:
            value = _awaited(process.submit(_carry_out, setting, packed))
        except BrokenProcessPool:
            continue
        except StillRunning:  # and nobody waits
            process.end()
            return None
        except Exception:
            _IDLE.append(process)
            raise
        _IDLE.append(process)
        return value
    raise UserError(KILLED)


def _carry_out(setting: WorkerSetting, packed: bytes) -> Any:
    """In the process of the job."""
    import torch

    torch.set_num_threads(1)
    os.chdir(setting.folder)
    function, args, kwargs = pickle.loads(packed)
    return function(*args, **kwargs)


def _awaited(future: Future[Any]) -> Any:
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()
    while True:
        try:
            return future.result(PULSE)
        except StillRunning:
            task = worker.state.tasks.get(key)
            waited_for = task is not None and task.state == "executing"
            if not future.done() and (not waited_for or worker.status.name in _ENDING):
                raise


def _check_here(setting: WorkerSetting) -> None:
    """The same where a worker came later."""
    ours = _versions_here()
    for package, wanted in setting.versions.items():
        if ours[package] != wanted:
            raise _other_version(f"worker on {socket.gethostname()}", package, ours[package], wanted)
    if not os.path.isdir(setting.folder):
        raise UserError(
            f"{socket.gethostname()} does not see {setting.folder}: run the command in a folder that all "
            "machines share."
        )
