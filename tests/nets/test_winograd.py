"""Winograd's convolutions are convolutions, to every order, however the work is cut up."""

import pytest
import torch
import torch.nn.functional as F

from innerloop.core.autodiff import plain_autograd
from innerloop.nets.ops import choice as ops
from innerloop.nets.ops import winograd
from innerloop.testing.closeness import SINGLE, assert_close

SHAPES = [
    ((2, 3, 4, 4), 5),
    ((1, 2, 8, 12), 3),
    ((3, 4, 7, 9), 2),
    ((2, 1, 1, 1), 1),
    ((2, 2, 3, 21), 4),
]


def problem(shape, outputs, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=draw, dtype=torch.float64)
    w = torch.randn(outputs, shape[1], 3, 3, generator=draw, dtype=torch.float64)
    g = torch.randn(shape[0], outputs, *shape[2:], generator=draw, dtype=torch.float64)
    return x.to(dtype).requires_grad_(), w.to(dtype).requires_grad_(), g.to(dtype)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("limit", [1, 3000, 2**22])
@pytest.mark.parametrize(("shape", "outputs"), SHAPES)
def test_equals_direct_convolution_and_its_gradients(monkeypatch, shape, outputs, limit, memory):
    monkeypatch.setattr(winograd, "BUFFER_BYTES", limit)
    x, w, g = problem(shape, outputs)
    inputs = x.detach().contiguous(memory_format=memory).requires_grad_()
    direct, ours = F.conv2d(x, w, padding=1), winograd.conv3x3(inputs, w)
    assert_close(ours.detach(), direct.detach())
    expected = torch.autograd.grad(direct, (x, w), g)
    for got, want in zip(torch.autograd.grad(ours, (inputs, w), g), expected, strict=True):
        assert_close(got, want)


def test_second_derivatives():
    x, w, _ = problem((2, 2, 5, 4), 3)
    assert torch.autograd.gradgradcheck(winograd.conv3x3, (x, w))


def test_work_is_cut_up_at_the_limits(monkeypatch):
    """Otherwise the test above would compare one cut with itself."""
    x, w, _ = problem((3, 4, 7, 9), 2)
    counts = []
    for limit in (1, 2**22):
        monkeypatch.setattr(winograd, "BUFFER_BYTES", limit)
        counts.append([len(part) for part in winograd._parts(x, w)])
    assert counts == [[3, 2], [1, 1]]


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads):
    """Parts are cut otherwise, so that sums may be rounded otherwise, and that is all."""
    x, w, g = problem((5, 4, 7, 9), 4)
    results = []
    for n in (1, threads):
        torch.set_num_threads(n)
        y = winograd.conv3x3(x, w)
        results.append([y.detach(), *torch.autograd.grad(y, (x, w), g)])
    for got, want in zip(*results, strict=True):
        assert_close(got, want)


def test_float32_loses_two_digits_at_most():
    """On ResNet-12's widest layer: error of Winograd's and of direct sums, both against float64."""
    x, w, g = problem((32, 640, 4, 4), 640)
    y = F.conv2d(x, w, padding=1)
    expected = [y.detach(), *torch.autograd.grad(y, (x, w), g)]
    errors = {}
    single = [t.detach().float().requires_grad_() for t in (x, w)]
    for name, conv in {"ours": winograd.conv3x3, "direct": lambda a, b: F.conv2d(a, b, padding=1)}.items():
        y = conv(*single)
        gradient = [y.detach(), *torch.autograd.grad(y, single, g.float())]
        errors[name] = [
            float((a.double() - b).norm() / b.norm()) for a, b in zip(gradient, expected, strict=True)
        ]
    if torch.backends.mkl.is_available():  # a plain BLAS adds all terms of a product one after the other
        assert all(ours < 5 * SINGLE for ours in errors["ours"]), errors
    assert all(ours < 100 * direct for ours, direct in zip(*errors.values(), strict=True)), errors


def spied(monkeypatch):
    calls = []
    monkeypatch.setattr(ops, "conv3x3", lambda x, w: calls.append(1) or winograd.conv3x3(x, w))
    return calls


def test_is_used_exactly_where_it_is_right_and_pays(monkeypatch):
    calls = spied(monkeypatch)
    x, w = torch.zeros(32, 64, 4, 4), torch.zeros(64, 64, 3, 3)
    ops.conv2d(x, w)
    assert not calls  # perhaps under torch.func
    with plain_autograd():
        ops.conv2d(x, w)
        assert len(calls) == 1
        ops.conv2d(x, w, stride=2)
        ops.conv2d(x, w[..., :1, :1])
        ops.conv2d(x[:, :32], w[:, :32])
        ops.conv2d(x[:31], w)
        assert len(calls) == 1


@pytest.mark.bfloat16
def test_is_not_used_in_bfloat16(monkeypatch):
    calls = spied(monkeypatch)
    with plain_autograd(), torch.autocast("cpu", torch.bfloat16):
        ops.conv2d(torch.zeros(32, 64, 4, 4), torch.zeros(64, 64, 3, 3))
    assert not calls
