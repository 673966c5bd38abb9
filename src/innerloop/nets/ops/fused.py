r"""Convolution, batch normalisation and ReLU as one differentiable operation, for tasks run one at a time.

With :math:`z = w * x`, :math:`\hat z = (z-\mu)s`, :math:`s=(\sigma^2+\epsilon)^{-1/2}` over the :math:`M`
pixels of a channel, and :math:`y=\max(\gamma\hat z+\beta, 0)`, second-order MAML needs :math:`y`, its
gradient, and the gradient of that gradient. All three are written out here. Against ``F.conv2d`` and
``F.batch_norm`` under autograd this gains three times: pictures stay channels-last, so that statistics are
column sums of a matrix and convolutions are products of matrices (:mod:`innerloop.nets.ops.patches`);
patches are laid out once for all three; and the second derivative takes a dozen small operations where
autograd's takes a hundred.

Write :math:`P(v) = v - \bar v - \hat z\,\overline{v \hat z}` (means over pixels) and :math:`g` for the
gradient arriving at :math:`y` where :math:`y>0`. The gradient in :math:`z` is :math:`\gamma s P(g)`. If
:math:`V` is the cotangent of that, and :math:`v_\gamma, v_\beta` those of :math:`\sum g\hat z` and
:math:`\sum g`, then

.. math::
   \partial_g &= \gamma s P(V) + v_\gamma \hat z + v_\beta, \qquad
   \partial_\gamma = s A, \qquad A = \textstyle\sum g P(V), \\
   \partial_z &= s P(D) - \gamma s^2 A\,\hat z / M, \qquad
   D = v_\gamma g - \tfrac{\gamma s}{M}\big(V \textstyle\sum g\hat z + g \sum V\hat z\big).

Not for use under ``torch.func``. Third and higher derivatives are right, but left to autograd.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.nets.ops.patches import Convolution, Geometry, as_pictures, as_rows, convolution

_normalise = torch.native_batch_norm
_normalise_backward = torch.ops.aten.native_batch_norm_backward.default
_relu_backward = torch.ops.aten.threshold_backward.default


def suits(x: Tensor, weight: Tensor) -> bool:
    """Whether the fused form can take these tensors."""
    return x.device.type == "cpu" and x.dtype == weight.dtype and x.dtype in (torch.float32, torch.float64)


def conv_norm_relu(
    x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float, stride: int, padding: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``relu(batch_norm(conv2d(x)))`` with batch statistics, and these (not differentiable)."""
    y, _, mean, inverse = _Block.apply(x, weight, scale, shift, eps, stride, padding)
    return y, mean, inverse.square().reciprocal_().sub_(eps)


class _Block(torch.autograd.Function):
    """``(x, weight, scale, shift) -> (y, z, mean, 1/deviation)``; ``z`` carries second derivatives back."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        stride: int,
        padding: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The block's output and convolution, and the batch's mean and inverse deviation."""
        n, c, h, w = x.shape
        geometry = Geometry(n, c, h, w, weight.shape[0], weight.shape[2], stride, padding)
        conv = convolution(geometry)
        patches = conv.patches(x)
        z = conv.rows(patches, weight)
        y, mean, inverse = _normalise(z, scale, shift, None, None, True, 0.0, eps)
        y = as_pictures(y.relu_(), (n, y.shape[1], *geometry.out))
        ctx.conv, ctx.how = conv, (eps, stride, padding)
        ctx.save_for_backward(x, weight, scale, shift, patches, z, y, mean, inverse)
        ctx.mark_non_differentiable(mean, inverse)
        ctx.set_materialize_grads(False)
        return y, z, mean, inverse

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None, gz: Tensor | None, *_: None) -> tuple[Any, ...]:
        """The gradient; where it will be differentiated, as an operation of its own."""
        wants_x = ctx.needs_input_grad[0]
        if gy is None:  # reached through z only
            gy = torch.zeros_like(ctx.saved_tensors[6])
        if torch.is_grad_enabled():  # create_graph=True
            grads = _BlockGradient.apply(gy, *ctx.saved_tensors, ctx.conv, ctx.how, wants_x)
        else:
            grads = _first(gy, gz, ctx.saved_tensors, ctx.conv, ctx.how[0], wants_x)[:4]
        return *grads, None, None, None


def _first(
    gy: Tensor, gz: Tensor | None, saved: tuple[Tensor, ...], conv: Convolution, eps: float, wants_x: bool
) -> tuple[Any, ...]:
    """Gradients in x, weight, scale and shift; and the gradient where y > 0, and that in z, as rows."""
    _, weight, scale, _, patches, z, y, mean, inverse = saved
    g = _relu_backward(as_rows(gy), as_rows(y), 0)
    dz, dscale, dshift = _normalise_backward(g, z, scale, None, None, mean, inverse, True, eps, [True] * 3)
    if gz is not None:
        dz.add_(gz)
    dx = conv.to_input(dz, weight) if wants_x else None
    return dx, conv.to_weight(patches, dz), dscale, dshift, g, dz


class _BlockGradient(torch.autograd.Function):
    """The gradient of :class:`_Block`, as a function of the arriving gradient, x, z, weight and scale."""

    @staticmethod
    def forward(ctx: Any, gy: Tensor, *args: Any) -> tuple[Any, ...]:
        """The gradient of the block, which keeps what its own derivative needs."""
        *saved, conv, how, wants_x = args
        dx, dweight, dscale, dshift, g, dz = _first(gy, None, tuple(saved), conv, how[0], wants_x)
        ctx.conv, ctx.how = conv, how
        ctx.save_for_backward(gy, *saved, dscale, dshift, g, dz)
        ctx.set_materialize_grads(False)
        return dx, dweight, dscale, dshift

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Any, ...]:
        """The derivative of the gradient; beyond that autograd takes over."""
        gy, x, weight, scale, shift, patches, z, y, mean, inverse, dscale, dshift, g, dz = ctx.saved_tensors
        tail = (None,) * 3
        if torch.is_grad_enabled():  # differentiated a third time
            grads = _second_by_autograd((gy, x, weight, scale, shift), cotangents, *ctx.how)
            return *grads, *(None,) * 5, *tail
        vx, vweight, vscale, vshift = cotangents
        zeros = torch.zeros_like(scale)
        vscale, vshift = zeros if vscale is None else vscale, zeros if vshift is None else vshift
        V, to_weight = _through_convolution(ctx.conv, vx, vweight, weight, patches, dz)
        to_x = ctx.conv.to_input(dz, vweight) if ctx.needs_input_grad[1] and vweight is not None else None
        to_g, to_z, to_scale = _through_normalisation(
            V, vscale, vshift, scale, z, mean, inverse, dscale, dshift, g, ctx.how[0]
        )
        to_y = as_pictures(_relu_backward(to_g, as_rows(y), 0), y.shape)
        return to_y, to_x, to_weight, to_scale, None, None, to_z, None, None, None, *tail


def _through_convolution(
    conv: Convolution, vx: Tensor | None, vweight: Tensor | None, weight: Tensor, patches: Tensor, dz: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Cotangents of dz and weight, from those of ``to_input(dz, weight)`` and ``to_weight(patches, dz)``."""
    V = torch.zeros_like(dz) if vweight is None else conv.rows(patches, vweight)
    if vx is None:
        return V, None
    vpatches = conv.patches(vx)
    return V.add_(conv.rows(vpatches, weight)), conv.to_weight(vpatches, dz)


def _through_normalisation(
    V: Tensor,
    vscale: Tensor,
    vshift: Tensor,
    scale: Tensor,
    z: Tensor,
    mean: Tensor,
    inverse: Tensor,
    dscale: Tensor,
    dshift: Tensor,
    g: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The formulas at the top of this file; overwrites ``V``. Sums are over pixels, all else by channel."""
    m = g.shape[0]

    def backward(v: Tensor, by: Tensor | None, sums: bool) -> Any:  # by·s·P(v), Σ v ẑ, Σ v
        """Torch's backward of batch normalisation along ``v``."""
        return _normalise_backward(v, z, by, None, None, mean, inverse, True, eps, [True, sums, sums])

    to_g, v_dot_z, v_sum = backward(V, scale, True)
    A = (V * g).sum(0).sub_((v_sum * dshift).addcmul_(v_dot_z, dscale).div_(m))
    slope = vscale * inverse  # v_γ ẑ = slope·z − slope·μ
    to_g.addcmul_(z, slope).add_(torch.addcmul(vshift, slope, mean, value=-1))
    step = scale * inverse
    D = V.mul_((step * dscale).div_(-m)).addcmul_(g, torch.addcmul(vscale, step, v_dot_z, value=-1 / m))
    to_z = backward(D, None, False)[0]
    to_scale = A.mul_(inverse)
    bend = (to_scale * step).mul_(inverse).div_(-m)  # the term in ẑ, as bend·z − bend·μ
    to_z.addcmul_(z, bend).sub_(bend * mean)
    return to_g, to_z, to_scale


def _second_by_autograd(
    inputs: tuple[Tensor, ...], cotangents: tuple[Tensor | None, ...], eps: float, stride: int, padding: int
) -> tuple[Tensor | None, ...]:
    """The second derivative again, but differentiable: by autograd, from torch's own layers."""
    # the inputs may depend on each other (gy on x, through y): as views of their own they are apart
    inputs = tuple(t.view_as(t) for t in inputs)
    gy, *leaves = inputs
    x, weight, scale, shift = leaves
    z = F.conv2d(x, weight, None, stride, padding)
    y = F.relu(F.batch_norm(z, None, None, scale, shift, True, 0.0, eps))
    wanted = [leaf for leaf, v in zip(leaves, cotangents, strict=True) if v is not None]
    first = torch.autograd.grad(y, wanted, gy, create_graph=True)
    places = [i for i, t in enumerate(inputs) if t.requires_grad]
    second = torch.autograd.grad(
        first,
        [inputs[i] for i in places],
        [v for v in cotangents if v is not None],
        create_graph=True,
        allow_unused=True,
    )
    return tuple(second[places.index(i)] if i in places else None for i in range(len(inputs)))
