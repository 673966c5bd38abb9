r"""Activations of infinitely wide networks: Gaussian expectations of :math:`\phi\phi` and their slopes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.kernels.analytic.state import Layer, State, over_pairs, same_pairs, variances


class _Arc0(torch.autograd.Function):
    r"""``1 - arccos(c)/π``. Its slope is infinite at c = ±1, where zero is given (see :func:`relu`)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(c: Tensor) -> Tensor:
        """``1 − arccos(c)/π``."""
        return 1 - torch.acos(c.clamp(-1, 1)) / math.pi

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        """Keeps the cosine."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """``1/(π√(1 − c²))``, and 0 at the ends, where that is infinite."""
        (c,) = ctx.saved_tensors
        square = (1 - c) * (1 + c)
        inside = square > 0
        return torch.where(inside, g / (math.pi * torch.where(inside, square, 1).sqrt()), 0)


class _Arc1(torch.autograd.Function):
    r"""``(sin θ + (π - θ) cos θ)/π``; its derivative in cos θ is :class:`_Arc0`, without cancellation."""

    generate_vmap_rule = True

    @staticmethod
    def forward(c: Tensor) -> Tensor:
        """``√(1 − c²)/π + (1 − arccos(c)/π) c``."""
        c = c.clamp(-1, 1)
        return ((1 - c) * (1 + c)).sqrt() / math.pi + (1 - torch.acos(c) / math.pi) * c

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        """Keeps the cosine."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        """``1 − arccos(c)/π``."""
        (c,) = ctx.saved_tensors
        return g * _Arc0.apply(c)


def _root(v: Tensor) -> Tensor:
    """Square root with slope zero, not infinity, at zero (a blank picture without biases)."""
    positive = v > 0
    return torch.where(positive, torch.where(positive, v, 1).sqrt(), 0)


def leaky_relu(slope: float) -> Layer:
    r""":math:`\phi(z) = \max(z, 0) + a\min(z, 0)`, so :func:`relu` for slope a = 0 and linear for 1.

    .. math:: E[\phi\phi'] = a\Sigma + (1-a)^2\kappa_1(\Sigma),\quad
              E[\dot\phi\dot\phi'] = a + (1-a)^2\kappa_0(\Sigma)
    """

    def apply(state: State) -> State:
        """Both kernels after the activation."""
        v1, v2 = variances(state)
        a, b = over_pairs(_root(v1), _root(v2), state.nngp)
        norm = a * b
        cosine = torch.where(same_pairs(state), 1.0, state.nngp / torch.where(norm > 0, norm, 1.0))
        rest = 0.5 * (1 - slope) ** 2
        nngp = rest * norm * _Arc1.apply(cosine) + (slope * state.nngp if slope else 0)
        ntk = state.ntk * (rest * _Arc0.apply(cosine) + slope)
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
