"""Networks of cells as torch modules, and their kernels and regions in the manner of the released codes.

Per-sample gradients come from Opacus where it can be imported, which may be from a folder of its own:
``pip install --no-deps --target DIR opacus opt_einsum`` and then ``PYTHONPATH=DIR innerloop bench search``.
Elsewhere they are taken as Opacus takes them, by hooks that lay out patches (see :class:`Patches`).
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from innerloop.core.types import Params
from innerloop.nets.cells.genotype import EDGES, INPUTS, NODES
from innerloop.nets.cells.operators import CellPlan, Conv, Halve, Norm, Piece, Pool, StackPlan, Step
from innerloop.nets.norms import groups_for


def convolution(weight: Tensor, groups: int = 1, **options: Any) -> nn.Conv2d:
    """A layer without bias that has this weight."""
    outputs, inputs, high, wide = weight.shape
    made = nn.Conv2d(inputs * groups, outputs, (high, wide), groups=groups, bias=False, **options)
    made.weight.data.copy_(weight)
    return made


class Halved(nn.Module):
    """Half of the channels from even places, half from odd ones."""

    def __init__(self, even: Tensor | None, odd: Tensor) -> None:
        super().__init__()
        self.even = None if even is None else convolution(even, stride=2)
        self.odd = convolution(odd, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Both side by side."""
        odd = self.odd(F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:])
        return odd if self.even is None else torch.cat([self.even(x), odd], 1)


def norm(channels: int, group: bool) -> nn.Module:
    """Of groups, or of the batch's own statistics."""
    if group:
        return nn.GroupNorm(groups_for(channels), channels)
    return nn.BatchNorm2d(channels, track_running_stats=False)


def layer(step: Step, piece: Piece, params: Params, group: bool) -> nn.Module:
    """One step of an operator, with the weights that ``params`` have for it."""
    match step:
        case Conv():
            weight = params[f"{piece.name}.{step.name}.weight"]
            padding = tuple(step.dilation * (side // 2) for side in step.kernel)
            options = {"stride": step.stride, "padding": padding, "dilation": step.dilation}
            return convolution(weight, len(weight) if step.depthwise else 1, **options)
        case Halve():
            name = f"{piece.name}.{step.name}"
            even = params[f"{name}.even.weight"] if piece.n_out > 1 else None
            return Halved(even, params[f"{name}.odd.weight"])
        case Pool("avg"):
            return nn.AvgPool2d(3, step.stride, 1, count_include_pad=False)
        case Pool():
            return nn.MaxPool2d(3, step.stride, 1)
        case Norm():
            return norm(piece.n_out, group)
    return nn.ReLU()


def operator(piece: Piece, params: Params, group: bool) -> nn.Module:
    """The steps of one operator."""
    return nn.Sequential(*(layer(step, piece, params, group) for step in piece.steps))


class Cell(nn.Module):
    """One cell: every operator of every edge is run, and a node is the sum."""

    def __init__(self, plan: CellPlan, params: Params, group: bool) -> None:
        super().__init__()
        self.before = nn.ModuleList([operator(piece, params, group) for piece in plan.before])
        edges = ([operator(piece, params, group) for piece in edge] for edge in plan.edges)
        self.edges = nn.ModuleList([nn.ModuleList(edge) for edge in edges])

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """The nodes side by side."""
        values = [self.before[0](before), self.before[1](last)]
        for node in range(INPUTS, INPUTS + NODES):
            total: Tensor | float = 0.0
            for (source, into), operators in zip(EDGES, self.edges, strict=True):
                if into == node:
                    for one in operators.children():
                        total = total + one(values[source])
            values.append(total)
        return torch.cat(values[INPUTS:], 1)


class CellModule(nn.Module):
    """The network of a plan with the weights of ``params``; its end has a norm layer and a ReLU."""

    def __init__(self, plan: StackPlan, params: Params, group: bool = True) -> None:
        super().__init__()
        self.stem = None if plan.stem is None else operator(plan.stem, params, group)
        self.cells = nn.ModuleList([Cell(cell, params, group) for cell in plan.cells])
        self.final = nn.Sequential(norm(plan.n_out, group), nn.ReLU())
        self.head = nn.Linear(plan.n_out, len(params["head.weight"]))
        self.head.weight.data.copy_(params["head.weight"])
        self.head.bias.data.copy_(params["head.bias"])

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, one row per sample."""
        before = last = x if self.stem is None else self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(self.final(last).mean((2, 3)))


def has_opacus() -> bool:
    """Whether Opacus can be imported here."""
    spec = find_spec("opacus")
    return spec is not None and spec.origin is not None  # a folder of that name is not it


class Patches:
    """Per-sample gradients by hooks, patches and einsum, as in Opacus; none of norm layers, in no kernel."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.seen: dict[nn.Module, Tensor] = {}
        for layer in module.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                layer.register_forward_hook(self._note)
                layer.register_full_backward_hook(self._gradient)

    def __call__(self, x: Tensor) -> Tensor:
        """The module's outputs."""
        return self.module(x)

    def _note(self, layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:  # noqa: ARG002
        self.seen[layer] = inputs[0].detach()

    def _gradient(self, layer: Any, _: Any, outputs: tuple[Tensor, ...]) -> None:
        x, d = self.seen.pop(layer), outputs[0] * len(outputs[0])
        if isinstance(layer, nn.Linear):
            layer.weight.grad_sample = torch.einsum("no,np->nop", d, x)  # type: ignore[attr-defined]
            return
        n, groups = len(x), layer.groups
        places = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        places = places.reshape(n, groups, -1, places.shape[-1])
        d = d.reshape(n, groups, -1, places.shape[-1])
        by_sample = torch.einsum("ngot,ngpt->ngop", d, places)
        layer.weight.grad_sample = by_sample.reshape(n, *layer.weight.shape)


def released_kernel(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Θ of the sum of the outputs from per-sample gradients of all weights, layer by layer."""
    wrapped: Any = import_module("opacus").GradSampleModule if has_opacus() else Patches
    wrapped = wrapped(module)
    layers = [layer for layer in module.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]

    def kernel(x: Tensor) -> Tensor:
        module.zero_grad()
        (wrapped(x).sum() / len(x)).backward()
        total = x.new_zeros(len(x), len(x))
        for layer in layers:
            rows = getattr(layer.weight, "grad_sample").flatten(1)  # noqa: B009
            total += torch.einsum("nc,mc->nm", rows, rows).detach()
        for p in module.parameters():
            p.grad_sample = None  # type: ignore[attr-defined]
        return total

    return kernel


def released_regions(
    module: nn.Module, batches: tuple[Tensor, ...], precision: torch.dtype = torch.float32
) -> float:
    """Every input counts one over how many share its pattern, by a matrix of pairs."""
    # the released code multiplies in half precision, which is made for other processors than a CPU: float32
    # counts the same and is the faster peer here
    seen: list[Tensor] = []
    relus = [layer for layer in module.modules() if isinstance(layer, nn.ReLU)]
    hooks = [layer.register_forward_hook(lambda _, __, out: seen.append(out.detach())) for layer in relus]
    rows = []
    with torch.no_grad():
        for x in batches:
            seen.clear()
            module(x)
            rows.append(torch.cat([each.view(len(x), -1) for each in seen], 1).sign())
    for hook in hooks:
        hook.remove()
    signs = torch.cat(rows)
    differ = signs.to(precision) @ (1 - signs).T.to(precision)
    differ += differ.T.clone()
    same = (1 - differ.sign()).float().sum(1)
    return float((1 / same).sum().round())  # thousands of reciprocals do not add up exactly
