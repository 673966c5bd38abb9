"""Random numbers, statistics, losses, trees and inner gradients."""

from __future__ import annotations

import importlib
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from innerloop.core import random, trees
from innerloop.core.autodiff import gradient, is_plain, plain_autograd
from innerloop.core.errors import NonFiniteError, Problems, UserError, did_you_mean, spelling
from innerloop.core.losses import LOSSES, get_loss, is_classification, rate_factor, score, score_name
from innerloop.core.random import Draws, derive_seed, generator, hashed_bits, hashed_uniform
from innerloop.core.statistics import mean_interval, paired_difference, t_quantile_975
from innerloop.core.types import Task, TaskBatch, stack_tasks
from innerloop.testing.closeness import assert_close, assert_mean, assert_trees_close, printed
from oracles import problems

# ---- random numbers ----


def test_seeds_do_not_depend_on_the_machine() -> None:
    assert derive_seed(0, "init") == 3330654677893223573  # the first bytes of sha256("0/init")
    seeds = {derive_seed(s, name, i) for s in range(20) for name in ("a", "b") for i in range(20)}
    assert len(seeds) == 800
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_named_generators_are_apart() -> None:
    def draw(*names: str | int) -> Tensor:
        return torch.randn(4, generator=generator(3, *names))

    assert torch.equal(draw("init"), draw("init"))
    assert not torch.equal(draw("init"), draw("heads"))


def test_hashed_numbers_are_those_of_splitmix64() -> None:
    """Against the published generator (Steele, Lea and Flood 2014), in plain integers."""

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    golden, key = 0x9E3779B97F4A7C15, derive_seed(5, "x")
    bits = hashed_bits(key, np.array([0, 1, 10**12]), 3)
    for row, index in enumerate((0, 1, 10**12)):
        stream = mix((key + index * golden) % 2**64)
        assert [int(v) for v in bits[row]] == [mix((stream + k * golden) % 2**64) for k in (1, 2, 3)]


def test_uniforms_are_strictly_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for bits in (0, 2**64 - 1):  # the ends, which no test would ever draw
        monkeypatch.setattr(
            random, "hashed_bits", lambda key, index, n, b=bits: np.full((1, n), b, np.uint64)
        )
        value = float(hashed_uniform(0, np.array([0]), 1)[0, 0])
        assert 0 < value < 1
        assert torch.isfinite(Draws(0, [0], dtype=torch.float64).normal("z", (1,))).all()


def test_uniforms_are_uniform_and_independent() -> None:
    u = hashed_uniform(derive_seed(1, "u"), np.arange(2000), 20)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-6
    assert_mean(torch.from_numpy((u - 0.5) ** 2), 1 / 12)
    z = (u - 0.5) * math.sqrt(12)
    assert_mean(torch.from_numpy(z[1:, 0] * z[:-1, 0]), 0.0)  # neighbouring episodes
    assert_mean(torch.from_numpy(z[:, 1:] * z[:, :-1]), 0.0)  # neighbouring positions
    other = (hashed_uniform(derive_seed(2, "u"), np.arange(2000), 20) - 0.5) * math.sqrt(12)
    assert_mean(torch.from_numpy(z * other), 0.0)  # another seed


def test_normals_are_normal() -> None:
    z = Draws(0, np.arange(500), dtype=torch.float64).normal("z", (40,), mean=1.0, std=3.0)
    assert stats.kstest(z.numpy().ravel(), "norm", args=(1.0, 3.0)).pvalue > 1e-6
    assert_mean(z, 1.0)
    assert_mean((z - 1).square(), 9.0)


def test_integers_cover_their_range_evenly() -> None:
    drawn = Draws(0, np.arange(7000)).integers("k", (), 7)
    counts = torch.bincount(drawn, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6


def test_draws_depend_on_task_or_sample_as_told() -> None:
    draws = Draws(0, task=[5, 5, 6], sample=[0, 1, 2])
    by_task, by_sample = draws.normal("a", (3,)), draws.normal("a", (3,), per="sample")
    assert torch.equal(by_task[0], by_task[1])
    assert not torch.equal(by_task[0], by_task[2])
    assert len({tuple(row.tolist()) for row in by_sample}) == 3
    assert draws.size == 3


def test_draws_of_other_names_seeds_and_episodes_differ() -> None:
    first = Draws(0, [3]).uniform("a", (5,))
    assert torch.equal(first[0], Draws(0, [9, 3]).uniform("a", (5,))[1])
    for other in (
        Draws(0, [3]).uniform("b", (5,)),
        Draws(1, [3]).uniform("a", (5,)),
        Draws(0, [4]).uniform("a", (5,)),
    ):
        assert not (first == other).any()


def test_draws_are_rounded_once() -> None:
    double, single = (Draws(0, [1, 2], dtype=d).normal("a", (9,)) for d in (torch.float64, torch.float32))
    assert torch.equal(double.float(), single)
    bounds = Draws(0, range(1000)).uniform("a", (), -2.0, 3.0)
    assert bool((bounds >= -2).all() and (bounds <= 3).all())


def test_generators_per_episode() -> None:
    one, two = Draws(0, [4, 7]).generators("aug")
    again = Draws(0, [7]).generators("aug")[0]
    assert torch.equal(torch.rand(3, generator=two), torch.rand(3, generator=again))
    assert not torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=again))


# ---- statistics ----


def test_t_quantiles_equal_scipys() -> None:
    for df in [*range(1, 60), 99, 599, 10**6]:
        assert abs(t_quantile_975(df) - stats.t.ppf(0.975, df)) < 2 * printed(4)


def test_intervals_equal_scipys() -> None:
    values = np.random.default_rng(0).normal(3, 2, 50)
    interval = mean_interval(values)
    low, high = stats.t.interval(0.95, 49, values.mean(), stats.sem(values))
    assert interval.n == 50
    assert math.isclose(interval.mean, values.mean())
    assert math.isclose(2 * interval.ci95, high - low, rel_tol=2 * printed(4))


def test_intervals_cover() -> None:
    rng = np.random.default_rng(1)
    interval = [mean_interval(rng.normal(1, 2, 6)) for _ in range(4000)]
    covered = np.mean([abs(i.mean - 1) <= i.ci95 for i in interval])
    assert abs(covered - 0.95) < 5 * math.sqrt(0.05 * 0.95 / 4000)


def test_few_values_have_no_interval() -> None:
    assert math.isnan(mean_interval([2.0]).ci95)
    assert mean_interval([2.0]).mean == 2.0
    assert math.isnan(mean_interval([]).mean)


def test_paired_differences_are_sharper() -> None:
    rng = np.random.default_rng(0)
    hardness, noise = rng.normal(0, 5, 100), rng.normal(0, 0.1, 100)
    paired = paired_difference(hardness + 1 + noise, hardness)
    assert abs(paired.mean - 1) < paired.ci95 < 0.1
    with pytest.raises(ValueError, match="equal lengths"):
        paired_difference([1.0], [1.0, 2.0])


# ---- losses ----

OUTPUTS = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 0.5]], dtype=torch.float64)
TARGETS = torch.tensor([[0.0, 2.0], [1.0, 1.0], [0.0, 0.0]], dtype=torch.float64)


def test_squared_losses_by_hand() -> None:
    total = 1 + 0 + 4 + 4 + 0 + 0.25
    values = {name: float(get_loss(name).value(OUTPUTS, TARGETS)) for name in ("mse", "half-mse", "half-sse")}
    assert values == pytest.approx({"mse": total / 3, "half-mse": total / 6, "half-sse": total / 2})


def test_cross_entropies_equal_torchs() -> None:
    labels = torch.tensor([0, 1, 1])
    for name, how in (("cross-entropy", "mean"), ("cross-entropy-sum", "sum")):
        assert_close(get_loss(name).value(OUTPUTS, labels), F.cross_entropy(OUTPUTS, labels, reduction=how))


@pytest.mark.parametrize(
    "names", [("mse", "half-mse"), ("half-mse", "half-sse"), ("half-sse", "mse")], ids=str
)
def test_converted_rates_take_the_same_step(names: tuple[str, str]) -> None:
    start = {"w": torch.tensor([[0.3], [-0.2]], dtype=torch.float64)}
    x, y = OUTPUTS, TARGETS[:, :1]
    grads = [gradient(lambda p, n=name: get_loss(n).value(x @ p["w"], y), start)["w"] for name in names]
    assert_close(grads[0], rate_factor(names[0], names[1], samples=3) * grads[1])


def test_converted_rates_of_cross_entropies() -> None:
    assert rate_factor("cross-entropy", "cross-entropy-sum", 5) == pytest.approx(0.2)
    with pytest.raises(UserError, match="cannot be carried over"):
        rate_factor("mse", "cross-entropy", 5)


def test_losses_say_what_is_wrong() -> None:
    with pytest.raises(UserError, match="did you mean 'half-mse'"):
        get_loss("half-mes")
    with pytest.raises(UserError, match=r"outputs have shape \(3, 2\) but targets \(3,\)"):
        get_loss("mse").value(OUTPUTS, TARGETS[:, 0])


def test_scores() -> None:
    labels = torch.tensor([1, 0, 0])
    assert float(score(LOSSES["cross-entropy"], OUTPUTS, labels)) == pytest.approx(2 / 3)
    for name in ("mse", "half-mse", "half-sse"):  # the score has one convention, whatever the loss
        assert float(score(LOSSES[name], OUTPUTS, TARGETS)) == pytest.approx(9.25 / 3)
        assert score_name(LOSSES[name]) == "mse"
    assert score_name(LOSSES["cross-entropy-sum"]) == "accuracy"
    assert [n for n, loss in LOSSES.items() if is_classification(loss)] == [
        "cross-entropy",
        "cross-entropy-sum",
    ]


# ---- trees, tasks, words ----


def test_trees() -> None:
    a = {"x": torch.tensor([1.0, 2.0]), "y": torch.tensor([[3.0]])}
    b = {"x": torch.tensor([0.5, 0.5]), "y": torch.tensor([[-1.0]])}
    assert float(trees.dot(a, b)) == 1.5 - 3
    assert float(trees.global_norm(a)) == pytest.approx(math.sqrt(14))
    assert trees.count(a) == 3
    assert list(trees.select(a, ["y"])) == ["y"]
    moved = trees.add_scaled(a, {"y": b["y"]}, 2.0)
    assert torch.equal(moved["y"], torch.tensor([[1.0]]))
    assert moved["x"] is a["x"]
    inside, outside = trees.split_prefix({"h.a": a["x"], "b": a["y"]}, "h.")
    assert (list(inside), list(outside)) == (["h.a"], ["b"])
    assert_trees_close(trees.mean_over_tasks([a, b]), {n: (a[n] + b[n]) / 2 for n in a})
    assert not trees.detach({"x": a["x"].clone().requires_grad_()})["x"].requires_grad


def test_batches_of_tasks() -> None:
    batch = problems.regression(5)
    again = stack_tasks(batch.tasks())
    assert batch.size == 5
    assert all(torch.equal(f, g) for f, g in zip(batch, again, strict=True))
    part = batch.slice(1, 3)
    assert part.size == 2
    assert torch.equal(part.task(1).x_query, batch.task(2).x_query)
    moved = batch.to(dtype=torch.float32)
    assert (moved.x_query.dtype, moved.id.dtype) == (torch.float32, torch.int64)
    assert isinstance(pickle.loads(pickle.dumps(batch)), TaskBatch)
    assert isinstance(batch.task(0), Task)


def test_did_you_mean() -> None:
    assert did_you_mean("transductve", ["transductive", "group"]) == " (did you mean 'transductive'?)"
    assert did_you_mean("xyz", ["transductive"]) == ""


# ---- inner gradients ----


def cubic(p: dict[str, Tensor]) -> Tensor:
    return (p["w"] ** 3).sum() * p["v"].sum()


@pytest.mark.parametrize("plain", [False, True], ids=["func", "plain"])
def test_inner_gradients(plain: bool) -> None:
    def find(params: dict[str, Tensor], keep: bool = True) -> dict[str, Tensor]:
        if not plain:
            return gradient(cubic, params, keep)
        with plain_autograd():
            return gradient(cubic, params, keep)

    params = {
        name: torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True) for name in ("w", "v", "idle")
    }
    outcome = find(params)
    w = torch.tensor([36.0, 9.0], dtype=torch.float64)
    assert_close(outcome["w"].detach(), w)
    assert not outcome["idle"].any()  # no influence: zeros, not nothing
    (second,) = torch.autograd.grad(outcome["w"].sum(), params["w"])
    assert_close(second, torch.tensor([36.0, 18.0], dtype=torch.float64))  # 6 w Σv
    first_only = find(params, keep=False)
    assert_close(first_only["w"], w)
    assert first_only["w"].grad_fn is None
    with torch.no_grad():
        assert find(params)["w"].grad_fn is None


def test_plain_autograd_ends_with_its_block() -> None:
    def fail() -> None:
        with plain_autograd():
            raise KeyError("plain" if is_plain() else "func")

    with pytest.raises(KeyError, match="plain"):
        fail()
    assert not is_plain()


def test_the_tolerance_table_is_strict() -> None:
    one = torch.ones(2, dtype=torch.float64)
    for wrong in (one + 1e-9, one * math.nan, one.float(), torch.ones(3, dtype=torch.float64)):
        with pytest.raises(AssertionError):
            assert_close(wrong, one)


# ---- names loaded on first use ----


def test_a_lazy_name_is_never_hidden_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shapes"
    folder.mkdir()
    lines = [
        "from innerloop.core.lazy import lazy",
        "__getattr__, _ = lazy(__name__, {'shapes.disc': 'disc'})",
    ]
    (folder / "__init__.py").write_text("\n".join(lines))
    (folder / "disc.py").write_text("def disc(): return 3.14\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("shapes.disc")  # as another module does, before anybody asks for the name
    shapes = importlib.import_module("shapes")
    assert shapes.disc() == 3.14
    assert importlib.import_module("shapes.disc").disc is shapes.disc


@pytest.mark.parametrize("package", ["innerloop", "innerloop.evaluation"])
def test_lazy_packages_give_every_name_they_list(package: str) -> None:
    module = importlib.import_module(package)
    for name in dir(module):
        getattr(module, name)
    assert "evaluate" in dir(module)
    assert callable(module.evaluate)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'evalute'"):
        _ = module.evalute


# ---- problems ----


def test_problems_are_told_together_each_once_with_their_notes() -> None:
    told = Problems()
    assert not told
    told.refuse()
    for text in ("first.", "second.\nthird.", "first."):
        with told.collect():
            error = UserError(text)
            error.add_note(f"beside {text[0]}")
            raise error
    told.add("fourth.", "second.")
    with pytest.raises(UserError) as caught:
        told.refuse()
    assert str(caught.value).splitlines() == told.lines == ["first.", "second.", "third.", "fourth."]
    assert caught.value.__notes__ == ["beside f", "beside s"]


def test_gathered_problems_are_told_in_the_words_of_whoever_tells_them() -> None:
    told = Problems()
    for text, name in (("set {clip}=10.", "clip"), ("lower {lr}, not {clap}.", "lr")):
        with told.collect():
            raise UserError(text, names=(name,))
    with pytest.raises(UserError) as caught, spelling({"clip": "outer.clip"}):
        told.refuse()
    assert str(caught.value) == "set outer.clip=10.\nlower lr, not {clap}."


def test_a_single_problem_stays_what_it_was() -> None:
    told, error = Problems(), NonFiniteError("the loss is not finite.")
    with told.collect():
        raise error
    with pytest.raises(NonFiniteError) as caught:
        told.refuse()
    assert caught.value is error


def test_a_crash_passes_unless_it_may_follow_from_a_problem() -> None:
    told = Problems()
    with pytest.raises(ZeroDivisionError), told.collect():
        _ = 1 / 0
    told.add("steps=0 is too few.")
    with pytest.raises(UserError, match="steps=0 is too few"), told.collect():
        _ = 1 / 0


def test_a_worker_that_keeps_freed_memory_gets_no_fresh_pages():
    """In a process of its own: the setting is the process's."""
    script = (
        "import resource, sys\nfrom innerloop.core.resources import keep_freed_memory\n"
        "kept = keep_freed_memory()\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    blocks = [bytearray(2**22) for _ in range(20)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "first, again = faults(), faults()\n"
        "sys.exit(kept and not again < first / 4)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("mini-protonet", ["omniglot-protonet", "mini-imagenet-protonet", "mini-imagenet-maml"], 1),
        ("cifar-protonet", ["cifar-fs-protonet-cpu", "cub-protonet", "cifar-fs-protonet"], 2),
        ("mini-imagent-maml", ["mini-imagenet-mtl", "mini-imagenet-maml-cpu", "mini-imagenet-maml"], 2),
        ("protonet-mini", ["omniglot-protonet", "mini-imagenet-protonet"], 1),
        ("imagenet", ["tiered-imagenet-anil", "mini-imagenet"], 1),
        ("sine-mam", ["sine-anil", "sine-maml", "sine-fomaml"], 1),
    ],
)
def test_suggestions_go_by_shared_words(typed: str, known: list[str], meant: int) -> None:
    assert did_you_mean(typed, known) == f" (did you mean '{known[meant]}'?)"


def test_a_name_that_the_locale_cannot_read_is_not_called_wrong() -> None:
    code = (
        "from innerloop.core.errors import fault_message\n"
        "import os\n"
        "def told(name):\n"
        "    try:\n        os.fsdecode(name).encode()\n"
        "    except UnicodeEncodeError as error:\n        print(fault_message(error))\n"
        "told(b'caf\\xc3\\xa9'); told(b'caf\\xe9')"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "utf-8"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    good, bad = shown.stdout.decode().splitlines()
    assert good.startswith("the name café cannot be read in this locale")
    assert "LC_ALL=C.UTF-8" in good
    assert bad == "the name caf\\udce9 is not UTF-8: rename it."
