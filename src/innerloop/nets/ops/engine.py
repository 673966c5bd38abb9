r"""Features of a whole convolutional network as one differentiable operation, by native code.

With :math:`f(\theta)` the features, :math:`J` their Jacobian and :math:`g` a cotangent, an inner step needs
:math:`f` and :math:`J^\top g`; second-order meta-learning needs the derivative of the latter too. In the
backward pass of the outer loss a direction :math:`v` arrives at :math:`J^\top g`. It goes on to :math:`g` as
:math:`Jv` and to :math:`\theta` as :math:`\mathrm{D}_v(J^\top g)`; through :math:`g` a cotangent :math:`c`
comes back to :math:`f` and goes on to :math:`\theta` as :math:`J^\top c`. The two terms in :math:`\theta` are
one pass: the first waits for the second. ``engine.cpp`` has these passes. Third derivatives are left to
autograd.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

Tensors = Sequence[Tensor | None]
NORMS = {"none": 0, "batch": 1, "given": 2, "group": 3}
WAITING = 8
"""Gradients of one pass that may wait at once; what comes after them is differentiated by autograd."""
Slow = Callable[..., tuple[Tensor, ...]]
"""``(x, *given, *params) -> (features, *seen)`` by torch's layers."""


class Blocks(NamedTuple):
    """So many times convolution, normalisation, ReLU and perhaps 2×2 max pooling."""

    depth: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: int
    stride: int
    pool: bool
    norm: str
    groups: int
    eps: float

    def pixels(self, depth: int) -> tuple[int, int]:
        """Pixels of a map after so many blocks, before pooling and after it.

        >>> Blocks(4, 1, 28, 28, 64, 3, 2, False, "batch", 1, 1e-5).pixels(4)
        (4, 4)
        """
        h, w, pixels = self.height, self.width, self.height * self.width
        for _ in range(depth):
            h, w = ((s + self.kernel // 2 * 2 - self.kernel) // self.stride + 1 for s in (h, w))
            pixels = h * w
            h, w = (h // 2, w // 2) if self.pool else (h, w)
        return pixels, h * w

    @property
    def outputs(self) -> int:
        """How many features a picture has."""
        return self.filters * self.pixels(self.depth)[1]


class _Network(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in Blocks._fields[:-1]] + [("eps", ctypes.c_double)]


class Engine:
    """The compiled library."""

    def __init__(self, file: Path) -> None:
        self.library = ctypes.CDLL(str(file))
        self.calls = 0
        for kind in ("float32", "float64"):
            for name in ("forward", "backward", "tangent", "descend"):
                getattr(self.library, f"{name}_{kind}").restype = ctypes.c_void_p
            getattr(self.library, f"dense_tape_{kind}").restype = ctypes.c_int64

    def call(self, name: str, dtype: torch.dtype, *arguments: Any) -> int | None:
        """Calls a function of the library; tensors are given by their addresses."""
        self.calls += 1
        answer: int | None = self._function(name, dtype)(*map(_as_c, arguments))
        return answer

    def memory(self, kind: str, dtype: torch.dtype, address: int | None) -> _Memory:
        """What a pass keeps, until nobody holds it."""
        return _Memory(ctypes.c_void_p(address), self._function(f"give_{kind}", dtype))

    def _function(self, name: str, dtype: torch.dtype) -> Any:
        return getattr(self.library, f"{name}_{str(dtype).removeprefix('torch.')}")


_ENGINE: list[Engine] = []


def use(file: Path) -> None:
    """Loads the compiled library for this process."""
    if not _ENGINE:
        _ENGINE.append(Engine(file))


def engine() -> Engine:
    """The library that this process uses."""
    return _ENGINE[0]


def calls() -> int:
    """How often this process has called it."""
    return sum(one.calls for one in _ENGINE)


class _Memory:
    def __init__(self, address: ctypes.c_void_p, give: Callable[[ctypes.c_void_p], None]) -> None:
        self.address = address
        weakref.finalize(self, give, address)


def _as_c(value: Any) -> Any:
    if isinstance(value, Blocks):
        return ctypes.byref(_Network(*value._replace(norm=NORMS[value.norm])))  # type: ignore[arg-type]
    if isinstance(value, _Memory):
        return value.address
    if isinstance(value, Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if isinstance(value, list):
        addresses = [None if each is None else each.data_ptr() for each in value]
        return (ctypes.c_void_p * len(value))(*addresses) if value else None
    return value


class _Pass:
    """A forward pass, as those who differentiate it see it."""

    def __init__(self, engine: Engine, blocks: Blocks, slow: Slow, x: Tensor, n_given: int) -> None:
        self.engine, self.blocks, self.slow, self.n_given = engine, blocks, slow, n_given
        self.pictures = x.contiguous()
        self.waiting: list[tuple[_Memory, _Memory] | None] = []

    def forward(self, rest: Tensors) -> tuple[Tensor, list[Tensor]]:
        """Features, and means and variances of the batch."""
        x, blocks = self.pictures, self.blocks
        held = [None if t is None else t.contiguous() for t in rest]
        given, params = held[: self.n_given], held[self.n_given :]
        out = x.new_empty(len(x), blocks.outputs)
        seen = [x.new_empty(blocks.filters) for _ in range(2 * blocks.depth * (blocks.norm == "batch"))]
        n = ctypes.c_int64(len(x))
        tape = self.engine.call("forward", x.dtype, blocks, n, x, params, given, out, seen)
        self.tape = self.engine.memory("tape", x.dtype, tape)
        for i, bias in enumerate(params[1::4]):
            if seen and bias is not None:
                seen[2 * i] += bias
        return out, seen

    def backward(
        self,
        to_out: Tensor,
        to_seen: Tensors,
        rest: Tensors,
        wanted: Sequence[bool],
        keep: bool,
    ) -> tuple[list[Tensor | None], _Memory | None]:
        """The gradient in the pictures and all else, and what its own derivative needs."""
        x = self.pictures
        to_x = torch.empty_like(x) if wanted[0] else None
        grads = [
            None if t is None or not w else torch.empty_like(t) for t, w in zip(rest, wanted[1:], strict=True)
        ]
        to_given, to_params = grads[: self.n_given], grads[self.n_given :]
        of_seen = [None if t is None else t.contiguous() for t in to_seen]
        some = of_seen if any(t is not None for t in of_seen) else []
        state = self.engine.call(
            "backward",
            x.dtype,
            self.tape,
            to_out.contiguous(),
            some,
            to_x,
            to_params,
            to_given,
            ctypes.c_int32(keep),
        )
        if some:
            for grad, of_mean in zip(to_params[1::4], of_seen[::2], strict=True):
                if grad is not None and of_mean is not None:
                    grad += of_mean  # the batch's mean moves with the bias
        memory = self.engine.memory("cotangents", x.dtype, state) if keep else None
        return [to_x, *grads], memory

    def tangent(self, direction: Tensors) -> tuple[Tensor, _Memory]:
        """The derivative of the features along a direction in the parameters."""
        x = self.pictures
        out = x.new_empty(len(x), self.blocks.outputs)
        held = [None if v is None else v.contiguous() for v in direction]
        state = self.engine.call("tangent", x.dtype, self.tape, held, out)
        return out, self.engine.memory("tangents", x.dtype, state)

    def second(
        self,
        waiting: tuple[_Memory, _Memory],
        to_out: Tensor | None,
        rest: Tensors,
        wanted: Sequence[bool],
    ) -> list[Tensor | None]:
        """The derivative of a gradient along a direction, plus the gradient of the features."""
        params, asked = rest[self.n_given :], wanted[1 + self.n_given :]
        grads = [
            None if t is None or not w else torch.empty_like(t) for t, w in zip(params, asked, strict=True)
        ]
        to_out = None if to_out is None else to_out.contiguous()
        self.engine.call("second", self.pictures.dtype, self.tape, *waiting, to_out, grads)
        return [None] * (1 + self.n_given) + grads


def features(
    blocks: Blocks, slow: Slow, x: Tensor, given: Sequence[Tensor], params: Tensors
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The features, and mean and variance of every block where normalisation takes the batch's.

    Args:
        blocks: the network.
        slow: the same by torch's layers.
        x: pictures, ``(n, channels, height, width)``.
        given: mean and variance of every block, for ``blocks.norm="given"``.
        params: weight, bias, scale and shift of every block; None where it has none.
    """
    out, _, *seen = _Features.apply(blocks, slow, x, len(given), *given, *params)
    return out, tuple(seen)


class _Features(torch.autograd.Function):
    """``(x, given, params) -> (features, token, seen)``: the token's gradient tells which gradients wait."""

    @staticmethod
    def forward(
        ctx: Any, blocks: Blocks, slow: Slow, x: Tensor, n_given: int, *rest: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.run = _Pass(engine(), blocks, slow, x, n_given)
        out, seen = ctx.run.forward(rest)
        token = x.new_zeros(WAITING)
        ctx.save_for_backward(x, token, *rest)
        ctx.set_materialize_grads(False)
        return out, token, *seen

    @staticmethod
    def backward(
        ctx: Any, to_out: Tensor | None, to_token: Tensor | None, *to_seen: Tensor | None
    ) -> tuple[Any, ...]:
        run: _Pass = ctx.run
        x, token, *rest = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[2], *ctx.needs_input_grad[4:]]
        reached = to_out is not None or any(t is not None for t in to_seen)
        arriving = x.new_zeros(len(x), run.blocks.outputs) if to_out is None else to_out
        if torch.is_grad_enabled():  # create_graph=True
            if any(t is not None for t in to_seen):
                grads = _by_autograd(run, x, rest, wanted, arriving, to_seen)
            else:
                grads = list(_Gradient.apply(run, wanted, arriving, token, x, *rest))
        else:
            slots = [] if to_token is None else to_token.nonzero().flatten().tolist()
            alone = (
                bool(slots) and not any(t is not None for t in to_seen) and not any(wanted[: 1 + run.n_given])
            )
            parts = []
            for i, slot in enumerate(slots):
                waiting = run.waiting[slot]
                assert waiting is not None
                parts.append(
                    run.second(waiting, arriving if alone and i == 0 and reached else None, rest, wanted)
                )
                run.waiting[slot] = None
            if not alone:
                parts.append(run.backward(arriving, to_seen, rest, wanted, keep=False)[0])
            grads = [_sum(each) for each in zip(*parts, strict=True)]
        return None, None, grads[0], None, *grads[1:]


def _sum(tensors: Tensors) -> Tensor | None:
    some = [t for t in tensors if t is not None]
    return sum(some[1:], some[0]) if some else None


class _Gradient(torch.autograd.Function):
    """The gradient of :class:`_Features`: of the arriving one, the token, the pictures and all else."""

    @staticmethod
    def forward(
        ctx: Any,
        run: _Pass,
        wanted: Sequence[bool],
        arriving: Tensor,
        token: Tensor,  # noqa: ARG004 (its gradient says that this one waits)
        x: Tensor,
        *rest: Tensor | None,
    ) -> tuple[Any, ...]:
        grads, ctx.cotangents = run.backward(arriving, (), rest, wanted, keep=True)
        ctx.run, ctx.wanted, ctx.slot = run, wanted, len(run.waiting)
        run.waiting.append(None)
        ctx.save_for_backward(arriving, x, *rest)
        ctx.set_materialize_grads(False)
        return tuple(grads)

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> tuple[Any, ...]:
        run: _Pass = ctx.run
        arriving, x, *rest = ctx.saved_tensors
        data = 1 + run.n_given
        if torch.is_grad_enabled() or ctx.slot >= WAITING or any(ctx.wanted[:data]):
            grads = _second_by_autograd(run, arriving, x, rest, along, ctx.wanted)
            return None, None, grads[0], None, *grads[1:]
        to_arriving, tangents = run.tangent(along[data:])
        run.waiting[ctx.slot] = ctx.cotangents, tangents
        token = x.new_zeros(WAITING)
        token[ctx.slot] = 1
        return None, None, to_arriving, token, None, *(None for _ in rest)


def _apart(tensors: Tensors) -> list[Any]:
    """Views, which do not depend on each other."""
    return [None if t is None else t.view_as(t) for t in tensors]


def _by_autograd(
    run: _Pass,
    x: Tensor,
    rest: Tensors,
    wanted: Sequence[bool],
    arriving: Tensor,
    to_seen: Tensors,
) -> list[Tensor | None]:
    """The gradient by torch's layers, where it may be differentiated in any way."""
    inputs = _apart([x, *rest])
    outputs = run.slow(*inputs)
    pairs = [(o, g) for o, g in zip(outputs, (arriving, *to_seen), strict=False) if g is not None]
    places = [i for i, w in enumerate(wanted) if w]
    grads = torch.autograd.grad(
        [o for o, _ in pairs],
        [inputs[i] for i in places],
        [g for _, g in pairs],
        create_graph=True,
        allow_unused=True,
    )
    return [grads[places.index(i)] if i in places else None for i in range(len(inputs))]


def _second_by_autograd(
    run: _Pass,
    arriving: Tensor,
    x: Tensor,
    rest: Tensors,
    along: Tensors,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The derivative of the gradient by torch's layers."""
    with torch.enable_grad():
        arriving, x = arriving.view_as(arriving), x.view_as(x)
        inputs = [arriving, x, *_apart(rest)]
        first = _by_autograd(run, x, inputs[2:], wanted, arriving, ())
    places = [i for i, t in enumerate(inputs) if t is not None and t.requires_grad]
    pairs = [(g, v) for g, v in zip(first, along, strict=True) if g is not None and v is not None]
    grads = torch.autograd.grad(
        [g for g, _ in pairs],
        [inputs[i] for i in places],
        [v for _, v in pairs],
        create_graph=torch.is_grad_enabled(),
        allow_unused=True,
    )
    return [grads[places.index(i)] if i in places else None for i in range(len(inputs))]
