"""Features as a careful user's script computes them: torch modules, batches of 32, Pillow."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop_studies.bench.onnx_peers import load

BATCH = 32


class SameConv(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow pads."""

    def forward(self, x: Tensor) -> Tensor:
        """The map padded, then convolved."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        pads: list[int] = []
        for side in (x.shape[3], x.shape[2]):
            missing = max((-(-side // stride) - 1) * stride + kernel - side, 0)
            pads += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(x, pads) if any(pads) else x)


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and batch norm."""
    layer = SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs, eps=1e-3))


class Bottleneck(nn.Module):
    """Widen, convolve channel by channel, narrow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = nn.Identity() if expansion == 1 else nn.Sequential(conv(inputs, inner), nn.ReLU6(True))
        self.depthwise = nn.Sequential(conv(inner, inner, kernel, stride, inner), nn.ReLU6(True))
        self.project = conv(inner, outputs)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """The block."""
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class LiteModule(nn.Module):
    """EfficientNet-Lite0 once more, as torch modules."""

    def __init__(self, outputs: int = 1000) -> None:
        super().__init__()
        stages = (
            *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80)),
            *((3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
        )
        self.stem = nn.Sequential(conv(3, 32, 3, 2), nn.ReLU6(True))
        blocks: list[nn.Module] = []
        before = 32
        for repeats, kernel, stride, expansion, channels in stages:
            for i in range(repeats):
                blocks.append(Bottleneck(before, channels, kernel, stride if i == 0 else 1, expansion))
                before = channels
        self.blocks = nn.Sequential(*blocks)
        self.top = nn.Sequential(conv(before, 1280), nn.ReLU6(True), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(1280, outputs)

    def embed(self, x: Tensor) -> Tensor:
        """Features ``(n, 1280)``."""
        return self.top(self.blocks(self.stem(x)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.embed(x))


def with_weights(tensors: Mapping[str, Tensor]) -> LiteModule:
    """The module with the parameters and statistics of our network, whose order is that of its layers."""
    module = LiteModule(tensors["head.weight"].shape[0]).to(tensors["head.weight"].dtype)
    kinds = {"norm.mean": "running_mean", "norm.var": "running_var"}
    ours: dict[str, list[Tensor]] = {}
    for name, value in tensors.items():
        leaf = next((kinds[end] for end in kinds if name.endswith(end)), "parameter")
        ours.setdefault(leaf, []).append(value)
    theirs: dict[str, list[Tensor]] = {"parameter": list(module.parameters())}
    for name, buffer in module.named_buffers():
        theirs.setdefault(name.rpartition(".")[2], []).append(buffer)
    with torch.no_grad():
        for leaf, values in ours.items():
            for mine, given in zip(theirs[leaf], values, strict=True):
                mine.copy_(given)
    return module.eval()


def script(tensors: Mapping[str, Tensor], files: Sequence[Path]) -> Callable[[], np.ndarray[Any, Any]]:
    """A function that computes the features of all files."""
    module = with_weights(tensors)

    def call() -> np.ndarray[Any, Any]:
        parts = []
        with torch.inference_mode():
            for start in range(0, len(files), BATCH):
                batch = np.stack([load(file) for file in files[start : start + BATCH]])
                parts.append(module.embed(torch.from_numpy(batch)).numpy())
        return np.concatenate(parts)

    return call
