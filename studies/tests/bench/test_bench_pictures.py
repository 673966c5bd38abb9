"""The benchmarks of heads and episodes: fair peers, equal answers, complete rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from innerloop_studies.bench import episodes, heads

ROW = {"case", "peer", "ours_ms", "peer_ms", "ratio", "ours_mb", "peer_mb", "threads", "repeats", "at_least"}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads.harness, "machine", lambda: {"cores": 1})
    monkeypatch.setattr(heads.harness, "available_cores", lambda: 1)


@pytest.mark.slow  # eight processes, each with torch or scikit-learn to import
def test_heads_run_and_report() -> None:
    sizes = {"problems": 12, "looped": 4, "dimensions": 30}
    report = heads.run(quick=True, say=lambda _: None, sizes=sizes)
    assert len(report["cases"]) == 4
    for row in report["cases"]:
        assert set(row) >= ROW
        assert row["ratio"] > 0
        assert row["at_least"] == 20
        assert "100.00 % of labels the same" in row["notes"]
        assert "float32@1" in row["notes"]


@pytest.mark.slow
def test_the_peer_of_heads_has_its_threads_and_no_torch() -> None:
    """In a process of its own: what is loaded here is no evidence."""
    code = (
        "import sys; from innerloop_studies.bench import heads; from threadpoolctl import threadpool_info; "
        "x, y, _ = heads.problems(3, True, 20); "
        "models = heads.looped(lambda a, b: heads.estimator('logistic').fit(a, b), 1, x, y)(); "
        "assert 'torch' not in sys.modules; assert all(i['num_threads'] == 1 for i in threadpool_info()); "
        "print(models[0].n_iter_[0] < 1000, models[0].tol)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0.0001"]  # converged, at its default tolerance


def test_both_sides_of_heads_get_the_same_problems() -> None:
    few, many = heads.problems(2, True, 40), heads.problems(2, True, 40, queries=3)
    assert np.array_equal(few[0], many[0])
    assert np.allclose(np.linalg.norm(few[0], axis=-1), 1)
    assert few[1].tolist()[0] == np.repeat(np.arange(5), 5).tolist()


@pytest.mark.slow
def test_episodes_run_and_report() -> None:
    report = episodes.run(quick=True, say=lambda _: None, sizes={"classes": 30})
    assert [row["at_least"] for row in report["cases"]] == [1.3, 2.0]
    for row in report["cases"]:
        assert set(row) >= ROW
        assert "episodes a second" in row["notes"]


@pytest.mark.parametrize("size", [1, episodes.BATCH])
def test_both_sides_make_episodes_of_the_same_kind(size: int) -> None:
    images = episodes.pictures(30)
    theirs: list[Any] = episodes.numpy_gather(images)()
    mine: list[Any] = episodes.ours(images, size)()
    one = mine[0] if size == 1 else mine[0].task(3)
    assert len(theirs) == episodes.PER_CALL == len(mine) * size
    for a, b in zip(theirs[5], one[:4], strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
    x = theirs[5][2]
    assert float(x.min()) >= 0
    assert float(x.max()) == 1
    # the peer draws without replacement: no picture twice in an episode
    rows = np.concatenate([t.flatten(1).numpy() for t in (theirs[5][0], x)])
    assert len(np.unique(rows, axis=0)) == len(rows)
