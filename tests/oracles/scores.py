"""Scores the slow way: hooks on modules, matrices of pairs, block by block, gradients in lists."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from innerloop.core.types import TaskBatch


class Residual(nn.Module):
    """ReLUs in three spellings around a residual connection, with group normalisation."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.GroupNorm(1, width)
        self.second = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.relus = nn.ModuleList([nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU()])
        self.out = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relus[0](self.norm(self.first(x)))
        y = y + self.relus[1](self.second(y))
        return self.out(self.relus[2](y - y.mean()).mean((2, 3)))


def hooked_patterns(module: nn.Module, x: Tensor) -> Tensor:
    """Signs of what every ``nn.ReLU`` gives, ``(samples, units)``, seen by hooks as in TE-NAS."""
    seen: list[Tensor] = []
    hooks = [
        layer.register_forward_hook(lambda _, __, out: seen.append(torch.sign(out.detach()).flatten(1)))
        for layer in module.modules()
        if isinstance(layer, nn.ReLU)
    ]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    return torch.cat(seen, 1)


def gram_regions(signs: Tensor) -> float:
    """Linear regions in the released manner: every input counts one over how many share its pattern."""
    differ = signs @ (1 - signs).T
    same = 1 - torch.sign(differ + differ.T)
    return float((1 / same.sum(1)).sum())


def pair_agreement(signs: Tensor) -> Tensor:
    """How many units agree, pair by pair."""
    n = len(signs)
    return torch.tensor([[int((signs[i] == signs[j]).sum()) for j in range(n)] for i in range(n)]).double()


def block_metantk(ntk: Tensor, inner: Tensor, tasks: TaskBatch, time: float, ridge: float) -> Tensor:
    """MetaNTK's kernel with inverses and matrix exponentials; Grams over all queries, then all supports."""
    n, q, s = tasks.size, tasks.x_query.shape[1], tasks.x_support.shape[1]
    query = [slice(i * q, (i + 1) * q) for i in range(n)]
    support = [slice(n * q + i * s, n * q + (i + 1) * s) for i in range(n)]
    eye = torch.eye(s, dtype=ntk.dtype)
    hats = []
    for a, b in zip(query, support, strict=True):
        left = torch.zeros_like(eye) if math.isinf(time) else torch.linalg.matrix_exp(-time * inner[b, b])
        hats.append(inner[a, b] @ torch.linalg.inv(inner[b, b] + ridge * eye) @ (eye - left))
    rows = []
    for i in range(n):
        row = []
        for j in range(n):
            block = ntk[query[i], query[j]] - hats[i] @ ntk[support[i], query[j]]
            block = block - ntk[query[i], support[j]] @ hats[j].T
            row.append(block + hats[i] @ ntk[support[i], support[j]] @ hats[j].T)
        rows.append(torch.cat(row, 1))
    return torch.cat(rows)


def module_gradients(module: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Gradients of the cross-entropy by the weights of convolutions and linear layers."""
    module.zero_grad()
    nn.functional.cross_entropy(module(x), y).backward()
    layers = (nn.Conv2d, nn.Linear)
    found = {n: m.weight.grad for n, m in module.named_modules() if isinstance(m, layers)}
    return {name: grad.clone() for name, grad in found.items()}


def listed_zico(gradients: list[dict[str, Tensor]]) -> float:
    """ZiCo from the gradients of all batches side by side."""
    total = 0.0
    for name in gradients[0]:
        g = torch.stack([each[name].flatten() for each in gradients]).double()
        deviation = g.std(0, unbiased=False)
        ratio = g.abs().mean(0)[deviation > 0] / deviation[deviation > 0]
        total += math.log(float(ratio.sum())) if float(ratio.sum()) > 0 else 0.0
    return total
