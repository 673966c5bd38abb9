"""Kernels of meta-learners against loops over pairs of tasks, inverses and matrix exponentials."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.types import TaskBatch
from innerloop.kernels.analytic.networks import mlp_kernel
from innerloop.kernels.meta.descent import Descent, residual, respond, response
from innerloop.kernels.meta.kernel import (
    adaptation,
    adaptation_of,
    anil_cross_kernel,
    anil_kernel,
    anil_kernel_without_split,
    diagonal_blocks,
    from_blocks,
    maml_cross_kernel,
    maml_kernel,
    mtl_cross_kernel,
    mtl_kernel,
    stack,
)
from innerloop.testing.closeness import CHAINED, DEEP, MULTIPLIED, ROUNDED, SUMMED, assert_close
from oracles import metakernels as slow

KERNEL = mlp_kernel(3)
TIMES = [0.0, 0.05, 0.7, 5.0, math.inf]


def positive(n: int, seed: int = 0, batch: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (n, 2 * n) if batch is None else (batch, n, 2 * n)
    a = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return a @ a.mT / n


def stacked(tasks: TaskBatch) -> Tensor:
    return torch.cat([stack(tasks.x_query), stack(tasks.x_support)])


# ---- how far descent has gone ----


@pytest.mark.parametrize("time", [0.05, 0.7, 5.0, math.inf])
def test_response_is_the_inverse_times_what_has_moved(time):
    gram = positive(6)
    assert_close(response(gram, Descent(time)), slow.slow_response(gram, time))


@pytest.mark.parametrize("steps", [1, 3, 12, 200])
def test_discrete_steps_are_gradient_descent(steps):
    gram = positive(5)
    assert_close(response(gram, Descent(0.3, steps)), slow.slow_response(gram, 0.3, steps))


def test_many_steps_become_flow_and_twelve_do_not():
    gram = positive(5)
    flow = response(gram, Descent(0.3))
    off = [float((response(gram, Descent(0.3, n)) - flow).norm() / flow.norm()) for n in (12, 120, 1200)]
    assert off[0] > 1e-3
    assert off[1] == pytest.approx(off[0] / 10, rel=0.1)
    assert off[2] == pytest.approx(off[0] / 100, rel=0.1)


def test_response_of_time_zero_and_of_a_batch():
    grams = positive(4, batch=3)
    assert not response(grams, Descent(0.0)).any()
    one_by_one = torch.stack([response(g, Descent(0.4)) for g in grams])
    assert_close(response(grams, Descent(0.4)), one_by_one)


def test_small_eigenvalues_keep_their_digits():
    gram = torch.diag(torch.tensor([1e-13, 1.0], dtype=torch.float64))
    assert float(response(gram, Descent(2.0))[0, 0]) == pytest.approx(2.0, rel=ROUNDED)
    assert float(response(gram, Descent(2.0, 5))[0, 0]) == pytest.approx(2.0, rel=ROUNDED)


def test_descent_does_not_move_where_the_kernel_is_singular():
    row = torch.randn(5, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = row @ row.T  # rank one
    assert_close(response(gram, Descent()), torch.linalg.pinv(gram, hermitian=True))
    assert_close(
        gram @ response(gram, Descent(3.0)), torch.eye(5).double() - torch.linalg.matrix_exp(-3 * gram)
    )


@pytest.mark.parametrize("time", [0.4, math.inf])
def test_ridge_is_added_to_what_is_inverted_only(time):
    gram, eye = positive(5), torch.eye(5, dtype=torch.float64)
    moved = eye if math.isinf(time) else eye - torch.linalg.matrix_exp(-time * gram)
    absolute = torch.linalg.inv(gram + 0.3 * eye) @ moved
    assert_close(response(gram, Descent(time, ridge=0.3)), absolute)
    relative = torch.linalg.inv(gram + 0.3 * gram.diagonal().mean() * eye) @ moved
    assert_close(response(gram, Descent(time, ridge=0.3, relative=True)), relative)
    assert_close(residual(gram, Descent(time, ridge=0.3)), eye - gram @ absolute)


@pytest.mark.parametrize(
    "descent", [Descent(0.4), Descent(0.4, 7), Descent(), Descent(ridge=0.1, relative=True)]
)
def test_respond_is_response_applied(descent):
    gram, labels = positive(7), torch.ones(7, 2, dtype=torch.float64)
    assert_close(respond(gram, labels, descent), response(gram, descent) @ labels)


def test_respond_on_a_singular_kernel_takes_the_pseudo_inverse():
    half = positive(6)[:, :3]
    gram = half @ half.T
    labels = torch.ones(6, 1, dtype=torch.float64)
    expected = torch.linalg.pinv(gram, hermitian=True, rtol=ROUNDED) @ labels
    assert_close(respond(gram, labels, Descent()), expected, (DEEP, SUMMED))


@pytest.mark.parametrize(
    "bad", [Descent(-1.0), Descent(math.nan), Descent(math.inf, 5), Descent(1.0, 0), Descent(1.0, ridge=-1.0)]
)
def test_a_descent_that_cannot_be_meant_is_refused(bad):
    with pytest.raises(UserError):
        response(positive(2), bad)


# ---- kernels: one Gram and two products = a loop over pairs ----


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("method", ["maml", "anil"])
def test_split_kernels_are_eq_106_and_112(method, time):
    tasks = slow.regression_tasks(4, 3, 5)
    base = KERNEL(stacked(tasks), stacked(tasks))
    fast = (
        maml_kernel(base.ntk, 4, 3, Descent(time))
        if method == "maml"
        else anil_kernel(base.ntk, base.nngp, 4, 3, Descent(time))
    )
    looped = slow.loop_split_kernel(KERNEL, tasks, tasks, (time, time), method)
    assert_close(fast, looped, (CHAINED, MULTIPLIED))


@pytest.mark.parametrize("time", [0.0, 0.05, 0.5])
def test_kernels_without_split_are_eq_60_and_64(time):
    xs = slow.regression_tasks(4, 3, 5).x_support
    base = KERNEL(stack(xs), stack(xs))
    anil, mtl = slow.loop_without_split(KERNEL, xs, time)
    assert_close(anil_kernel_without_split(base.ntk, base.nngp, 4, Descent(time)), anil)
    assert_close(mtl_kernel(base.ntk, base.nngp, 4), mtl)


def test_without_split_is_the_split_kernel_of_a_task_with_itself():
    xs = slow.regression_tasks(3, 3, 4).x_support
    x = torch.cat([stack(xs), stack(xs)])
    base, once = KERNEL(x, x), KERNEL(stack(xs), stack(xs))
    split = anil_kernel(base.ntk, base.nngp, 3, 4, Descent(0.3))
    assert_close(
        split, anil_kernel_without_split(once.ntk, once.nngp, 3, Descent(0.3)), (CHAINED, MULTIPLIED)
    )


def test_anil_with_a_frozen_head_uses_the_bodys_kernel():
    tasks = slow.regression_tasks(3, 2, 4)
    base = KERNEL(stacked(tasks), stacked(tasks))
    frozen = anil_kernel(base.ntk, base.nngp, 3, 2, Descent(0.3), train_head=False)
    head_only = anil_kernel(base.nngp, base.nngp, 3, 2, Descent(0.3))
    assert_close(frozen + head_only, anil_kernel(base.ntk, base.nngp, 3, 2, Descent(0.3)))


def test_time_zero_leaves_the_tangent_kernel():
    tasks = slow.regression_tasks(3, 2, 4)
    base = KERNEL(stacked(tasks), stacked(tasks))
    assert_close(maml_kernel(base.ntk, 3, 2, Descent(0.0)), base.ntk[:6, :6])


@pytest.mark.parametrize("head", ["initial", "trained"])
def test_cross_kernels_are_eqs_61_and_65(head):
    train, test = slow.regression_tasks(4, 3, 5), slow.regression_tasks(3, 2, 4, seed=1)
    xs = train.x_support
    base = KERNEL(stacked(test), stack(xs))
    within = KERNEL(stacked(test), stacked(test))
    blocks = adaptation_of(within.nngp, 3, 2, Descent(0.8))
    decays = residual(diagonal_blocks(KERNEL(stack(xs), stack(xs)).nngp, 4), Descent(0.2))
    anil, mtl = slow.bridge_cross(KERNEL, test, xs, 0.2, 0.8, head)
    assert_close(anil_cross_kernel(base.ntk, base.nngp, blocks, decays, test_head=head), anil)
    assert_close(mtl_cross_kernel(base.ntk, base.nngp, blocks), mtl)


@pytest.mark.parametrize("method", ["maml", "anil"])
def test_split_cross_kernels_are_eq_107(method):
    train, test = slow.regression_tasks(4, 3, 5), slow.regression_tasks(3, 2, 4, seed=1)
    inner = "ntk" if method == "maml" else "nngp"
    base = KERNEL(stacked(test), stacked(train))
    test_blocks = adaptation_of(getattr(KERNEL(stacked(test), stacked(test)), inner), 3, 2, Descent(0.8))
    train_blocks = adaptation_of(getattr(KERNEL(stacked(train), stacked(train)), inner), 4, 3, Descent(0.2))
    looped = slow.loop_split_kernel(KERNEL, test, train, (0.8, 0.2), method)
    if method == "maml":
        fast = maml_cross_kernel(base.ntk, test_blocks, train_blocks)
    else:
        fast = anil_cross_kernel(base.ntk, base.nngp, test_blocks, train_blocks, test_head="trained")
    assert_close(fast, looped)


def test_independent_heads_share_nothing_between_tasks():
    tasks = slow.regression_tasks(3, 2, 4)
    base = KERNEL(stack(tasks.x_support), stack(tasks.x_support))
    phi = mtl_kernel(base.ntk, base.nngp, 3, heads="independent")
    assert_close(phi, from_blocks(diagonal_blocks(base.ntk, 3)))
    blocks = adaptation(torch.ones(1, 2, 4).double(), torch.eye(4).double()[None], Descent(1.0))
    rows = (
        KERNEL(tasks.x_query[0], stack(tasks.x_support)),
        KERNEL(tasks.x_support[0], stack(tasks.x_support)),
    )
    ntk, nngp = torch.cat([r.ntk for r in rows]), torch.cat([r.nngp for r in rows])
    assert not mtl_cross_kernel(ntk, nngp, blocks, heads="independent").any()
    decays = residual(diagonal_blocks(base.nngp, 3), Descent(0.2))
    assert not anil_cross_kernel(ntk, nngp, blocks, decays, heads="independent").any()
    assert anil_cross_kernel(ntk, nngp, blocks, decays, heads="independent", test_head="trained").any()


def test_kernels_are_symmetric_and_positive():
    tasks = slow.regression_tasks(5, 3, 4)
    base = KERNEL(stacked(tasks), stacked(tasks))
    for phi in (
        maml_kernel(base.ntk, 5, 3, Descent()),
        anil_kernel(base.ntk, base.nngp, 5, 3, Descent(1.0)),
        mtl_kernel(base.ntk[:15, :15], base.nngp[:15, :15], 5),
    ):
        assert_close(phi, phi.T)
        assert float(torch.linalg.eigvalsh(phi)[0]) > 0


def test_unknown_words_are_refused():
    eye = torch.eye(2)
    with pytest.raises(UserError, match="shared or independent"):
        mtl_kernel(eye, eye, 2, heads="one")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="initial or trained"):
        anil_cross_kernel(eye, eye, torch.ones(1, 1, 1), torch.ones(2, 1, 1), test_head="last")  # type: ignore[arg-type]
