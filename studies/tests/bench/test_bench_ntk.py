"""The benchmark of tangent kernels: all sides compute the same, and how they are compared."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innerloop.testing.closeness import assert_close
from innerloop_studies.bench import environments, harness
from innerloop_studies.bench import ntk as bench
from innerloop_studies.bench.harness import Measured, Side, Timing

SMALL = {"width": 16, "samples": 5, "depth": 2}
EMPIRICAL = [name for name, case in bench.CASES.items() if bench.PEER in case.at_least]


@pytest.mark.parametrize("case", EMPIRICAL)
def test_both_sides_of_the_benchmark_compute_the_same(case: str) -> None:
    spec = {"case": case, "sizes": SMALL, "method": "layerwise", "threads": 1}
    ours, peer = (bench.build({**spec, "side": side})() for side in ("ours", bench.PEER))
    assert_close(ours, peer)


@pytest.mark.parametrize("peer", bench.PEERS)
@pytest.mark.parametrize("case", bench.CASES)
def test_peers_in_environments_of_their_own_compute_the_same(case: str, peer: str, tmp_path: Path) -> None:
    where = environments.find(peer, lambda _: None)
    if where is None:
        pytest.skip(f"{peer} is not installed: innerloop bench ntk --install-peers")
    sides = bench.sides_of(case, SMALL, tmp_path, {peer: where})
    some = [side for side in sides if side.name == "ours@1" or side.name.startswith(peer)]
    with harness.started([side for side in some if side.name.endswith("@1")], bench.__name__, print) as run:
        assert len(run.results) > 1 or peer == "jax"
        harness.disagreement(run.results, "ours@1")


def test_inputs_of_other_environments_are_in_a_file(tmp_path: Path) -> None:
    where: Any = environments.Environment("python", {})
    sides = bench.sides_of("mlp trace", SMALL, tmp_path, {"jax": where, "neural-tangents": None})
    assert {side.name.rpartition("@")[0] for side in sides} == {"ours", "jax"}
    theirs = next(side for side in sides if side.name.startswith("jax"))
    assert (theirs.module, theirs.environment) == (bench.JAX, where)
    given = np.load(theirs.spec["inputs"])
    assert given["x"].shape == (5, 16)
    assert given["layer2.weight"].shape == (10, 16)


def timing(name: str, ms: float, peak: float) -> Timing:
    return Timing(Side(name, {"threads": int(name[-1])}), [ms, ms], peak, 100.0, 4, 0.1)


def test_the_benchmark_compares_better_thread_counts_and_added_memory() -> None:
    timings = {
        "ours@1": timing("ours@1", 3.0, 110.0),
        "ours@2": timing("ours@2", 2.0, 120.0),
        "vmap(grad)@1": timing("vmap(grad)@1", 100.0, 500.0),
        "vmap(grad)@2": timing("vmap(grad)@2", 120.0, 700.0),
        "jax@1": timing("jax@1", 3.0, 140.0),
    }
    row, jax = bench._rows("mlp", Measured(timings, 0.0), 1e-6)
    assert (row["ratio"], row["memory_ratio"], row["threads"]) == (50.0, 20.0, "2 / 1")
    assert (jax["peer"], jax["ratio"], jax["at_least"], jax["memory_ratio"]) == ("jax", 1.5, 1.1, 2.0)
