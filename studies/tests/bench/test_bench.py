"""The benchmarks: all sides compute the same, take turns, and are compared fairly."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.types import stack_tasks
from innerloop.testing.closeness import CHAINED, DIFFERENCED, ROUNDED
from innerloop.training.execution.mapping import ProcessMap
from innerloop.training.execution.probes import Outcome
from innerloop_studies import bench
from innerloop_studies.bench import environments, harness, maml, maml_conv, maml_peers, memory, worker
from innerloop_studies.bench.harness import Child, Measured, Side, Timing
from oracles.patience import wait_until

SMALL = {
    "sine": {"tasks": 3, "hidden": 5},
    "conv": {"tasks": 2, "ways": 3, "queries": 2, "filters": 4},
    "pooled": {"tasks": 2, "ways": 3, "shots": 2, "queries": 2, "filters": 4, "size": 16},
    "protonet": {"ways": 3, "shots": 2, "queries": 2, "filters": 4, "size": 16},
}


def spec(workload, side, steps=2, **options):
    sizes = SMALL[workload]
    base = {"workload": workload, "side": side, "steps": steps, "threads": 1, "dtype": "float64"}
    return {**base, "sizes": sizes, **options}


# --- what is computed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["higher", "torchopt"])
@pytest.mark.parametrize("workload", SMALL)
def test_plain_loop_agrees_with_the_libraries(workload, library):
    pytest.importorskip(library)
    expected = maml.build(spec(workload, "plain-loop"))()
    peer = maml.build(spec(workload, library))
    for got in (peer(), peer()):  # twice: a call may not leave anything behind
        torch.testing.assert_close(got, expected, rtol=CHAINED, atol=ROUNDED)


@pytest.mark.parametrize(
    "options",
    [{"mode": "threads"}, {"mode": "processes"}, {"mode": "vmap"}, {"mode": "loop", "checkpoint": True}],
)
@pytest.mark.parametrize("workload", SMALL)
def test_ours_agrees_with_the_plain_loop(workload, options):
    expected = maml.build(spec(workload, "plain-loop"))()
    torch.testing.assert_close(
        maml.build(spec(workload, "ours", **options))(), expected, rtol=CHAINED, atol=ROUNDED
    )


def test_plain_loop_is_the_gradient_of_its_own_loss():
    """Finite differences know nothing of inner loops."""
    work = maml.workload(spec("sine", "plain-loop"))
    fields = tuple(work.batch[:4])

    def value(params):
        total = 0.0
        for x, y, x_query, y_query in zip(*fields, strict=True):
            current = {k: v.clone().requires_grad_() for k, v in params.items()}
            for _ in range(work.steps):
                inner = work.loss.value(maml_peers.mlp(current, x), y)
                grads = torch.autograd.grad(inner, list(current.values()), create_graph=True)
                current = {k: v - work.lr * g for (k, v), g in zip(current.items(), grads, strict=True)}
            total += work.loss.value(maml_peers.mlp(current, x_query), y_query).item() / work.batch.size
        return total

    grads = maml_peers.meta_gradient(
        maml_peers.mlp, work.loss.value, work.params, work.lr, work.steps, fields
    )
    generator = torch.Generator().manual_seed(5)
    direction = {k: torch.randn(v.shape, generator=generator, dtype=v.dtype) for k, v in work.params.items()}
    h = 1e-6
    ahead, behind = (
        value({k: v + sign * h * direction[k] for k, v in work.params.items()}) for sign in (1, -1)
    )
    slope = sum((grads[k] * direction[k]).sum() for k in grads).item()
    assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=DIFFERENCED)


def test_the_cases_are_those_of_the_table():
    sine, conv = maml.sine(5, torch.float32), maml.conv(5, torch.float32)
    assert sine.batch.size == 25
    assert sine.batch.x_support.shape == sine.batch.x_query.shape == (25, 10, 1)
    assert sum(p.numel() for p in sine.params.values()) == 1 * 40 + 40 + 40 * 40 + 40 + 40 + 1
    assert conv.batch.x_support.shape == (4, 5, 1, 28, 28)
    assert conv.batch.x_query.shape == (4, 75, 1, 28, 28)
    assert conv.params["conv3.weight"].shape == (64, 64, 3, 3)
    assert torch.bincount(conv.batch.y_query[0]).tolist() == [15] * 5
    pooled = maml.pooled(5, torch.float32)
    assert pooled.batch.x_support.shape == (4, 25, 3, 84, 84)
    assert pooled.batch.x_query.shape == (4, 75, 3, 84, 84)
    assert pooled.params["conv3.weight"].shape == (32, 32, 3, 3)
    assert torch.bincount(pooled.batch.y_support[0]).tolist() == [5] * 5
    assert stack_tasks(conv.batch.tasks()).x_query.equal(conv.batch.x_query)


# --- how it is measured -------------------------------------------------------------------------------------


def timing(name, rounds, threads=1, mb=100.0):
    return Timing(Side(name, {"threads": threads}), rounds, mb, 60.0, 7, 0.1)


def test_ratios_are_taken_within_rounds():
    """A slow round slows both sides: it must not move the ratio."""
    ours, peer = timing("ours", [1.0, 10.0, 1.0]), timing("peer", [2.0, 20.0, 2.2])
    assert harness.ratio(ours, peer) == 2.0


def test_a_row_has_the_promised_keys_in_order():
    """What `innerloop bench NAME --json` prints is read by others."""
    sides, said = {"ours@2": timing("ours@2", [1.0], threads=2), "p@1": timing("p@1", [3.0])}, []
    row = Measured(sides, None, said.append).row("c", "p", 2.0, ["x", "y"])
    assert said == ["c: 3.00× p; x; y"]
    assert list(row.items()) == [
        ("case", "c"),
        ("peer", "p"),
        ("ours_ms", 1.0),
        ("peer_ms", 3.0),
        ("ratio", 3.0),
        ("ours_mb", 100.0),
        ("peer_mb", 100.0),
        ("threads", "2 / 1"),
        ("repeats", 7),
        ("at_least", 2.0),
        ("notes", "x; y"),
    ]


def test_blocks_become_a_timing():
    """The median of each round, scaled to the whole work; the most memory; all calls."""
    blocks = [
        {"seconds": [0.3, 0.1, 0.2], "peak_mb": 90.0, "empty_mb": 60.0, "others": 0.4},
        {"seconds": [0.4], "peak_mb": 95.0, "empty_mb": 60.0, "others": None},
    ]
    timed = Timing.of(Side("a", {}), blocks, 1.5, scale=10.0)
    assert timed == Timing(Side("a", {}), [pytest.approx(2000.0), pytest.approx(4000.0)], 95.0, 60.0, 4, 1.5)
    assert harness.bystanders(blocks) == 0.4
    assert harness.bystanders(blocks[1:]) is None


def test_the_peers_better_thread_count_is_used():
    measured = Measured(
        {
            "plain-loop@1": timing("plain-loop@1", [5.0, 5.0]),
            "plain-loop@2": timing("plain-loop@2", [4.0, 4.0], threads=2, mb=120.0),
            "threads@2": timing("threads@2", [2.0, 2.0], threads=2),
        },
        0.5,
    )
    limits = {"sgemm_gflops": {"1": 100.0, "2": 200.0}}
    ways = [maml.Ours("threads", {}, {"plain-loop": 1.5})]
    (row,) = maml.table(5, ways, measured, 1e-7, ["plain-loop"], limits, flops=2e8)
    assert (row["ours_ms"], row["peer_ms"], row["ratio"], row["at_least"]) == (2.0, 4.0, 2.0, 1.5)
    assert (row["ours_mb"], row["peer_mb"], row["threads"], row["repeats"]) == (100.0, 120.0, "2 / 2", 7)
    assert (row["gflops"], row["sgemm_share"]) == (pytest.approx(100.0), pytest.approx(0.5))
    assert "others kept 0.5 cores busy" in row["notes"]


class Fake:
    """A child that answers at once."""

    def __init__(self, name, asked):
        self.name, self.asked = name, asked
        self.process = SimpleNamespace(pid=os.getpid())

    def ask(self, do, repeats):
        self.asked.append((self.name, repeats))
        return {"seconds": [0.1] * repeats, "peak_mb": 90.0, "empty_mb": 60.0}


def test_sides_take_turns():
    asked = []
    children = {name: Fake(name, asked) for name in "ab"}
    harness.take_turns(children, rounds=2, block_seconds=0.5, patience=0)
    assert asked == [("a", 3), ("b", 3), ("a", 5), ("b", 5), ("b", 5), ("a", 5)]


def test_disturbed_rounds_are_taken_again(monkeypatch):
    others = iter([0.0, 1.5, 0.05, 0.7, 0.02])
    monkeypatch.setattr(harness, "wait_for_quiet", lambda deadline: None)
    monkeypatch.setattr(harness, "Bystanders", lambda pids: SimpleNamespace(cores=lambda: next(others)))
    blocks = harness.take_turns({"a": Fake("a", [])}, rounds=3, block_seconds=0.5, patience=1e6)
    assert [block["others"] for block in blocks["a"]] == [0.0, 0.05, 0.02]


def test_without_patience_a_busy_machine_is_measured_as_it_is(monkeypatch):
    monkeypatch.setattr(harness, "Bystanders", lambda pids: SimpleNamespace(cores=lambda: 1.5))
    blocks = harness.take_turns({"a": Fake("a", [])}, rounds=2, block_seconds=0.5, patience=0)
    assert [block["others"] for block in blocks["a"]] == [1.5, 1.5]


def test_bystanders_are_what_is_busy_and_not_ours(monkeypatch):
    clock, busy, used = [0.0], [100.0], {os.getpid(): 10.0, 7: 20.0}
    monkeypatch.setattr(worker.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(worker, "busy_seconds", lambda: busy[0])
    monkeypatch.setattr(worker, "used_seconds", lambda pid: used[pid])
    foreign, ours = worker.Bystanders([]), worker.Bystanders([7])
    clock[0], busy[0] = 2.0, 103.0  # three seconds of two cores: half a second is ours, two are our child's
    used[os.getpid()] += 0.5
    used[7] += 2.0
    assert (foreign.cores(), ours.cores()) == (1.25, 0.25)


def test_another_process_is_seen_at_work():
    """However little of a busy machine it gets: what it used is part of what everybody used."""
    if worker.busy_seconds() is None:
        pytest.skip("this system does not tell")
    before = worker.busy_seconds()
    with subprocess.Popen([sys.executable, "-P", "-c", "while True: pass"]) as child:
        try:
            wait_until(lambda: worker.used_seconds(child.pid) >= 0.5)
        finally:
            child.kill()
    assert worker.busy_seconds() - before >= 0.25  # the two clocks tick apart


def test_wrong_gradients_are_no_result():
    right, wrong = np.array([3.0, 4.0]), np.array([3.0, 4.1])
    assert harness.disagreement({"a": right, "b": right * (1 + 1e-6)}, "a") == pytest.approx(1e-6)
    with pytest.raises(RuntimeError, match="b and a disagree"):
        harness.disagreement({"a": right, "b": wrong}, "a")
    with pytest.raises(RuntimeError, match="disagree"):
        harness.disagreement({"a": right, "b": np.array([np.nan, 1.0])}, "a")


def test_a_failing_worker_says_why():
    with (
        Child("a side", memory.WORKER) as child,
        pytest.raises(RuntimeError, match=r"a side failed:[\s\S]*no_such_request"),
    ):
        child.ask("no_such_request")


def test_peak_memory_grows_with_what_is_held():
    # in a process of its own: this one may have held more before
    script = (
        "import numpy as np\nfrom innerloop_studies.bench import worker\nbefore = worker.peak_mb()\n"
        "held = np.ones(64 * 2**20 // 8)\nassert held.sum() > 0\nprint(worker.peak_mb() - before)"
    )
    grown = float(
        subprocess.run(
            [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
        ).stdout
    )
    assert 50 < grown < 200


@pytest.mark.slow
def test_runs_without_any_peer_installed(monkeypatch, tmp_path):
    """The whole way through real processes, with only the plain loop to compare with."""
    monkeypatch.setattr(maml, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(harness, "PATIENCE", 0.0)
    said = []
    ways = [maml.Ours("loop", {"mode": "loop"}, {"plain-loop": 1.0})]
    result = maml.run_cases("sine", [(1, ways)], quick=True, say=said.append, sizes=SMALL["sine"])
    (row,) = result["cases"]
    assert row["peer"] == "plain-loop"
    assert row["case"] == "1 step, loop"
    for key in ("ours_ms", "peer_ms", "ratio", "gflops", "sgemm_share"):
        assert row[key] > 0
    for key in ("ours_mb", "peer_mb"):
        assert 50 < row[key] < 5000
    assert result["machine"]["sgemm_gflops"]["1"] > 0
    assert sum("is not installed" in line for line in said) == len(maml_peers.LIBRARIES) + 1
    assert any("same meta-gradient" in line for line in said)


def test_a_peer_that_is_not_there_is_left_out_with_a_word(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = []
    assert environments.find("jax", said.append) is None
    assert said == [
        "jax is not installed and left out: --install-peers brings it, in an environment of its own"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_jax_takes_the_same_meta_gradient(kind, tmp_path):
    jax = environments.find("jax", lambda _: None)
    if jax is None:
        pytest.skip("`innerloop bench maml-sine --install-peers` installs JAX")
    base = {"workload": kind, "steps": 2, "sizes": SMALL[kind], "dtype": "float64"}
    plain = Side("plain", {**base, "side": maml.PLAIN, "threads": 1})
    sides = [plain, *maml.jax_sides(base, jax, tmp_path)]
    with harness.started(sides, maml.__name__, lambda _: None) as run:
        assert harness.disagreement(run.results, "plain") < CHAINED


@pytest.mark.slow  # an environment is made
def test_a_peer_that_cannot_be_installed_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(environments.REQUIRED, "jax", ["no-such-package-of-innerloop"])
    with pytest.raises(UserError, match=r"jax could not be installed \(.*no-such-package"):
        environments.install("jax", lambda _: None)
    assert environments.find("jax", lambda _: None) is None


@pytest.mark.slow  # workers that other tests have left would count
def test_memory_of_workers_counts_and_what_they_share_does_not():
    def large(params, buffers, task):
        return torch.ones(2**24).sum() * params["shared"].sum()  # 64 MB in the worker

    before = worker.peak_with_workers_mb() - worker.peak_mb()  # workers of other tests may still be there
    processes, shared = ProcessMap(large, 1), {"shared": torch.ones(2**23)}
    processes(shared, {}, maml.sine(1, torch.float32, tasks=2).batch)
    own = worker.peak_with_workers_mb() - worker.peak_mb() - before
    assert 64 <= own < 64 + 30
    assert set(worker.worker_pids()) >= {os.getpid(), *processes.pool.pids}


def test_the_processes_of_a_side_are_no_bystanders(monkeypatch):
    class WithWorkers(Fake):
        def ask(self, do, repeats):
            return {**super().ask(do, repeats), "pids": [os.getpid(), 4242]}

    watched = []
    monkeypatch.setattr(
        harness, "Bystanders", lambda pids: watched.append(pids) or SimpleNamespace(cores=lambda: 0.0)
    )
    monkeypatch.setattr(harness, "wait_for_quiet", lambda deadline: None)
    harness.take_turns({"a": WithWorkers("a", [])}, rounds=1, block_seconds=0.1)
    assert watched == [sorted({os.getpid(), 4242})]


def test_pictures_are_measured_in_both_sizes_with_what_we_promise(monkeypatch):
    asked = []

    def run_cases(workload, cases, **options):
        asked.append((workload, [(steps, [(w.name, w.at_least) for w in ways]) for steps, ways in cases]))
        return {"cases": [options.get("prefix", "")], "machine": {}}

    monkeypatch.setattr(maml_conv, "run_cases", run_cases)
    monkeypatch.setattr(maml_conv, "native_works", lambda: Outcome(False, "no C++ compiler was found"))
    assert maml_conv.run(say=lambda _: None)["cases"][:2] == ["", "canonical, "]
    assert [name for name, _ in asked] == ["conv", "pooled", "protonet"]
    assert [[steps for steps, _ in cases] for _, cases in asked] == [[5, 1], [5, 1], [1]]
    assert {name for _, cases in asked for _, ways in cases for name, _ in ways} == {"processes", "torch"}
    monkeypatch.setattr(maml_conv, "native_works", lambda: Outcome(True))
    maml_conv.run()
    for _, cases in asked[3:]:
        assert all(ways[0][0] == "native" and ways[0][1]["jax"] >= 1 for _, ways in cases)


@pytest.mark.slow
def test_memory_is_watched_in_a_real_run():
    said = []
    row = memory.growth("vmap", "off", steps=20, every=10, say=said.append)
    assert row["peer"] == "after 10"
    assert row["ours_mb"] >= row["peer_mb"] > 50
    assert row["ratio"] < 1.2
    assert len(said) == 1


# --- the registry -------------------------------------------------------------------------------------------


def test_listing_benchmarks_does_not_import_torch():
    code = "import sys, innerloop_studies.bench as b; assert b.BENCHMARKS; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_every_module_that_can_be_run_states_what_it_measures(monkeypatch):
    folder = Path(bench.__file__).parent
    runnable = {f.stem.replace("_", "-") for f in folder.glob("[a-z]*.py") if "\ndef run(" in f.read_text()}
    assert runnable == set(bench.BENCHMARKS)
    for name, one in bench.BENCHMARKS.items():
        module = bench.module_of(name)
        assert (module.TITLE, module.VERSION, hasattr(module, "figure")) == one
        monkeypatch.setattr(module, "run", lambda quick, say: {"cases": [], "quick": quick})
        assert bench.run(name, quick=True) == {"name": name, "cases": [], "quick": True}


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UserError, match="did you mean 'maml-conv'"):
        bench.run("maml-con")
