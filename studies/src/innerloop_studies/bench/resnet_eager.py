"""The peer of ``bench resnet``: ResNet-12 as modules, ``backward`` and an optimiser, in eager float32."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.types import Params
from innerloop.nets.resnet12 import SLOPE

CLASSES = 64
Step = Callable[[], Params]
"""Takes one training step and returns the gradient that it used."""


class Layer(nn.Conv2d):
    """Convolution and batch norm, under our names."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised."""
        return self.norm(F.conv2d(x, self.weight, padding=self.weight.shape[-1] // 2))


class Block(nn.Module):
    """As everybody writes it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv0, self.conv1 = Layer(inputs, outputs, 3), Layer(outputs, outputs, 3)
        self.conv2, self.shortcut = Layer(outputs, outputs, 3), Layer(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Halves the map."""
        y = F.leaky_relu(self.conv0(x), SLOPE)
        y = self.conv2(F.leaky_relu(self.conv1(y), SLOPE)) + self.shortcut(x)
        return F.max_pool2d(F.leaky_relu(y, SLOPE), 2)


class ResNet12(nn.Module):
    """The peer."""

    def __init__(self, widths: Sequence[int], channels: int = 3, classes: int = CLASSES) -> None:
        super().__init__()
        for i, (inputs, outputs) in enumerate(itertools.pairwise([channels, *widths])):
            self.add_module(f"block{i}", Block(inputs, outputs))
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        *blocks, head = self.children()
        for block in blocks:
            x = block(x)
        return head(x.mean((2, 3)))


def sgd(params: Sequence[Tensor]) -> torch.optim.Optimizer:
    """RFS's optimiser; the rate is zero, so that every step computes the same."""
    return torch.optim.SGD(params, lr=0.0, momentum=0.9, weight_decay=5e-4)


def eager(params: Params, x: Tensor, y: Tensor, widths: Sequence[int], channels_last: bool) -> Step:
    """Modules, ``backward`` and the same optimiser."""
    model = ResNet12(widths)
    model.load_state_dict(params, strict=False)  # running statistics start alike anyway
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    optimiser = sgd(list(model.parameters()))

    def step() -> Params:
        """One training step."""
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    return step
