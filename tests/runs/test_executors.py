"""One executor for all jobs: processes here, or workers of a Dask cluster; both are killed on the way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from innerloop.core.errors import UserError
from innerloop.runs import cluster as cluster_module
from innerloop.runs.executors import OutOfTimeError, as_finished, in_order, open_executor
from oracles.patience import PATIENCE, wait_until
from support.clusters import DaskCluster, dask_cluster
from support.jobs import dies, dies_once, process_number, refuses, sums, waits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes, looks at /proc")


def began(folder: Path) -> list[int]:
    return [int(file.read_text() or 0) for file in sorted(folder.glob("began-*"))]


def is_there(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


# ---- here ----


def test_the_number_of_workers_changes_no_result() -> None:
    jobs = list(range(5))
    with open_executor(1) as here, open_executor(2) as two, open_executor(1, separate=True) as one:
        results = [list(in_order(each, sums, jobs)) for each in (here, two, one)]
    assert results[0] == results[1] == results[2]
    assert {threads for _, threads, _ in results[0]} == {1}


def test_one_worker_is_this_process_unless_its_jobs_may_have_to_be_ended() -> None:
    with open_executor(1) as here, open_executor(1, separate=True) as apart:
        assert here.submit(process_number, 0).result() == os.getpid()
        assert apart.submit(process_number, 0).result() != os.getpid()


def test_what_a_killed_worker_was_at_work_on_is_done_again(tmp_path: Path) -> None:
    said: list[str] = []
    jobs = [str(tmp_path / name) for name in "abc"]
    with open_executor(2) as executor:
        results = dict(as_finished(executor, dies_once, jobs, say=said.append))
    assert results == dict.fromkeys(range(3), "done")
    assert said
    assert all("was killed" in text for text in said)


def test_a_job_that_kills_every_worker_is_an_error_at_last() -> None:
    said: list[str] = []
    with pytest.raises(UserError, match="was killed"), open_executor(2) as executor:
        list(as_finished(executor, dies, [0], say=said.append))
    assert len(said) == 3


def test_errors_of_jobs_arrive_as_they_are() -> None:
    for workers in (1, 2):
        with pytest.raises(UserError, match="7 is not wanted"), open_executor(workers) as executor:
            list(as_finished(executor, refuses, [7]))


def test_jobs_are_ended_when_their_time_is_up(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError), open_executor(1, separate=True) as executor:
        list(as_finished(executor, waits, [str(tmp_path)], left=lambda: 0.0 if began(tmp_path) else 1.0))
    wait_until(lambda: not is_there(began(tmp_path)[0]))


def test_an_interrupt_ends_what_is_under_way(tmp_path: Path) -> None:
    def interrupt() -> float:
        if len(began(tmp_path)) == 2:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt), open_executor(2) as executor:
        list(as_finished(executor, waits, [str(tmp_path)] * 3, left=interrupt))
    wait_until(lambda: not any(is_there(number) for number in began(tmp_path)))


LEADER = """
import sys
import time
sys.path.insert(0, {tests!r})
from support.jobs import waits
from innerloop.runs.executors import as_finished, open_executor
with open_executor(2, {cluster!r}) as executor:
    list(as_finished(executor, waits, [{folder!r}] * 2))
"""


def start_leader(folder: Path, cluster: str | None = None) -> subprocess.Popen[bytes]:
    tests = str(Path(__file__).parents[1])
    given = {**os.environ, "PYTHONPATH": f"{tests}:{os.environ.get('PYTHONPATH', '')}"}
    text = LEADER.format(tests=tests, folder=str(folder), cluster=cluster)
    return subprocess.Popen([sys.executable, "-c", text], env=given)


def test_workers_end_with_a_leader_that_was_killed(tmp_path: Path) -> None:
    leader = start_leader(tmp_path)
    wait_until(lambda: len(began(tmp_path)) == 2 and all(began(tmp_path)))
    leader.kill()
    leader.wait()
    wait_until(lambda: not any(is_there(number) for number in began(tmp_path)))
    assert len(began(tmp_path)) == 2


# ---- on a cluster ----


def test_a_cluster_gives_what_one_process_gives(dask: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dask.folder)
    with open_executor(1) as here:
        expected = list(in_order(here, sums, [0, 1, 2]))
    for where in (dask.address, str(dask.file)):
        with open_executor(cluster=where) as executor:
            assert list(in_order(executor, sums, [0, 1, 2])) == expected


def test_errors_of_jobs_on_a_cluster_arrive_as_they_are(dask: DaskCluster) -> None:
    with pytest.raises(UserError, match="7 is not wanted"), open_executor(cluster=dask.address) as executor:
        list(as_finished(executor, refuses, [7]))


def test_an_address_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ANSWER", 0.5)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
    for where, words in (
        (address, f"no Dask scheduler answers at {address}"),
        ("slrum", "did you mean 'slurm'"),
        ("nowhere.json", "neither an address"),
    ):
        with pytest.raises(UserError, match=words), open_executor(cluster=where):
            pass


def test_a_scheduler_without_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "FIRST_WORKER", 1.0)
    with (
        dask_cluster(tmp_path, workers=0) as empty,
        pytest.raises(UserError, match=f"has no worker: start some with `dask worker {empty.address}`"),
        open_executor(cluster=empty.address),
    ):
        pass


def test_without_dask_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module.importlib.util, "find_spec", lambda _: None)
    with (
        pytest.raises(UserError, match=r"needs distributed: `pip install 'innerloop\[cluster\]'`"),
        open_executor(cluster="tcp://127.0.0.1:8786"),
    ):
        pass


@pytest.mark.parametrize("package", ["innerloop", "torch"])
def test_a_worker_with_another_version(dask: DaskCluster, tmp_path: Path, package: str) -> None:
    other = tmp_path / f"{package}-0.0.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.9\n")
    worker = dask.worker(PYTHONPATH=str(tmp_path))
    words = rf"worker at tcp.* has {package} 0.0.9, and here is .*: install {package}=="
    try:
        with pytest.raises(UserError, match=words):
            _open_until_refused(dask.address)
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not _refused(dask.address))  # the scheduler has noticed


def _open_until_refused(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:  # until the worker has come
        with open_executor(cluster=address):
            time.sleep(0.2)


def _refused(address: str) -> bool:
    try:
        with open_executor(cluster=address):
            return False
    except UserError:
        return True


@pytest.mark.slow
def test_the_job_of_a_killed_worker_is_done_by_another(tmp_path: Path) -> None:
    with dask_cluster(tmp_path / "dask", workers=2) as dask, open_executor(cluster=dask.address) as executor:
        work = as_finished(executor, waits, [str(tmp_path)] * 2)
        future = ThreadPoolExecutor(1).submit(list, work)
        wait_until(lambda: len(began(tmp_path)) == 2 and all(began(tmp_path)))
        dask.processes[-1].kill()
        dask.worker()
        wait_until(lambda: len(began(tmp_path)) == 3)
        (tmp_path / "go").touch()
        assert sorted(future.result()) == [(0, "done"), (1, "done")]


@pytest.mark.slow
def test_jobs_on_a_cluster_end_with_a_leader_that_was_killed(dask: DaskCluster, tmp_path: Path) -> None:
    leader = start_leader(tmp_path, dask.address)
    wait_until(lambda: bool(began(tmp_path)) and all(began(tmp_path)))
    leader.kill()
    leader.wait()
    wait_until(lambda: not is_there(began(tmp_path)[0]))
    with open_executor(cluster=dask.address) as executor:  # the worker is free again
        assert list(in_order(executor, abs, [-1])) == [1]


@pytest.mark.slow
def test_jobs_that_kill_their_process_spare_the_worker(tmp_path: Path) -> None:
    """Also those of workers that Dask's nanny has started, which may have no children by themselves."""
    with dask_cluster(tmp_path / "dask", workers=0) as dask:
        dask.worker("--nanny")
        with open_executor(cluster=dask.address) as executor:
            assert list(in_order(executor, dies_once, [str(tmp_path / "a")])) == ["done"]
            with pytest.raises(UserError, match="was killed"):
                list(in_order(executor, dies, [0]))


@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "dask").mkdir()
    with dask_cluster(tmp_path / "dask") as dask, open_executor(cluster=dask.address) as executor:
        future = ThreadPoolExecutor(1).submit(list, as_finished(executor, waits, [str(tmp_path)]))
        wait_until(lambda: bool(began(tmp_path)))
        dask.processes[0].kill()
        with pytest.raises(UserError, match="scheduler is gone"):
            future.result(PATIENCE)
        wait_until(lambda: not is_there(began(tmp_path)[0]))  # nobody waits for it any more
