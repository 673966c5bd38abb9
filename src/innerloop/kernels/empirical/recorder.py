"""Watches a network run and notes, for every parameter, in which layer it is used and what enters it."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from innerloop.core.errors import UserError
from innerloop.core.types import Params
from innerloop.kernels.empirical.factors import ConvolutionCall, Factor

CONSTANT = 2**14  # entries of a constant (a scale, a shift) up to which constants are compared entry by entry


class NotUnderstoodError(UserError):
    """The network does something that the layer-wise way cannot follow."""


class _Made(NamedTuple):
    """A result, and what it was made of: as it was then."""

    source: weakref.ref[Tensor]
    out: Callable[[], Tensor | None]
    versions: tuple[int, int]


class Shared:
    """Results by function, input and arguments, for as long as inputs live and nobody writes into them."""

    def __init__(self) -> None:
        self.made: dict[Hashable, _Made] = {}
        self.pooled: dict[int, Tensor] = {}
        self.given: dict[int, Tensor] = {}

    def once(
        self, func: Any, x: Tensor, rest: tuple[Any, ...], make: Callable[[], Tensor], keep: bool = True
    ) -> Tensor:
        """What ``make`` gives, or gave before for the same arguments."""
        key = _key((func, id(x), *rest))
        if key is None:
            return make()
        known = self.made.get(key)
        out = None if known is None or known.source() is not x else known.out()
        if known is not None and out is not None and known.versions == (x._version, out._version):
            self.given[id(out)] = out
            return out
        out = make()
        held: Callable[[], Tensor | None] = partial(_same, out) if keep else weakref.ref(out)
        self.made[key] = _Made(weakref.ref(x), held, (x._version, out._version))
        return out

    def refuse_writing(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A tensor that was given out twice must not be written into: the other holder would see it."""
        if self.given and args and id(args[0]) in self.given and _writes(func, args, kwargs):
            name = getattr(func, "__name__", "a function")
            raise NotUnderstoodError(
                f"method='layerwise' cannot follow {name}, which writes into a tensor that the network "
                "computes twice: use method='jacobian'."
            )

    def forget(self) -> None:
        """Lets go of everything, before the backward pass frees what it has used."""
        self.made.clear()
        self.pooled.clear()
        self.given.clear()


def _same(out: Tensor) -> Tensor:
    return out


def _key(values: tuple[Any, ...]) -> Hashable | None:
    """Equal for equal arguments; None if they cannot be compared cheaply."""
    named: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            if value.numel() > CONSTANT or value.requires_grad or value.device.type != "cpu":
                return None
            named.append((value.dtype, value.shape, value.detach().numpy().tobytes()))
        else:
            named.append(tuple(value) if isinstance(value, list) else value)
    return tuple(named)


def _writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    name = getattr(func, "__name__", "")
    in_place = (name.endswith("_") and not name.endswith("__")) or name in _WRITING
    asked = kwargs.get("inplace", False) or (func in _INPLACE and len(args) > 1 and args[-1] is True)
    return bool(in_place or asked)


_WRITING = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"}
# these write into their input if their last argument says so
_INPLACE = {F.relu, F.leaky_relu, F.elu, F.hardtanh, F.threshold}


class Tag(NamedTuple):
    """A tensor that is this multiple of a parameter, entry by entry (in some order)."""

    name: str
    scale: float | Tensor


Emit = Callable[[int, Factor], None]
Handler = Callable[["LayerRecorder", Any, tuple[Any, ...], dict[str, Any]], Tensor | None]


class _Anchor(torch.autograd.Function):
    """Begins a graph at a tensor that has none: its gradient is wanted, though nothing leads up to it."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, anchor: Tensor) -> Tensor:  # noqa: ARG004
        """The data themselves, now a part of the graph."""
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, None]:  # noqa: ARG004
        """Nothing: derivatives end here."""
        return None, None


class LayerRecorder(TorchFunctionMode):
    """Use as a context around a forward pass on :attr:`params`; the backward pass then emits the factors."""

    def __init__(
        self,
        params: Params,
        samples: int,
        rows: int,
        emit: Emit,
        handlers: Mapping[Any, Handler],
        faster: Mapping[Any, Handler],
        rehearsal: bool = False,
    ) -> None:
        super().__init__()
        self.handlers, self.faster = handlers, faster
        self.params = {name: p.detach() for name, p in params.items()}
        self.anchor = torch.zeros((), requires_grad=True)
        self.samples, self.rows, self.emit = samples, rows, emit
        self.left: set[str] = set()
        self.uses: Counter[str] = Counter()
        self.count = 0
        self.again = False  # whether another backward pass follows
        # tensors are held beside what is known of them, so that their ids stay theirs
        self.tags = {id(p): (p, Tag(name, 1.0)) for name, p in self.params.items()}
        self.inputs: dict[int, Tensor] = {}
        self.rectified: tuple[Tensor, Tensor, tuple[int, ...]] | None = None
        self.shared_results = Shared()
        self.waiting: list[tuple[Callable[[Tensor], None], Tensor]] | None = [] if rehearsal else None

    def watch_input(self, x: Tensor) -> Tensor:
        """A copy that is recognised as the network's input."""
        x = x.detach()
        self.inputs[id(x)] = x
        return x

    def tag(self, value: Any) -> Tag | None:
        """What is known of a parameter or of what was made of it."""
        return self.tags[id(value)][1] if id(value) in self.tags else None

    def is_data(self, value: Any) -> bool:
        """Whether a tensor depends on the samples."""
        return isinstance(value, Tensor) and (value.requires_grad or id(value) in self.inputs)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Is given every call of a torch function."""
        kwargs = kwargs or {}
        self.shared_results.refuse_writing(func, args, kwargs)
        tensors = _tensors((*args, *kwargs.values()))
        tags = [known for value in tensors if (known := self.tag(value)) is not None]
        depends = any(self.is_data(value) for value in tensors)
        if tags and not depends:
            return self._derive(func, args, kwargs, tags)
        out = None
        if tags:
            handler = self.handlers.get(func)
            out = handler(self, func, args, kwargs) if handler is not None else None
            if out is None:
                self.left.update(tag.name for tag in tags)
        if out is None:
            faster = self.faster.get(func)
            out = func(*args, **kwargs) if faster is None else faster(self, func, args, kwargs)
        if depends:
            self.inputs |= {id(value): value for value in _tensors((out,)) if not value.requires_grad}
        return out

    def _derive(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tags: list[Tag]) -> Any:
        """A function of parameters alone: their multiples and their shapes are followed, nothing else."""
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor):
            return out
        scale = _rescaled(func, args, kwargs, tags[0].scale, self) if len(tags) == 1 else None
        if scale is None:
            self.left.update(tag.name for tag in tags)
        else:
            self.tags[id(out)] = (out, Tag(tags[0].name, scale))
        return out

    def use(self, *tags: Tag | None) -> int:
        """Notes that these parameters are used, and numbers the layer."""
        self.uses.update(tag.name for tag in tags if tag is not None)
        self.count += 2  # a layer may emit two factors
        return self.count

    def counts(self, tag: Tag | None) -> bool:
        """Whether this use is all there is of a parameter (known only after the forward pass)."""
        return tag is not None and tag.name not in self.left and self.uses[tag.name] == 1

    def shared(self) -> set[str]:
        """Parameters to be left to Jacobians: not understood, or used more than once."""
        return self.left | {name for name, times in self.uses.items() if times > 1}

    def watch(self, out: Tensor, then: Callable[[Tensor], None]) -> Tensor:
        """``then`` is called with the derivative by ``out`` in the backward pass."""
        if not out.requires_grad:
            out = _Anchor.apply(out, self.anchor)
        if self.waiting is None:
            out.register_hook(then)
        else:
            self.waiting.append((then, out.detach()))
        return out

    def take(self, held: list[Tensor]) -> Tensor:
        """What a hook holds, which lets it go in the last backward pass."""
        return held[0] if self.again else held.pop()

    def rehearse(self) -> None:
        """Emits factors of the right shapes without a backward pass: outputs stand for their derivatives."""
        for then, out in self.waiting or ():
            then(out)

    def forget(self) -> None:
        """Lets go of tensors: their graph has hooks that hold the recorder, and such circles live on."""
        self.rectified = self.waiting = None
        self.shared_results.forget()
        self.inputs.clear()
        self.tags.clear()

    def emit_vector(self, number: int, tag: Tag, grads: Tensor) -> None:
        """Finished gradients ``(rows · samples, parameters)`` by a multiple of a parameter."""
        scale = tag.scale.reshape(1, -1) if isinstance(tag.scale, Tensor) else tag.scale
        gradients = grads.reshape(self.samples, -1) * scale
        self.emit(number, Factor(None, gradients.unflatten(0, (self.rows, -1))))

    def emit_layer(
        self,
        number: int,
        weight: Tag | None,
        bias: Tag | None,
        conv: ConvolutionCall | None,
        x: Tensor,
        g: Tensor,
    ) -> None:
        """A layer's inputs and derivatives, of which inputs are the same for every row."""
        multiples = [
            float(tag.scale) if tag is not None and self.counts(tag) else None for tag in (weight, bias)
        ]
        if multiples == [None, None]:
            return
        n = self.samples // self.rows
        inputs, grads = x[:n].detach(), g.unflatten(0, (self.rows, n))
        if conv is None:
            inputs, grads = inputs.reshape(n, -1, x.shape[-1]), grads.reshape(self.rows, n, -1, g.shape[-1])
        weight_scale, bias_scale = multiples
        if bias_scale is not None and (conv is not None or grads.shape[2] > 1 or weight_scale is None):
            summed = grads.flatten(3).sum(3) if conv is not None else grads.sum(2)
            self.emit(number + 1, Factor(None, summed * bias_scale))
            bias_scale = None
        if weight_scale is not None:
            self.emit(number, Factor(inputs, grads, conv, weight_scale, bias_scale))


def _tensors(values: tuple[Any, ...]) -> list[Tensor]:
    tensors = [value for value in values if isinstance(value, Tensor)]
    for value in values:
        if isinstance(value, (tuple, list)):
            tensors += [part for part in value if isinstance(part, Tensor)]
    return tensors


_MOVING = "reshape flatten unsqueeze squeeze t transpose permute"
_SHAPES = {
    *(getattr(torch, name) for name in _MOVING.split()),
    *(getattr(torch.Tensor, name) for name in (*_MOVING.split(), "view", "contiguous", "__getitem__")),
    torch.Tensor.T.__get__,  # type: ignore[attr-defined]
    torch.Tensor.mT.__get__,  # type: ignore[attr-defined]
}


def _only_new_axes(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or part == slice(None) for part in parts)


MUL = {torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__}
DIV = {torch.div, torch.Tensor.div, torch.Tensor.__truediv__}


def _rescaled(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scale: float | Tensor, recorder: LayerRecorder
) -> float | Tensor | None:
    """The multiple after ``func``; None if the result is no multiple of the parameter."""
    source = args[0]
    if func in _SHAPES and recorder.tag(source) is not None:
        if func is torch.Tensor.__getitem__ and not _only_new_axes(args[1]):
            return None
        return func(scale, *args[1:], **kwargs) if isinstance(scale, Tensor) else scale
    if func not in MUL | DIV or kwargs or len(args) != 2:
        return None
    source, other = args if recorder.tag(args[0]) is not None else (args[1], args[0])
    if func in DIV:
        if other is args[0]:
            return None
        other = 1 / other
    if isinstance(other, (int, float)):
        return scale * other
    if not isinstance(other, Tensor):
        return None
    if other.numel() == 1:
        return scale * float(other) if other.ndim <= source.ndim else None
    fits = torch.broadcast_shapes(other.shape, source.shape) == source.shape
    return (torch.ones_like(source) * other) * scale if fits else None
