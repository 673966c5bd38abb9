"""The benchmark of empirical kernels: both sides compute the same, and how they are compared."""

import pytest

from innerloop.testing.closeness import assert_close
from innerloop_studies.bench import ntk as bench
from innerloop_studies.bench.harness import Measured, Side, Timing


@pytest.mark.parametrize("case", bench.CASES)
def test_both_sides_of_the_benchmark_compute_the_same(case: str) -> None:
    spec = {
        "case": case,
        "sizes": {"width": 16, "samples": 5, "depth": 2},
        "method": "layerwise",
        "threads": 1,
    }
    ours, peer = (bench.build({**spec, "side": side})() for side in ("ours", bench.PEER))
    assert_close(ours, peer)


def test_the_benchmark_compares_better_thread_counts_and_added_memory() -> None:
    def timing(name: str, ms: float, peak: float) -> Timing:
        return Timing(Side(name, {"threads": int(name[-1])}), [ms, ms], peak, 100.0, 4, 0.1)

    timings = {
        "ours@1": timing("ours@1", 3.0, 110.0),
        "ours@2": timing("ours@2", 2.0, 120.0),
        "vmap(grad)@1": timing("vmap(grad)@1", 100.0, 500.0),
        "vmap(grad)@2": timing("vmap(grad)@2", 120.0, 700.0),
    }
    row = bench._row("mlp", Measured(timings, 0.0), 1e-6)
    assert (row["ratio"], row["memory_ratio"], row["threads"]) == (50.0, 20.0, "2 / 1")
