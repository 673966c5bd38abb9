r"""Activations of infinitely wide networks: Gaussian expectations of :math:`\phi\phi` and their slopes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.kernels.analytic.state import Layer, State, over_pairs, same_pairs, variances


class _Arcs(torch.autograd.Function):
    r"""``(sin θ + (π - θ) cos θ)/π`` and its derivative in c = cos θ, ``1 - θ/π``, by one arccosine.

    The slope of the second is infinite at c = ±1, where zero is given (see :func:`relu`).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(c: Tensor) -> tuple[Tensor, Tensor]:
        """``√(1 − c²)/π + (1 − arccos(c)/π) c`` and ``1 − arccos(c)/π``."""
        c = c.clamp(-1, 1)
        slope = torch.acos(c).div_(-math.pi).add_(1)
        return torch.addcmul((1 - c).mul_(1 + c).sqrt_().div_(math.pi), slope, c), slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        """Keeps the cosine and the derivative."""
        ctx.save_for_backward(*inputs, output[1])

    @staticmethod
    def backward(ctx: Any, g1: Tensor, g0: Tensor) -> Tensor:
        """``1 − arccos(c)/π``, and ``1/(π√(1 − c²))``, which is 0 at the ends."""
        c, slope = ctx.saved_tensors
        square = (1 - c) * (1 + c)
        inside = square > 0
        return g1 * slope + torch.where(inside, g0 / (math.pi * torch.where(inside, square, 1).sqrt()), 0)


def _roots(v: Tensor) -> tuple[Tensor, Tensor]:
    """Square root and its inverse, both zero with slope zero at zero (a blank picture without biases)."""
    positive = v > 0
    root = torch.where(positive, v, 1).sqrt()
    return torch.where(positive, root, 0), torch.where(positive, 1 / root, 0)


def leaky_relu(slope: float) -> Layer:
    r""":math:`\phi(z) = \max(z, 0) + a\min(z, 0)`, so :func:`relu` for slope a = 0 and linear for 1.

    .. math:: E[\phi\phi'] = a\Sigma + (1-a)^2\kappa_1(\Sigma),\quad
              E[\dot\phi\dot\phi'] = a + (1-a)^2\kappa_0(\Sigma)
    """

    def apply(state: State) -> State:
        """Both kernels after the activation."""
        v1, v2 = variances(state)
        rest = 0.5 * (1 - slope) ** 2
        (root1, inverse1), (root2, inverse2) = _roots(v1), _roots(v2)
        a, b = over_pairs(inverse1, inverse2, state.nngp)
        cosine = torch.where(same_pairs(state), 1.0, state.nngp * a * b)
        arc1, arc0 = _Arcs.apply(cosine)
        a, b = over_pairs(rest * root1, root2, state.nngp)
        nngp, ntk = arc1 * a * b, state.ntk * arc0 * rest
        if slope:
            nngp, ntk = nngp + slope * state.nngp, ntk + slope * state.ntk
        scale = rest + slope
        return State(nngp, ntk, v1 * scale, v2 * scale, state.same)

    return Layer(apply)


def relu() -> Layer:
    r""":math:`\phi(z)=\max(z,0)`, without a factor √2 (arc-cosine kernels, Cho and Saul 2009).

    .. math:: \kappa_1 = \sqrt{\Sigma(x,x)\Sigma(x',x')}\,\frac{\sin\theta + (\pi-\theta)\cos\theta}{2\pi},
              \quad \kappa_0 = \frac{\pi-\theta}{2\pi}

    As a function of one input, κ₀ has a kink (a cone) where both inputs are equal; the gradient given there
    is zero, the mean over all directions. The derivative of Θ(x, x) in x is exact.

    >>> one = torch.ones(1)
    >>> state = State(one[None], one[None], one, one, torch.tensor([[True]]))
    >>> relu().apply(state)[:2]
    (tensor([[0.5000]]), tensor([[0.5000]]))
    """
    return leaky_relu(0.0)


def erf() -> Layer:
    r""":math:`\phi=\mathrm{erf}` (arcsine kernels).

    .. math:: E[\phi\phi'] = \frac2\pi\arcsin\frac{2\Sigma}{\sqrt{(1+2\Sigma(x,x))(1+2\Sigma(x',x'))}},\quad
              E[\dot\phi\dot\phi'] = \frac4\pi\big((1+2\Sigma(x,x))(1+2\Sigma(x',x')) - 4\Sigma^2\big)^{-1/2}
    """

    def apply(state: State) -> State:
        """Both kernels after the activation."""
        v1, v2 = variances(state)
        a, b = over_pairs(1 + 2 * v1, 1 + 2 * v2, state.nngp)
        product = a * b
        nngp = (2 / math.pi) * torch.asin(2 * state.nngp / product.sqrt())
        ntk = state.ntk * (4 / math.pi) * (product - 4 * state.nngp.square()).rsqrt()
        own1, own2 = ((2 / math.pi) * torch.asin(2 * v / (1 + 2 * v)) for v in (v1, v2))
        return State(nngp, ntk, own1, own2, state.same)

    return Layer(apply)


def linear() -> Layer:
    """No activation."""
    return Layer(lambda state: state)


ACTIVATIONS = {"relu": relu, "leaky_relu": lambda: leaky_relu(0.1), "erf": erf, "linear": linear}
"""Those of :data:`innerloop.nets.mlp.ACTIVATIONS` whose expectations have a closed form."""


def activation(name: str) -> Layer:
    """By name; leaky ReLU has the slope 0.1 that :func:`innerloop.nets.mlp` gives it."""
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UserError(
            f"no closed form for the activation '{name}'{did_you_mean(name, ACTIVATIONS)}: there are {known}."
        )
    return ACTIVATIONS[name]()


def default_weight_var(name: str) -> float:
    """What :func:`innerloop.nets.mlp` takes if none is given: 2 for ReLU and its leaky form, else 1."""
    return 2.0 if "relu" in name else 1.0
