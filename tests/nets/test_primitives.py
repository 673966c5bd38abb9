"""Layers from primitives: right under vmap, differentiated twice, in every execution mode."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, vmap

from innerloop.core.autodiff import plain_autograd
from innerloop.nets.ops import choice as ops
from innerloop.nets.ops import fused, patches, reference
from innerloop.testing.closeness import CHAINED, DEEP, MULTIPLIED

EPS = 1e-5


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- batch norm under vmap, twice: the trap -------------------------------------------------------------


def builtin(x, scale, shift):
    return F.batch_norm(x, None, None, scale, shift, training=True, eps=EPS)


def ours(x, scale, shift):
    return reference.batch_norm(x, scale, shift, EPS)[0]


def loss(norm, params, x):
    return norm(x @ params["weight"], params["scale"], params["shift"]).pow(3).mean()


def by_vmap(norm, params, tasks):
    """The meta-gradient of one MAML step, as ``grad(mean ∘ vmap)``."""

    def adapted(p, x):
        g = grad(lambda q: loss(norm, q, x))(p)
        return loss(norm, {k: v - 0.1 * g[k] for k, v in p.items()}, x)

    return grad(lambda p: vmap(lambda x: adapted(p, x))(tasks).mean())(params)


def by_loop(norm, params, tasks):
    """The same by plain autograd, task by task: what a textbook would do."""
    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    total = 0.0
    for x in tasks:
        grads = torch.autograd.grad(loss(norm, leaves, x), list(leaves.values()), create_graph=True)
        after = {k: v - 0.1 * g for (k, v), g in zip(leaves.items(), grads, strict=True)}
        total = total + loss(norm, after, x) / len(tasks)
    return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))


@pytest.fixture
def problem():
    params = {"weight": randn(4, 3, seed=1), "scale": 1 + 0.1 * randn(3, seed=2), "shift": randn(3, seed=3)}
    return params, randn(5, 7, 4, seed=4)


def test_batch_norm_is_right_under_vmap_and_twice_differentiated(problem):
    expected = by_loop(builtin, *problem)
    torch.testing.assert_close(by_loop(ours, *problem), expected, rtol=CHAINED, atol=MULTIPLIED)
    torch.testing.assert_close(by_vmap(ours, *problem), expected, rtol=CHAINED, atol=MULTIPLIED)


def test_the_trap_is_still_there(problem):
    """F.batch_norm under the same transforms is wrong. If this fails, torch has mended it: rejoice."""
    expected, got = by_loop(builtin, *problem)["weight"], by_vmap(builtin, *problem)["weight"]
    assert (got - expected).norm() > 0.1 * expected.norm()


# --- values against torch's own layers -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (5, 4, 3), (3, 4, 5, 2)])
def test_batch_norm_equals_torchs(shape):
    x, scale, shift = randn(*shape) + 3, randn(4, seed=1), randn(4, seed=2)
    y, mean, var = reference.batch_norm(x, scale, shift, EPS)
    torch.testing.assert_close(
        y, F.batch_norm(x, None, None, scale, shift, True, eps=EPS), rtol=CHAINED, atol=MULTIPLIED
    )
    torch.testing.assert_close(
        reference.normalise(x, mean, var, scale, shift, EPS), y, rtol=CHAINED, atol=MULTIPLIED
    )
    stored = F.batch_norm(x, mean, var, scale, shift, False, eps=EPS)
    torch.testing.assert_close(
        reference.normalise(x, mean, var, scale, shift, EPS), stored, rtol=CHAINED, atol=MULTIPLIED
    )


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_equals_torchs(groups):
    x, scale, shift = randn(3, 6, 4, 5), randn(6, seed=1), randn(6, seed=2)
    expected = F.group_norm(x, groups, scale, shift, EPS)
    for way in (reference, ops):
        torch.testing.assert_close(
            way.group_norm(x, groups, scale, shift, EPS), expected, rtol=CHAINED, atol=MULTIPLIED
        )


def test_large_means_lose_no_digits_in_float32():
    x = randn(64, 3) + 1e3
    y = reference.batch_norm(x.float(), torch.ones(3), torch.zeros(3), EPS)[0]
    exact = reference.batch_norm(
        x.float().double(), *(t.double() for t in (torch.ones(3), torch.zeros(3))), EPS
    )
    torch.testing.assert_close(y.double(), exact[0], rtol=0, atol=1e-3)


# --- the fused block: conv, batch norm, relu --------------------------------------------------------------

# n, c, h, w, filters, kernel, stride, padding
GEOMETRIES = [
    (5, 1, 9, 9, 4, 3, 2, 1),  # few channels: patches by a strided copy
    (3, 8, 6, 7, 5, 3, 2, 1),  # patches by embedding_bag; picture not square
    (4, 9, 5, 5, 3, 3, 1, 1),  # stride one
    (2, 8, 8, 8, 4, 2, 2, 0),  # no padding, even kernel
]


def tensors(geometry, seed=0):
    n, c, h, w, o, k, _, _ = geometry
    x, weight = randn(n, c, h, w, seed=seed), 0.3 * randn(o, c, k, k, seed=seed + 1)
    scale, shift = 1 + 0.2 * randn(o, seed=seed + 2), 0.3 * randn(o, seed=seed + 3)
    return x, weight, scale, shift


def composed(x, weight, scale, shift, stride, padding):
    z = F.conv2d(x, weight, None, stride, padding)
    return F.relu(F.batch_norm(z, None, None, scale, shift, True, eps=EPS))


def derivatives(block, inputs, order):
    """The ``order``-th directional derivative of a scalar of the block's output, along random directions."""
    leaves = [t.clone().requires_grad_() for t in inputs]
    y = block(*leaves)
    value = (y * randn(*y.shape, seed=9)).sum() + y.square().sum()
    for k in range(order):
        last = k == order - 1
        grads = torch.autograd.grad(value, leaves, create_graph=not last)
        if not last:
            value = sum(
                ((g * randn(*g.shape, seed=20 + k)).sum() + g.square().sum() for g in grads), start=0.0
            )
    return grads


@pytest.fixture(params=["patches", "onednn"])
def by(request, monkeypatch):
    """Both ways of convolving; the sizes here would always choose patches."""
    patches.convolution.cache_clear()
    if request.param == "onednn":
        monkeypatch.setattr(patches, "PATCH_LIMIT", 0)
    yield request.param
    patches.convolution.cache_clear()


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_fused_block_has_the_right_derivatives(geometry, order, by):
    stride, padding = geometry[-2:]

    def block(x, weight, scale, shift):
        return fused.conv_norm_relu(x, weight, scale, shift, EPS, stride, padding)[0]

    inputs = tensors(geometry)
    expected = derivatives(functools.partial(composed, stride=stride, padding=padding), inputs, order)
    for got, want in zip(derivatives(block, inputs, order), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=DEEP, atol=DEEP * want.abs().max().item())


def test_fused_block_passes_gradgradcheck():
    """Against finite differences, which know nothing of our formulas."""
    x, weight, scale, shift = (t.requires_grad_() for t in tensors((3, 2, 4, 4, 2, 3, 2, 1)))

    def block(*args):
        return fused.conv_norm_relu(*args, EPS, 2, 1)[0]

    assert torch.autograd.gradcheck(block, (x, weight, scale, shift))
    assert torch.autograd.gradgradcheck(block, (x, weight, scale, shift))


def test_fused_statistics_are_the_batchs_and_include_the_bias(by):
    x, weight, scale, shift = tensors(GEOMETRIES[1])
    bias = randn(5, seed=8)
    z = F.conv2d(x, weight, bias, 2, 1)
    with plain_autograd():
        y, mean, var = ops.conv_norm_relu(x, weight, bias, scale, shift, EPS, 2, 1)
    torch.testing.assert_close(mean, z.mean((0, 2, 3)), rtol=CHAINED, atol=MULTIPLIED)
    torch.testing.assert_close(var, z.var((0, 2, 3), correction=0), rtol=CHAINED, atol=MULTIPLIED)
    torch.testing.assert_close(y, composed(x, weight, scale, shift, 2, 1), rtol=CHAINED, atol=MULTIPLIED)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_any_memory_layout_gives_the_same_values(layout, by):
    x, weight, scale, shift = tensors(GEOMETRIES[1])
    expected = composed(x, weight, scale, shift, 2, 1)
    x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
    y = fused.conv_norm_relu(x, weight, scale, shift, EPS, 2, 1)[0]
    torch.testing.assert_close(y, expected, rtol=CHAINED, atol=MULTIPLIED)


def test_fused_and_composed_blocks_agree_through_maml_steps():
    """conv_norm_relu: fused in plain mode, composed under torch.func.grad and vmap; one meta-gradient."""
    params = {"w0": 0.4 * randn(8, 1, 3, 3), "w1": 0.2 * randn(8, 8, 3, 3, seed=1), "v": randn(8, seed=2)}
    one, zero = torch.ones(8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
    tasks = randn(3, 4, 1, 8, 8, seed=5)

    def error(p, x):
        for name in ("w0", "w1"):
            x, _, _ = ops.conv_norm_relu(x, p[name], None, one, zero, EPS, 2, 1)
        return (x.mean((2, 3)) @ p["v"]).square().mean()

    def functional(p, x):
        for _ in range(2):
            g = grad(error)(p, x)
            p = {k: v - 0.1 * g[k] for k, v in p.items()}
        return error(p, x)

    def plain(p, x):
        with plain_autograd():
            for _ in range(2):
                g = torch.autograd.grad(error(p, x), list(p.values()), create_graph=True)
                p = {k: v - 0.1 * gi for (k, v), gi in zip(p.items(), g, strict=True)}
            return error(p, x)

    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    total = torch.stack([plain(leaves, x) for x in tasks]).mean()
    expected = torch.autograd.grad(total, list(leaves.values()))
    got = grad(lambda p: vmap(lambda x: functional(p, x))(tasks).mean())(params)
    for want, name in zip(expected, params, strict=True):
        torch.testing.assert_close(got[name], want, rtol=CHAINED, atol=MULTIPLIED)


def test_first_order_builds_no_second_order_graph():
    x, weight, scale, shift = (t.requires_grad_() for t in tensors(GEOMETRIES[1]))
    y = fused.conv_norm_relu(x, weight, scale, shift, EPS, 2, 1)[0]
    (g,) = torch.autograd.grad(y.sum(), weight)
    assert g.grad_fn is None


def test_large_convolutions_do_not_lay_out_patches():
    assert patches.Geometry(75, 64, 14, 14, 64, 3, 2, 1).patch_size > patches.PATCH_LIMIT
    assert patches.Geometry(5, 64, 14, 14, 64, 3, 2, 1).patch_size <= patches.PATCH_LIMIT
