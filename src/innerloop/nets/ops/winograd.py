r"""3×3 convolutions with a quarter of the multiplications (Winograd's; Lavin and Gray 2016).

An output tile of 4×4 needs an input tile of 6×6. With the matrices below, which evaluate and interpolate
polynomials at 0, ±1, ±2 and ∞, and a product that is element by element over the 36 places of a tile,

.. math:: Y = A^\top\Big[\sum_c (G\,W_c\,G^\top)\odot(B^\top X_c\,B)\Big]A,

36 multiplications replace the 144 of the definition. The sums over channels are 36 matrix products, which
reach the machine's full rate where direct convolutions on small maps with many channels do not. Both
gradients have the same form. In float32 results differ from direct convolution in the sixth digit.

Buffers are kept under :data:`BUFFER_BYTES`: glibc hands larger ones back to the system at once, and asking
for their pages again costs more than the arithmetic.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from innerloop.core.threads import map_in_threads

Part = TypeVar("Part")
Result = TypeVar("Result")

BUFFER_BYTES = 8 * 2**20

_B = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_G = ((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 24))  # times 24
_A = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


class Transforms(NamedTuple):
    """The three transforms of a tile, each on the flattened tile: ``(36, 36)``, ``(36, 9)``, ``(16, 36)``."""

    inputs: Tensor
    weights: Tensor
    outputs: Tensor


@functools.cache
def transforms(dtype: torch.dtype, device: torch.device) -> Transforms:
    """Kronecker squares of the matrices above."""

    def square(rows: tuple[tuple[int, ...], ...], scale: int = 1) -> Tensor:
        """The Kronecker square of one matrix."""
        matrix = torch.tensor(rows, dtype=torch.float64) / scale
        return torch.kron(matrix, matrix).to(device, dtype)

    return Transforms(square(_B), square(_G, 24), square(_A))


def _ranges(total: int, bytes_each: int) -> list[slice]:
    """Nearly equal parts: at least one per thread, more if their buffers would not stay under the limit."""
    parts = min(total, max(torch.get_num_threads(), -(-total * bytes_each // BUFFER_BYTES)))
    cuts = [total * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def _each(fn: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """``fn`` of every part, whole parts in parallel, each on one thread from beginning to end."""
    # hundreds of small operations: threads that wait for each other after every one lose what they gain
    threads = torch.get_num_threads()
    return [fn(part) for part in parts] if threads == 1 else map_in_threads(fn, parts, threads)


def _whole_tiles(x: Tensor) -> Tensor:
    """Zeros added below and to the right, so that 4×4 tiles fill the picture."""
    return F.pad(x, (0, -x.shape[3] % 4, 0, -x.shape[2] % 4)) if x.shape[2] % 4 or x.shape[3] % 4 else x


def _empty(n: int, c: int, like: Tensor) -> Tensor:
    """Room for pictures of whole tiles, channels-last."""
    height, width = (-(-side // 4) * 4 for side in like.shape[2:])
    shape, last = (n, c, height, width), torch.channels_last
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=last)


def _cropped(x: Tensor, like: Tensor) -> Tensor:
    """Without what was added to fill the last tiles."""
    if x.shape[2:] == like.shape[2:]:
        return x
    return x[:, :, : like.shape[2], : like.shape[3]].contiguous(memory_format=torch.channels_last)


def _tiled(x: Tensor) -> Tensor:
    """A view: ``(n, c, 4 rows, 4 columns) -> (4, 4, n, rows, columns, c)``."""
    return x.unflatten(3, (-1, 4)).unflatten(2, (-1, 4)).permute(3, 5, 0, 2, 4, 1)


def _input_tiles(x: Tensor) -> Tensor:
    """Overlapping 6×6 tiles at every fourth place, transformed: ``(36, tiles, c)``."""
    own = _tiled(x)
    t = x.new_empty(6, 6, *own.shape[2:])
    # places 1…4 of a tile are its own; 0 and 5 belong to its neighbours, or lie outside
    t[1:5, 1:5] = own
    t[0, 1:5, :, 1:], t[5, 1:5, :, :-1] = own[3, :, :, :-1], own[0, :, :, 1:]
    t[0, 1:5, :, 0], t[5, 1:5, :, -1] = 0, 0
    t[:, 0, :, :, 1:], t[:, 5, :, :, :-1] = t[:, 4, :, :, :-1], t[:, 1, :, :, 1:]
    t[:, 0, :, :, 0], t[:, 5, :, :, -1] = 0, 0
    return (transforms(x.dtype, x.device).inputs @ t.view(36, -1)).view(36, -1, x.shape[1])


def _from_input_tiles(v: Tensor, out: Tensor) -> None:
    """The transpose of :func:`_input_tiles`: tiles are added where they overlap, and written to ``out``."""
    own = _tiled(out)
    t = transforms(v.dtype, v.device).inputs.T @ v.view(36, -1)
    t = t.view(6, 6, *own.shape[2:])
    t[:, 4, :, :, :-1] += t[:, 0, :, :, 1:]
    t[:, 1, :, :, 1:] += t[:, 5, :, :, :-1]
    t[4, 1:5, :, :-1] += t[0, 1:5, :, 1:]
    t[1, 1:5, :, 1:] += t[5, 1:5, :, :-1]
    own.copy_(t[1:5, 1:5])


def _weights(w: Tensor) -> Tensor:
    """``(out, in, 3, 3) -> (36, out, in)``."""
    return (transforms(w.dtype, w.device).weights @ w.reshape(-1, 9).T).view(36, *w.shape[:2])


def _parts(x: Tensor, w: Tensor) -> tuple[list[slice], list[slice]]:
    """Ranges of images and of output channels to work on at a time."""
    n, c, height, width = x.shape
    tiles = -(-height // 4) * -(-width // 4)
    images = _ranges(n, 36 * tiles * max(c, w.shape[0]) * x.element_size())
    return images, _ranges(w.shape[0], 36 * c * w.element_size())


def _forward(x: Tensor, w: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The outputs, and the transformed inputs, which the backward pass needs again."""
    images, outputs = _parts(x, w)
    back, whole = transforms(x.dtype, x.device).outputs, _whole_tiles(x)
    y = _empty(x.shape[0], w.shape[0], x)
    v = _each(lambda i: _input_tiles(whole[i]), images)
    u = _each(lambda o: _weights(w[o]).transpose(1, 2), outputs)

    def product(pair: tuple[int, int]) -> None:
        """Writes the outputs of some images and some filters."""
        i, o = pair
        tiles = _tiled(y[images[i], outputs[o]])
        tiles.copy_((back @ torch.bmm(v[i], u[o]).view(36, -1)).view(tiles.shape))

    _each(product, list(itertools.product(range(len(images)), range(len(outputs)))))
    return _cropped(y, x), v


def _backward(g: Tensor, v: list[Tensor], x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    images, outputs = _parts(x, w)
    known, whole = transforms(x.dtype, x.device), _whole_tiles(g)
    dx = _empty(x.shape[0], x.shape[1], x)
    dw = torch.empty_like(w, memory_format=torch.contiguous_format)

    def gradient_tiles(pair: tuple[int, int]) -> Tensor:
        """The transformed gradient of some images and some filters."""
        part = whole[images[pair[0]], outputs[pair[1]]]
        return (known.outputs.T @ _tiled(part).reshape(16, -1)).view(36, -1, part.shape[1])

    pairs = list(itertools.product(range(len(images)), range(len(outputs))))
    dm = dict(zip(pairs, _each(gradient_tiles, pairs), strict=True))
    u = _each(lambda o: _weights(w[o]), outputs)

    def to_weights(output: int) -> None:
        """Writes the gradient of some filters."""
        du = _sum_of_products([(dm[i, output].transpose(1, 2), v[i]) for i in range(len(images))])
        dw[outputs[output]].view(-1, 9).copy_((known.weights.T @ du.view(36, -1)).T)

    def to_inputs(image: int) -> None:
        """Writes the gradient of some images."""
        dv = _sum_of_products([(dm[image, o], u[o]) for o in range(len(outputs))])
        _from_input_tiles(dv, dx[images[image]])

    jobs = [(to_weights, o) for o in range(len(outputs))] + [(to_inputs, i) for i in range(len(images))]
    _each(lambda job: job[0](job[1]), jobs)
    return _cropped(dx, x), dw


def _sum_of_products(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    total = torch.bmm(*pairs[0])
    for a, b in pairs[1:]:
        total.baddbmm_(a, b)
    return total


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        """The convolution; its transformed inputs are kept."""
        y, inputs = _forward(x, w)
        ctx.save_for_backward(x, w, *inputs)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients in the inputs and the kernels."""
        x, w, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated: torch's own can be
            dx = conv2d_input(x.shape, w, g, padding=1)
            return dx, conv2d_weight(x, w.shape, g, padding=1)
        return _backward(g, inputs, x, w)


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """``F.conv2d(x, weight, padding=1)`` for 3×3 kernels, channels-last; not under ``torch.func``."""
    return _Winograd.apply(x, weight)
