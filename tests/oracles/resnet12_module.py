"""ResNet-12 once more, as torch modules: nothing shared with ours but the names of its parts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Three 3×3 convolutions beside a 1×1 one, each with batch norm; leaky ReLU; halved by max-pooling."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1),
            nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.1),
            nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.side = nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.end = nn.Sequential(nn.LeakyReLU(0.1), nn.MaxPool2d(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.body(x) + self.side(x))


class ResNet12(nn.Module):
    """Blocks, global average pooling, and a linear layer."""

    def __init__(self, channels: int, widths: Sequence[int], outputs: int) -> None:
        super().__init__()
        sizes = [channels, *widths]
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in itertools.pairwise(sizes)))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.fc = nn.Linear(sizes[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.blocks(x)))


def our_name(name: str) -> str:
    """Our name of a tensor of the module: ``blocks.2.body.3.weight`` is ``block2.conv1.weight``."""
    if name.startswith("fc."):
        return name.replace("fc", "head")
    _, block, part, place, leaf = name.split(".")
    i, is_norm = divmod(int(place), 3) if part == "body" else (0, int(place))
    ours = f"block{block}." + (f"conv{i}" if part == "body" else "shortcut") + (".norm" if is_norm else "")
    return f"{ours}.{leaf.replace('running_', '')}"


def with_weights(module: ResNet12, tensors: Mapping[str, Tensor]) -> ResNet12:
    """The module with our parameters (and our running statistics, where ours have them)."""
    state = module.state_dict()
    given = {name: tensors.get(our_name(name), value) for name, value in state.items()}
    dtype = next(iter(tensors.values())).dtype
    module = module.to(dtype)
    module.load_state_dict({n: v if n.endswith("tracked") else v.to(dtype) for n, v in given.items()})
    return module


def named(module: ResNet12, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """One tensor per parameter of the module, under our names."""
    return {our_name(n): t for (n, _), t in zip(module.named_parameters(), tensors, strict=True)}


def statistics(module: ResNet12) -> dict[str, Tensor]:
    """The module's running statistics, under our names."""
    buffers = dict(module.named_buffers())
    return {our_name(n): b.clone() for n, b in buffers.items() if "running" in n}


def eager_step(module: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """The gradient of the mean cross-entropy, the way a script would take it."""
    loss = nn.functional.cross_entropy(module(x), y)
    return list(torch.autograd.grad(loss, list(module.parameters())))
