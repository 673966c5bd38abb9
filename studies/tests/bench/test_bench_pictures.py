"""The benchmarks of heads and episodes: fair peers, equal answers, complete rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from innerloop_studies.bench import episodes, heads
from innerloop_studies.bench.environments import Environment

ROW = {"case", "peer", "ours_ms", "peer_ms", "ratio", "ours_mb", "peer_mb", "threads", "repeats", "at_least"}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads.harness, "machine", lambda: {"cores": 1})
    monkeypatch.setattr(heads.harness, "available_cores", lambda: 1)


@pytest.mark.slow  # eight processes, each with torch or scikit-learn to import
def test_heads_run_and_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads.environments, "find", lambda name, say: None)
    sizes = {"problems": 12, "looped": 4, "dimensions": 30}
    report = heads.run(quick=True, say=lambda _: None, sizes=sizes)
    assert len(report["cases"]) == 4
    for row in report["cases"]:
        assert set(row) >= ROW
        assert row["ratio"] > 0
        assert row["at_least"] == 20
        assert "100.00 % of labels the same" in row["notes"]
        assert "float32@1" in row["notes"]


@pytest.mark.parametrize("dtype", heads.DTYPES)
def test_newtons_method_in_jax_solves_the_same_problems(dtype: str, jax_here: Environment) -> None:
    sizes = {"problems": 3, "dimensions": 30}
    sides = heads.jax_sides({"head": "logistic", "normalise": False, "sizes": sizes}, jax_here)
    (side,) = (side for side in sides if side.name == f"jax {dtype}@1")
    with heads.harness.started([side], heads.__name__, lambda _: None) as started:
        asked = {"count": 3, "normalise": False, "dtype": dtype, "sizes": sizes}
        told = started.children[side.name].ask("solutions", **asked)
    x, y, _ = heads.problems(3, False, 30)
    models = [
        heads.estimator("logistic", tol=1e-10).fit(a.astype(float), b) for a, b in zip(x, y, strict=True)
    ]
    weights, bias = np.stack([m.coef_ for m in models]), np.stack([m.intercept_ for m in models])
    right = heads.objectives(x, y, weights, bias)
    assert heads.difference(np.array(told["objectives"]), right) <= heads.SAME
    worse = heads.objectives(x, y, 1.01 * weights, bias)
    assert heads.difference(worse, right) > heads.SAME  # the comparison can fail


def test_the_objective_of_heads_is_the_one_in_words() -> None:
    """Half the squared weights, and C times the cross-entropies: here of zeros and of one known sample."""
    x, y = np.ones((1, 2, 3), np.float32), np.array([[0, 1]])
    zeros = heads.objectives(x, y, np.zeros((1, 2, 3)), np.zeros((1, 2)))
    assert zeros == pytest.approx(3 * 2 * np.log(2))
    one = heads.objectives(x, y, np.array([[[1.0, 0, 0], [0, 0, 0]]]), np.zeros((1, 2)))
    assert one == pytest.approx(0.5 + 3 * (np.log1p(np.exp(-1)) + np.log1p(np.e)))


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
