"""Networks of cells as plain torch modules, layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def norm_layer(kind: str, channels: int) -> nn.Module:
    if kind == "group":
        return nn.GroupNorm(min(16, channels), channels)
    return nn.BatchNorm2d(channels)


class Factorised(nn.Module):
    """Half of the channels from even pixels, half from odd ones."""

    def __init__(self, n_in: int, n_out: int, kind: str) -> None:
        super().__init__()
        self.even = nn.Conv2d(n_in, n_out // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(n_in, n_out - n_out // 2, 1, stride=2, bias=False)
        self.norm = norm_layer(kind, n_out)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x)
        n, c, h, w = x.shape
        larger = x.new_zeros(n, c, h + 1, w + 1)
        larger[:, :, :h, :w] = x
        return self.norm(torch.cat([self.even(x), self.odd(larger[:, :, 1:, 1:])], dim=1))


def separable(c: int, stride: int, dilation: int, kind: str) -> list[nn.Module]:
    return [
        nn.ReLU(),
        nn.Conv2d(c, c, 3, stride, padding=dilation, dilation=dilation, groups=c, bias=False),
        nn.Conv2d(c, c, 1, bias=False),
        norm_layer(kind, c),
    ]


def operator(name: str, c: int, stride: int, kind: str, dense: bool = False) -> nn.Module:
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else Factorised(c, c, kind)
    if name == "sep_conv_3x3":
        return nn.Sequential(*separable(c, stride, 1, kind), *separable(c, 1, 1, kind))
    if name == "dil_conv_3x3":
        return nn.Sequential(*separable(c, stride, 2, kind))
    if name == "avg_pool_3x3":
        return nn.Sequential(nn.AvgPool2d(3, stride, 1, count_include_pad=False), norm_layer(kind, c))
    if name == "max_pool_3x3":
        return nn.Sequential(nn.MaxPool2d(3, stride, 1), norm_layer(kind, c))
    if name == "conv_1x5_5x1":
        return nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(c, c, (1, 5), stride, (0, 2), bias=False),
            nn.Conv2d(c, c, (5, 1), 1, (2, 0), bias=False),
            norm_layer(kind, c),
        )
    assert name == "conv_3x3"
    if dense:
        return nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, stride, 1, bias=False), norm_layer(kind, c))
    return nn.Sequential(*separable(c, stride, 1, kind))


def pointwise(n_in: int, n_out: int, kind: str) -> nn.Module:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(n_in, n_out, 1, bias=False), norm_layer(kind, n_out))


class Cell(nn.Module):
    """``edges``: for every node a list of (source, operators that are summed)."""

    def __init__(
        self,
        edges: list[list[tuple[int, list[str]]]],
        n_before: int,
        n_last: int,
        c: int,
        reduced_before: bool,
        reduces: bool,
        kind: str,
        dense: bool,
    ) -> None:
        super().__init__()
        self.edges = edges
        self.input0 = Factorised(n_before, c, kind) if reduced_before else pointwise(n_before, c, kind)
        self.input1 = pointwise(n_last, c, kind)
        self.operators = nn.ModuleList()
        for node in edges:
            for source, names in node:
                stride = 2 if reduces and source < 2 else 1
                self.operators.extend(operator(name, c, stride, kind, dense) for name in names)

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        values = [self.input0(before), self.input1(last)]
        place = 0
        for node in self.edges:
            total: Tensor | float = 0.0
            for source, names in node:
                for _ in names:
                    total = total + self.operators[place](values[source])
                    place += 1
            values.append(total)
        return torch.cat(values[2:], dim=1)


class CellModule(nn.Module):
    """``normal`` and ``reduce``: see :class:`Cell`."""

    def __init__(
        self,
        pictures: int,
        outputs: int,
        normal: list[list[tuple[int, list[str]]]],
        reduce: list[list[tuple[int, list[str]]]],
        cells: int,
        c: int,
        kind: str = "batch",
        dense: bool = False,
        final_norm: bool = False,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(pictures, c, 3, padding=1, bias=False), norm_layer(kind, c))
        n_before = n_last = c
        reduced = False
        self.cells = nn.ModuleList()
        for i in range(cells):
            reduces = i in (cells // 3, 2 * cells // 3)
            if reduces:
                c *= 2
            edges = reduce if reduces else normal
            self.cells.append(Cell(edges, n_before, n_last, c, reduced, reduces, kind, dense))
            n_before, n_last, reduced = n_last, 3 * c, reduces
        self.final = nn.Sequential(norm_layer(kind, n_last), nn.ReLU()) if final_norm else nn.Identity()
        self.head = nn.Linear(n_last, outputs)

    def forward(self, x: Tensor) -> Tensor:
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(self.final(last).mean((2, 3)))
