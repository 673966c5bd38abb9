"""The benchmark of ResNet-12: both sides take the same steps, wrong gradients are refused."""

import numpy as np
import pytest

from innerloop.testing.closeness import SINGLE_SUMMED, assert_trees_close
from innerloop_studies.bench import resnet as resnet_bench
from innerloop_studies.bench.worker import flat


def test_bench_sides_take_the_same_step():
    tiny = {"threads": 1, "widths": [4, 4, 8, 8], "samples": 8}
    steps = {
        "eager": resnet_bench.build({**tiny, "side": "eager", "channels_last": False}),
        "last": resnet_bench.build({**tiny, "side": "eager", "channels_last": True}),
        "ours": resnet_bench.build({**tiny, "side": "ours", "precision": "float32"}),
    }
    grads = {name: step() for name, (step, _) in steps.items()}
    for name in ("last", "ours"):
        assert_trees_close(grads[name], grads["eager"], (1e-3, SINGLE_SUMMED))
    again = steps["ours"][0]()
    assert_trees_close(again, grads["ours"], (1e-3, SINGLE_SUMMED))  # a rate of zero: every step is the same


@pytest.mark.slow  # processes that take turns
def test_bench_runs_and_reports(monkeypatch):
    monkeypatch.setattr(resnet_bench, "available_cores", lambda: 1)
    monkeypatch.setattr(resnet_bench.harness, "machine", lambda: {"cores": 1})
    monkeypatch.setattr(resnet_bench.environments, "find", lambda name, say: None)
    sizes = {"widths": [4, 4, 8, 8], "samples": 8, "steps": 1}
    result = resnet_bench.run(quick=True, say=lambda line: None, precision="float32", sizes=sizes)
    assert [row["peer"] for row in result["cases"]] == ["eager", "eager, channels last"]
    for row in result["cases"]:
        assert row["ratio"] > 0
        assert row["ours_mb"] > 0
    assert result["cases"][0]["at_least"] == 1.9
    assert "on held-out drawings" in result["cases"][0]["notes"]


@pytest.mark.slow  # JAX compiles it for seconds, twice
def test_jax_takes_the_same_step_again_and_again(tmp_path, jax_here):
    tiny = {"widths": [4, 4, 8, 8], "samples": 8}
    step, _ = resnet_bench.build({**tiny, "threads": 1, "side": "eager", "channels_last": False})
    results = {"eager": flat(step())}
    sides = resnet_bench.jax_sides(tiny, jax_here, tmp_path)
    with resnet_bench.harness.started(sides, resnet_bench.__name__, lambda _: None) as started:
        results |= started.results
        for child in started.children.values():
            child.ask("block", repeats=2)
    assert {name.partition("@")[0] for name in results} == {"eager", "jax-im2col", "jax-lax"}
    assert resnet_bench.harness.disagreement(results, "eager", 1e-3) > 0


def test_bench_sides_train_alike():
    trained = resnet_bench.compare_trained(steps=3, seeds=1)
    held_out = len(resnet_bench.drawings()[3])
    # the gradients' agreement has tests of its own; here rounding may turn a few of the 240 answers
    assert abs(trained.ours - trained.eager) <= 3 / held_out


def test_bench_refuses_wrong_gradients():
    ones = np.ones(4, np.float32)
    assert resnet_bench.distance({"eager@1": ones, "ours": ones}, "float32") == 0
    with pytest.raises(RuntimeError, match="gradients differ"):
        resnet_bench.distance({"eager@1": ones, "ours": 1.1 * ones}, "float32")
    with pytest.raises(RuntimeError, match="gradients differ"):
        resnet_bench.distance({"eager@1": ones, "ours": np.nan * ones}, "bfloat16")
    with pytest.raises(
        RuntimeError, match="jax-lax@1 and eager@1 disagree"
    ):  # in float32, whatever ours is in
        resnet_bench.distance({"eager@1": ones, "ours": ones, "jax-lax@1": 1.1 * ones}, "bfloat16")
