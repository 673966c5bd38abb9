"""Tangent kernels the obvious way: one gradient per sample and output, one inner product per pair."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Tree = dict[str, Tensor]


def gradients(f: Callable[[Tree, Tensor], Tensor], params: Tree, x: Tensor) -> list[list[Tensor]]:
    """``[sample][output]``, all parameters in one vector; every sample goes through the network alone."""
    found = []
    for sample in x:
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        outputs = f(leaves, sample[None])[0].reshape(-1)
        rows = [
            torch.autograd.grad(value, list(leaves.values()), retain_graph=True, materialize_grads=True)
            for value in outputs
        ]
        found.append([torch.cat([g.reshape(-1) for g in row]) for row in rows])
    return found


def ntk(f: Callable[[Tree, Tensor], Tensor], params: Tree, x1: Tensor, x2: Tensor) -> Tensor:
    """Every pair of samples and outputs, ``(n, m, k, k)``."""
    left, right = gradients(f, params, x1), gradients(f, params, x2)
    k = len(left[0])
    theta = torch.zeros(len(x1), len(x2), k, k, dtype=x1.dtype)
    for i, rows in enumerate(left):
        for j, columns in enumerate(right):
            for a in range(k):
                for b in range(k):
                    theta[i, j, a, b] = rows[a] @ columns[b]
    return theta


def reduced(theta: Tensor, output: str) -> Tensor:
    """What the three modes make of it."""
    if output == "sum":
        return theta.sum((2, 3))
    return theta.diagonal(dim1=2, dim2=3).mean(2) if output == "trace" else theta


class Branching(nn.Module):
    """Branches, depthwise and dilated convolutions, three normalisations, products of parameters and data in
    several spellings, a weight used twice and one used in a way that no layer is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, stride=2)
        self.side = nn.Conv2d(2, 4, 1, stride=2)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=4, bias=False)
        self.layer_norm = nn.LayerNorm([4, 4, 4])
        self.group_norm = nn.GroupNorm(2, 4)
        self.batch_norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.tokens = nn.Linear(16, 6)
        self.twice = nn.Linear(6, 6)
        self.product = nn.Parameter(torch.randn(4, 5))
        self.shift = nn.Parameter(torch.randn(5))
        self.temperature = nn.Parameter(torch.tensor(1.3))
        self.odd = nn.Parameter(torch.randn(4, 4))
        self.unused = nn.Parameter(torch.randn(3))
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.group_norm(self.first(x))) + self.layer_norm(self.side(x))
        y = self.batch_norm(y) + self.depthwise(y)
        t = torch.tanh(self.twice(torch.tanh(self.twice(self.tokens(y.flatten(2))))))
        t = (t @ t.mT).sum(2)
        z = y.mean((2, 3)) @ self.product + self.shift * 0.7
        q = torch.einsum("nc,dc->nd", t, self.odd) * self.temperature
        return self.out(torch.tanh(z) + nn.functional.pad(q, (0, 1)))


NOT_LAYERS = {"twice.weight", "twice.bias", "odd", "unused"}
