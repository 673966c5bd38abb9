"""Strided 1×1 convolutions with few channels, whose backward of torch's own writes past its memory."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from innerloop.core.autodiff import plain_autograd
from innerloop.nets.ops import choice as ops
from innerloop.testing.closeness import assert_close

TRAINED = """
import torch
from innerloop.core.autodiff import plain_autograd
from innerloop.nets.convolutional import convnet

net = convnet(3, 28, 5, depth=3, width=4, kernel=1, pooling="stride")
params, buffers = net.init(torch.Generator().manual_seed(0))
params = {name: value.requires_grad_() for name, value in params.items()}
with plain_autograd():
    for _ in range(200):
        outputs = net.head(params, net.features(params, buffers, torch.randn(5, 3, 28, 28), "batch")[0])
        torch.autograd.grad(outputs.square().sum(), list(params.values()))
print("alive")
"""


@pytest.mark.parametrize(("channels", "filters"), [(1, 4), (3, 4), (7, 9), (8, 8), (16, 32)])
@pytest.mark.parametrize("plain", [True, False])
def test_gradients_are_those_of_the_picked_places(channels: int, filters: int, plain: bool) -> None:
    g = torch.Generator().manual_seed(0)
    for side in (7, 8):
        x = torch.randn(3, channels, side, side, generator=g, dtype=torch.float64).requires_grad_()
        weight = torch.randn(filters, channels, 1, 1, generator=g, dtype=torch.float64).requires_grad_()
        known = F.conv2d(x[:, :, ::2, ::2], weight)
        expected = torch.autograd.grad(known.square().sum(), (x, weight))
        if plain:
            with plain_autograd():
                convolved = ops.conv2d(ops.layout(x), weight, 2)
        else:
            convolved = ops.conv2d(x, weight, 2)
        assert_close(convolved.detach(), known.detach())
        for one, other in zip(
            torch.autograd.grad(convolved.square().sum(), (x, weight)), expected, strict=True
        ):
            assert_close(one, other)


@pytest.mark.slow
def test_networks_of_single_pixels_that_stride_keep_to_their_memory() -> None:
    """In a process of its own: what is written past the memory ends it (``double free or corruption``)."""
    done = subprocess.run([sys.executable, "-P", "-c", TRAINED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-300:]
