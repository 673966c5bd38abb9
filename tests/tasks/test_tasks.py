"""Tasks: addressable, disjoint between splits, and distributed as the papers say."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.importing import Trusted, load_object
from innerloop.core.types import TaskBatch
from innerloop.nets.factory import backbone
from innerloop.tasks import FAMILIES, Sampler, get_family, make_sampler
from innerloop.tasks.sampler import task_order
from innerloop.testing.closeness import CHAINED, DEEP, assert_close, assert_mean

MANY = 3000


def sampler(family: str = "sine", **options: Any) -> Sampler:
    defaults: dict[str, Any] = {"seed": 0, "shots": 4, "queries": 6, "dtype": torch.float64}
    return make_sampler(get_family(family), **{**defaults, **options})


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(f, g) for f, g in zip(a, b, strict=True))


def first(family: str, shots: int = 4, queries: int = 6, **settings: Any) -> TaskBatch:
    """Many tasks of a family, in float64."""
    batch = sampler(family, shots=shots, queries=queries, settings=settings).episodes(range(MANY))
    assert isinstance(batch, TaskBatch)
    return batch


# ---- episodes are pure functions ----

VARIANTS = {
    **{name: {"family": name} for name in FAMILIES},
    "noisy": {"family": "mixed-linear", "noise": 0.3},
    "finite": {"family": "sine", "n_tasks": 7},
    "kept": {"family": "sine", "n_tasks": 7, "resample": False, "noise": 0.1},
    "chosen": {"family": "linear", "settings": {"covariances": [[1, 2], [3, 4]], "optima": [[1, 0], [0, 1]]}},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", VARIANTS)
def test_an_episode_never_changes(name: str, dtype: torch.dtype) -> None:
    tasks, again = (sampler(**VARIANTS[name], dtype=dtype) for _ in range(2))
    alone = {i: tasks.episode(i) for i in (0, 1, 5, 17, 123456789)}
    together = again.episodes([17, 0, 123456789, 5, 1])
    for place, i in enumerate((17, 0, 123456789, 5, 1)):
        assert same(together.task(place), alone[i])
    for size in (1, 3, 6, 18):
        assert same(again.batch(17 // size, size).task(17 % size), alone[17])
    assert all(f.dtype == (dtype if f.is_floating_point() else torch.int64) for f in alone[0])


@pytest.mark.parametrize("name", FAMILIES)
def test_other_episodes_seeds_and_splits_are_other_tasks(name: str) -> None:
    def fingerprint(tasks: Sampler) -> set[tuple[float, ...]]:
        return {tuple(t.y_query.flatten().tolist()) for t in tasks.episodes(range(50)).tasks()}

    streams = [
        fingerprint(sampler(name, seed=seed, split=split))
        for seed in (0, 1)
        for split in ("train", "validation", "test", "other")
    ]
    assert all(len(stream) == 50 for stream in streams)
    assert len(set.union(*streams)) == 50 * len(streams)


@pytest.mark.parametrize("name", FAMILIES)
def test_support_and_query_are_different_samples(name: str) -> None:
    batch = sampler(name, shots=5, queries=5).episodes(range(5))
    assert isinstance(batch, TaskBatch)
    assert not (batch.x_support == batch.x_query).any()


def test_the_size_of_a_set_does_not_move_its_samples() -> None:
    few, many = sampler(shots=3, queries=4).episode(2), sampler(shots=9, queries=11).episode(2)
    assert torch.equal(few.x_support, many.x_support[:3])
    assert torch.equal(few.y_query, many.y_query[:4])


# ---- a finite number of tasks ----


def test_every_pass_visits_every_task_once_in_a_new_order() -> None:
    tasks = sampler(n_tasks=9)
    passes = [tuple(tasks.episodes(range(9 * k, 9 * k + 9)).id.tolist()) for k in range(20)]
    assert all(sorted(p) == list(range(9)) for p in passes)
    assert len(set(passes)) == 20
    assert tasks.n_tasks == 9
    firsts = np.bincount([p[0] for p in passes], minlength=9)
    assert firsts.max() < 10  # no task is always the first


def test_orders_can_be_asked_for_in_any_order() -> None:
    whole = task_order(3, 11, np.arange(500))
    scattered = np.random.default_rng(0).permutation(500)
    assert (task_order(3, 11, scattered) == whole[scattered]).all()


@pytest.mark.parametrize("resample", [True, False])
def test_samples_are_redrawn_or_kept(resample: bool) -> None:
    tasks = sampler(n_tasks=4, resample=resample, noise=0.1)
    visits: dict[int, list[Any]] = {}
    for i in range(12):
        visits.setdefault(int(tasks.episode(i).id), []).append(tasks.episode(i))
    assert len(visits) == 4
    for one, two, three in visits.values():
        assert same(one, two) == same(one, three) == (not resample)


def test_redrawn_samples_belong_to_the_same_task() -> None:
    tasks = sampler("linear", n_tasks=3, shots=30, settings={"dim": 5})
    optima: dict[int, list[Tensor]] = {}
    for i in range(9):
        task = tasks.episode(i)
        optima.setdefault(int(task.id), []).append(
            torch.linalg.lstsq(task.x_support, task.y_support).solution
        )
    for one, two, three in optima.values():
        assert_close(two, one)
        assert_close(three, one)
    assert not torch.allclose(optima[0][0], optima[1][0])


# ---- noise ----


def test_noise_has_its_standard_deviation_and_leaves_the_rest() -> None:
    quiet = sampler(shots=4, queries=6).episodes(range(MANY))
    noisy = sampler(shots=4, queries=6, noise=0.7).episodes(range(MANY))
    assert isinstance(quiet, TaskBatch)
    assert isinstance(noisy, TaskBatch)
    assert torch.equal(quiet.x_query, noisy.x_query)
    for clean, disturbed in ((quiet.y_support, noisy.y_support), (quiet.y_query, noisy.y_query)):
        z = disturbed - clean
        assert_mean(z, 0.0)
        assert_mean(z.square(), 0.49)
    across = (noisy.y_support - quiet.y_support)[:, :4] * (noisy.y_query - quiet.y_query)[:, :4]
    assert_mean(across, 0.0)


# ---- the families ----


def check_uniform(sample: Tensor, low: float, high: float) -> None:
    assert low < float(sample.min())
    assert float(sample.max()) < high
    assert_mean(sample, (low + high) / 2)
    assert_mean((sample - (low + high) / 2).square(), (high - low) ** 2 / 12)


def check_normal(sample: Tensor, mean: float, std: float) -> None:
    assert_mean(sample, mean)
    assert_mean((sample - mean).square(), std**2)
    assert_mean((sample - mean) ** 4, 3 * std**4)


@pytest.mark.parametrize(
    ("name", "sign", "low", "high"), [("sine", -1, 0.1, 5.0), ("adaptlr-sine", 1, 0.0, math.pi)]
)
def test_sinusoids(name: str, sign: int, low: float, high: float) -> None:
    batch = first(name, shots=2)
    check_uniform(batch.x_query, -5, 5)
    # two points of a sin(x ± b) = p sin x + q cos x give its amplitude and phase back
    x, y = batch.x_support, batch.y_support
    well = (x[:, 0] - x[:, 1]).squeeze().sin().abs() > 0.1
    basis = torch.cat([x.sin(), x.cos()], -1)[well]
    p, q = torch.linalg.solve(basis, y[well]).squeeze(-1).T
    amplitude, phase = (p.square() + q.square()).sqrt(), torch.atan2(sign * q, p)
    check_uniform(amplitude, low - 1e-6, high + 1e-6)
    check_uniform(phase, -1e-6, math.pi + 1e-6)
    a, b = (v.reshape(-1, 1, 1) for v in (amplitude, phase))
    assert_close(batch.y_query[well], a * torch.sin(batch.x_query[well] + sign * b), (DEEP, DEEP))


def test_bridges_quadratics() -> None:
    batch = first("bridge-quadratic", shots=40, dim=3)
    # y = ν‖x − μ‖² is linear in (‖x‖², x, 1): its coefficients are ν, −2νμ and ν‖μ‖²
    x = batch.x_support
    basis = torch.cat([x.square().sum(-1, keepdim=True), x, torch.ones_like(x[..., :1])], -1)
    solution = torch.linalg.lstsq(basis, batch.y_support).solution.squeeze(-1)
    nu, mu = solution[:, :1], -solution[:, 1:4] / (2 * solution[:, :1])
    check_uniform(nu, 1.3 - 1e-9, 1.6 + 1e-9)
    check_normal(mu, 0, 1)
    check_normal((batch.x_query - mu.unsqueeze(1)) / nu.unsqueeze(1), 0, 1)
    distance = (batch.x_query - mu.unsqueeze(1)).square().sum(-1, keepdim=True)
    assert_close(batch.y_query, nu.unsqueeze(1) * distance, (DEEP, DEEP))


def test_bridges_inputs_on_the_sphere_keep_their_targets() -> None:
    plain, scaled = (first("bridge-quadratic", scale=scale) for scale in ("none", "sphere"))
    assert torch.equal(plain.y_query, scaled.y_query)
    assert_close(scaled.x_query.norm(dim=-1), torch.full((MANY, 6), math.sqrt(10), dtype=torch.float64))
    cosine = torch.nn.functional.cosine_similarity(plain.x_query, scaled.x_query, dim=-1)
    assert_close(cosine, torch.ones_like(cosine))


def test_bernacchias_quadratics() -> None:
    batch = first("bernacchia-quadratic", dim=2, sigma=0.6, nu=0.5, mean=0.4)
    check_normal(batch.x_query, 0, 1)
    # given x: the mean of y is E(xᵀw + b)² = ν²‖x‖²/p + (w₀ᵀx)² + σ²
    x = batch.x_query[:, 0]
    expected = 0.25 / 2 * x.square().sum(-1) + (0.4 * x.sum(-1)).square() + 0.36
    assert_mean(batch.y_query[:, 0, 0] - expected, 0.0)
    quiet = first("bernacchia-quadratic", dim=1, sigma=0.0, nu=0.5, mean=0.4)  # b = 0, no noise: y = w²x²
    w = (quiet.y_query / quiet.x_query.square())[:, 0, 0]
    assert_mean(w, 0.25 + 0.16)
    assert_close(
        quiet.y_support / quiet.x_support.square(), w.reshape(-1, 1, 1).expand(-1, 4, 1), (DEEP, DEEP)
    )


def test_mixed_linear() -> None:
    batch = first("mixed-linear", shots=9, dim=3, sigma=0.0, nu=0.6, mean=0.5)
    w = torch.linalg.lstsq(batch.x_support, batch.y_support).solution
    check_normal(w, 0.5, 0.6 / math.sqrt(3))
    check_normal(batch.x_query, 0, 1)
    noisy = first("mixed-linear", shots=9, dim=3, sigma=0.3, nu=0.6, mean=0.5)
    check_normal(noisy.y_query - noisy.x_query @ w, 0, 0.3)


def test_linear_geography() -> None:
    settings = {
        "dim": 3,
        "rho_hard": 0.02,
        "rho_easy": 1.5,
        "R": 2.0,
        "r_hard": 0.3,
        "r_easy": 0.7,
        "hard_share": 0.25,
    }
    batch = first("linear", shots=9, **settings)
    w = torch.linalg.lstsq(batch.x_support, batch.y_support).solution.squeeze(-1)
    size = batch.x_query.square().mean((1, 2))
    hard = size < 0.2  # variances 0.02 and 1.5 over 18 numbers: far apart
    assert_mean(hard.double(), 0.25)
    check_normal(w[hard], 2.0, math.sqrt(0.3))
    check_normal(w[~hard], 0.0, math.sqrt(0.7))
    for which, rho in ((hard, 0.02), (~hard, 1.5)):
        assert abs(float(batch.x_query[which].square().mean()) / rho - 1) < 0.1
    assert_close(batch.y_query, batch.x_query @ w.unsqueeze(-1), (DEEP, DEEP))


def test_linear_tasks_have_all_digits_of_float64() -> None:
    # the same draws under two variances differ by exactly the ratio of their roots
    one, two = (first("linear", dim=2, hard_share=1.0, rho_hard=rho) for rho in (0.1, 0.7))
    assert_close(two.x_query, math.sqrt(7) * one.x_query)
    one, two = (first("linear", dim=2, hard_share=1.0, r_hard=r, R=0.0) for r in (0.1, 0.7))
    assert_close(two.y_query, math.sqrt(7) * one.y_query)


def test_linear_with_chosen_covariances_and_optima() -> None:
    full = [[2.0, 0.6], [0.6, 0.5]]
    batch = first("linear", covariances=[full, [0.3, 1.2]], optima=[[1.0, 2.0], [-1.0, 0.5]], weights=[3, 1])
    w = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    exact = [(batch.y_query - batch.x_query @ row.reshape(2, 1)).abs().amax((1, 2)) < CHAINED for row in w]
    assert bool((exact[0] ^ exact[1]).all())
    assert_mean(exact[0].double(), 0.75)
    for which, covariance in (
        (exact[0], torch.tensor(full)),
        (exact[1], torch.diag(torch.tensor([0.3, 1.2]))),
    ):
        x = batch.x_query[which].reshape(-1, 2)
        for i in range(2):
            for j in range(2):
                assert_mean(x[:, i] * x[:, j], float(covariance[i, j]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"covariances": [[1.0]]}, "together, or neither"),
        ({"covariances": [[1.0]], "optima": [[1.0], [2.0]]}, "1 covariances but 2 optima"),
        ({"covariances": [[1.0]], "optima": [[1.0]], "weights": [-1.0]}, "non-negative"),
        (
            {"covariances": [[1.0]], "optima": [[1.0]], "weights": [1.0, 1.0]},
            "one non-negative number per task",
        ),
        ({"covariances": [[-1.0]], "optima": [[1.0]]}, "no negative eigenvalue"),
        ({"covariances": [[[1.0, 0.9], [0.0, 1.0]]], "optima": [[1.0, 1.0]]}, "must be symmetric"),
        ({"covariances": [[1.0, 1.0]], "optima": [[1.0, 1.0, 1.0]]}, "need one dimension"),
        ({"covariances": [[1.0], [1.0, 1.0]], "optima": [[1.0], [1.0, 1.0]]}, "need one dimension"),
    ],
)
def test_impossible_linear_tasks_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        first("linear", **settings)


# ---- a family of one's own ----

OWN = """
import torch
from innerloop.core.types import TaskBatch

def constants(draws, shots, queries, spread=1.0):
    c = draws.normal("c", (1, 1), std=spread)
    xs, xq = (draws.uniform(n, (k, 1), per="sample") for n, k in (("s", shots), ("q", queries)))
    return TaskBatch(xs, c.expand_as(xs), xq, c.expand_as(xq), torch.from_numpy(draws.task.copy()))
"""


def test_a_family_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    family = get_family(Trusted("my_own_tasks:constants"))
    tasks = make_sampler(family, seed=0, shots=2, queries=3, settings={"spread": 2.0}, dtype=torch.float64)
    batch = tasks.episodes(range(MANY))
    assert isinstance(batch, TaskBatch)
    check_normal(batch.y_query[:, 0], 0, 2)
    assert same(tasks.episode(7), batch.task(7))
    assert tasks.name == "constants"
    with pytest.raises(UserError, match="has no 'constant'"):
        get_family(Trusted("my_own_tasks:constant"))


def test_errors_inside_a_family_of_ones_own_are_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tasks.py").write_text("import a_package_that_does_not_exist\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_does_not_exist"):
        load_object(Trusted("broken_tasks:family"))
    with pytest.raises(UserError, match=r"no module 'nowhere_at_all'.*PYTHONPATH=FOLDER"):
        load_object(Trusted("nowhere_at_all:family"))


@pytest.mark.parametrize(
    "load", [get_family, lambda path: backbone(path, 1, 28, 5)], ids=["family", "network"]
)
def test_a_module_in_the_current_folder_is_refused_with_the_fix(
    load: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machines_of_mine.py").write_text("raise RuntimeError('nothing is imported')\n")
    (tmp_path / "package_of_mine").mkdir()
    monkeypatch.chdir(tmp_path)
    for path in (Trusted("machines_of_mine:machines"), Trusted("package_of_mine.tasks:machines")):
        with pytest.raises(UserError, match=r"lies in the current folder: put PYTHONPATH=\. before"):
            load(path)


@pytest.mark.parametrize("path", ["math:", ":sqrt", ".math:sqrt", "math.:sqrt", "a file.py:sqrt", "math:sqr"])
def test_names_that_name_nothing_are_refused(path: str) -> None:
    with pytest.raises(UserError, match=r"write package\.module:function|did you mean 'sqrt'"):
        load_object(Trusted(path))


def test_an_error_of_the_module_itself_is_not_taken_for_a_missing_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slip_of_mine.py").write_text("import math\nmath.sqroot(2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="sqroot"):
        load_object(Trusted("slip_of_mine:family"))


def test_unknown_families_and_settings_are_refused_with_a_hint() -> None:
    with pytest.raises(UserError, match="did you mean 'sine'"):
        get_family("sin")
    with pytest.raises(UserError) as error:
        sampler(settings={"amplitud": [0, 1], "zebra": 1})
    assert "settings.amplitud is not a setting of this family (did you mean 'amplitude'?)" in str(error.value)
    assert "settings.zebra" in str(error.value)
    assert "it takes amplitude, phase, x_range" in str(error.value)
