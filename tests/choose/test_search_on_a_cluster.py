"""A search whose candidates are trained by the workers of a Dask cluster finds what one process finds."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from innerloop.choose.network_search import resume_search, search_networks
from innerloop.choose.request import read_search
from innerloop.core.errors import UserError
from oracles.patience import PATIENCE, wait_until
from oracles.race import without_times

pytest.importorskip("distributed")
from support.clusters import dask_cluster

pytestmark = pytest.mark.usefixtures("own_folder")

RACE = [
    *("space=convnet", "space.depths=[1,2]", "space.widths=[2,3]", "space.kernels=[3]", "repeats=1"),
    *("k=2", "pool=5", "steps=200", "episodes=4", "score=parameters,flops", "tasks.ways=5"),
]
SAME = ("shortlist", "chosen", "sentence", "rungs", "reliability")


def test_a_cluster_that_does_not_answer_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("innerloop.runs.cluster.ANSWER", 0.2)
    asked = read_search("glyphs", RACE, validate=False)
    with pytest.raises(UserError, match="no Dask scheduler answers at tcp"):
        search_networks(asked, cluster="tcp://127.0.0.1:9", show=False)
    assert not Path("runs").exists()


@pytest.mark.slow
def test_workers_find_what_one_process_finds_even_if_one_is_killed(tmp_path: Path) -> None:
    asked = read_search("glyphs", RACE, validate=False)
    alone = search_networks(asked, workers=1, show=False).as_dict()
    with dask_cluster(tmp_path / "dask", workers=2) as cluster:

        def kill() -> None:
            wait_until(lambda: len(list(Path("runs").glob("*/*/candidates/*/rung-1.json"))) > 4)
            cluster.processes[1].kill()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        shared = search_networks(asked, cluster=cluster.address, show=False).as_dict()
        killer.join(PATIENCE)
    for key in SAME:
        assert without_times(shared[key]) == without_times(alone[key])
    with pytest.raises(UserError, match="is finished"):
        resume_search(Path(shared["run"]))
    assert os.listdir(shared["run"]).count("race.json") == 1
