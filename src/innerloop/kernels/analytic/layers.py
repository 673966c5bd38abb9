r"""Layers with weights, sums, normalisation and pooling of infinitely wide networks.

NTK parametrisation throughout: a layer computes :math:`\sqrt{\sigma_w^2/n_{in}}\,Wx + \sigma_b b` with
standard normal W and b, all of them trained.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.kernels.analytic.state import Layer, Pixels, State, over_pairs, variances

_ORDER: tuple[Pixels, ...] = ("none", "diagonal", "full")  # from the least to the most


def serial(*layers: Layer) -> Layer:
    """One after the other."""

    def apply(state: State) -> State:
        """All layers, first to last."""
        for layer in layers:
            state = layer.apply(state)
        return state

    return Layer(apply, max((layer.pixels for layer in layers), key=_ORDER.index, default="none"))


def dense(weight_var: float = 2.0, bias_var: float = 0.0) -> Layer:
    r"""A fully connected layer: :math:`\Sigma \leftarrow \sigma_w^2\Sigma + \sigma_b^2`.

    :math:`\Theta \leftarrow \Sigma_{new} + \sigma_w^2\Theta`: what its own weights contribute, and what comes
    from the layers before it.
    """

    def apply(state: State) -> State:
        """Both kernels after the layer."""
        return _with_weights(state, state, weight_var, bias_var)

    return Layer(apply)


def _with_weights(summed: State, state: State, weight_var: float, bias_var: float) -> State:
    """``summed`` are the sums over a layer's receptive field, which is a single place if it is dense."""
    nngp = weight_var * summed.nngp + bias_var if bias_var else weight_var * summed.nngp
    v1, v2 = (None if v is None else weight_var * v + bias_var for v in (summed.var1, summed.var2))
    return State(nngp, torch.add(nngp, summed.ntk, alpha=weight_var), v1, v2, state.same)


def residual(*branch: Layer) -> Layer:
    """``x + branch(x)``: the branch's weights are independent of what enters it, so kernels add up."""
    inner = serial(*branch)

    def apply(state: State) -> State:
        """Both kernels after the sum."""
        out = inner.apply(state)
        pairs = ((state.var1, out.var1), (state.var2, out.var2))
        v1, v2 = (None if a is None or b is None else a + b for a, b in pairs)
        return State(state.nngp + out.nngp, state.ntk + out.ntk, v1, v2, state.same)

    return Layer(apply, inner.pixels)


def layer_norm(eps: float = 1e-12) -> Layer:
    r"""LayerNorm over infinitely many channels.

    Both kernels are divided by :math:`\sqrt{(\Sigma(x,x)+\epsilon)(\Sigma(x',x')+\epsilon)}`. There is no
    trained scale or shift. The mean of infinitely many centred values is zero, and so is, beside the rest,
    the part of the Jacobian that comes from the norm itself.
    """

    def apply(state: State) -> State:
        """Both kernels after normalisation."""
        v1, v2 = variances(state)
        a, b = over_pairs((v1 + eps).rsqrt(), (v2 + eps).rsqrt(), state.nngp)
        scale = a * b
        return State(state.nngp * scale, state.ntk * scale, v1 / (v1 + eps), v2 / (v2 + eps), state.same)

    return Layer(apply)


def conv(
    weight_var: float = 2.0, bias_var: float = 0.0, size: int = 3, stride: int = 1, padding: int | None = None
) -> Layer:
    r"""A convolution with zero padding; its fan-in is ``size² × channels``, at the border too.

    .. math:: \Sigma[p,q] \leftarrow \frac{\sigma_w^2}{s^2}\sum_\delta\Sigma[p+\delta,q+\delta] + \sigma_b^2

    and likewise for Θ. The sum over both axes of δ is done one axis after the other.

    Args:
        weight_var: :math:`\sigma_w^2`.
        bias_var: :math:`\sigma_b^2`.
        size: side of the filters.
        stride: step between outputs.
        padding: zeros around the picture; ``size // 2`` if omitted.
    """
    pad = size // 2 if padding is None else padding

    def window_means(t: Tensor | None, axes: tuple[tuple[int, ...], ...]) -> Tensor | None:
        """Sums over the windows along these axes, divided by the number of a filter's weights per channel."""
        if t is None:
            return None
        for group in axes:
            t = _window_sum(t, group, size, stride, pad)
        return t / size**2

    def apply(state: State) -> State:
        """Both kernels after the convolution."""
        pairs = ((2, 4), (3, 5)) if state.nngp.ndim == 6 else ((2,), (3,))
        nngp, ntk = (window_means(t, pairs) for t in state[:2])
        v1, v2 = (window_means(v, ((1,), (2,))) for v in variances(state))
        assert nngp is not None
        assert ntk is not None
        return _with_weights(State(nngp, ntk, v1, v2, state.same), state, weight_var, bias_var)

    return Layer(apply, "diagonal")


def _window_sum(t: Tensor, axes: tuple[int, ...], size: int, stride: int, pad: int) -> Tensor:
    """Sums of ``size`` neighbours, moving along all ``axes`` at once."""
    pads = [0] * (2 * t.ndim)
    for axis in axes:
        pads[2 * (t.ndim - 1 - axis)] = pads[2 * (t.ndim - 1 - axis) + 1] = pad
    padded = torch.nn.functional.pad(t, pads) if pad else t
    index = [slice(None)] * t.ndim
    total: Tensor | None = None
    for shift in range(size):
        for axis in axes:
            last = padded.shape[axis] - size + shift + 1
            index[axis] = slice(shift, last, stride)
        part = padded[tuple(index)]
        total = part if total is None else total + part
    assert total is not None
    return total


def global_average_pool() -> Layer:
    """The mean over all pairs of places; nothing but dense layers may follow."""

    def apply(state: State) -> State:
        """Both kernels without their pixels."""
        return State(state.nngp.mean((2, 3, 4, 5)), state.ntk.mean((2, 3, 4, 5)), None, None, state.same)

    return Layer(apply, "full")


def flatten() -> Layer:
    """Every pixel and channel a feature of its own: the mean over equal places."""

    def apply(state: State) -> State:
        """Both kernels without their pixels."""

        def equal_places(t: Tensor) -> Tensor:
            """The mean over pairs of equal places."""
            if t.ndim == 4:
                return t.mean((2, 3))
            return torch.einsum("nmhwhw->nm", t) / t[0, 0, :, :, 0, 0].numel()

        v1, v2 = (None if v is None else v.mean((1, 2)) for v in (state.var1, state.var2))
        return State(equal_places(state.nngp), equal_places(state.ntk), v1, v2, state.same)

    return Layer(apply, "diagonal")
