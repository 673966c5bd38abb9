"""Tangent kernels in JAX, by hand and by neural-tangents, in environments of their own, without torch."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from innerloop_studies.bench.jax_maml import EPS, as_jax_has_them, by_lax, patches
from innerloop_studies.bench.worker import Spec, Worker

Array = Any
Layer = Callable[[str, Array, Array], Array]  # is told a layer's name, what enters it and what it gives


def mlp(params: dict[str, Array], layer: Layer, x: Array) -> Array:
    """Dense layers, ReLU between them."""
    depth = len(params) // 2
    for i in range(depth):
        x = layer(f"dense{i}", x, x @ params[f"layer{i}.weight"] + params[f"layer{i}.bias"])
        x = jax.nn.relu(x) if i < depth - 1 else x
    return x


def conv4(groups: int, by_hand: bool, params: dict[str, Array], layer: Layer, x: Array) -> Array:
    """Conv4 with group normalisation and max pooling; by hand, what enters a convolution is patches."""
    for i in range(4):
        weight, bias = params[f"conv{i}.weight"], params[f"conv{i}.bias"]
        if by_hand:
            x = patches(x, 1)
            x = layer(f"conv{i}", x, x @ weight.reshape(-1, weight.shape[-1]) + bias)
        else:
            x = by_lax(x, weight, 1) + bias
        n, h, w, c = x.shape
        grouped = x.reshape(n, h * w, groups, c // groups)
        centred = grouped - grouped.mean((1, 3), keepdims=True)
        x = (centred * lax.rsqrt((centred**2).mean((1, 3), keepdims=True) + EPS)).reshape(x.shape)
        x = layer(f"norm{i}", x, x * params[f"norm{i}.weight"] + params[f"norm{i}.bias"])
        x = x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
        x = jax.nn.relu(x)
    x = x.reshape(n, -1)
    return layer("dense", x, x @ params["head.weight"] + params["head.bias"])


def layer_by_layer(network: Callable[..., Array], trace: bool, params: dict[str, Array], x: Array) -> Array:
    """Θ += (A Aᵀ + 1) ∘ (D Dᵀ) of every dense layer; of others the Gram of its gradients."""
    shapes: dict[str, Any] = {}

    def run(offsets: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
        """The outputs, whose derivatives by offsets are those by layers' outputs; and what enters layers."""
        inputs = {}

        def layer(name: str, entering: Array, leaving: Array) -> Array:
            """Notes what enters, and adds the offset."""
            inputs[name], shapes[name] = entering, leaving
            return leaving + offsets[name] if offsets else leaving

        return network(params, layer, x), inputs

    out, _ = jax.eval_shape(run, {})
    _, back, inputs = jax.vjp(run, {k: jnp.zeros(y.shape, y.dtype) for k, y in shapes.items()}, has_aux=True)
    units = jnp.eye(out.shape[1]) if trace else jnp.ones((1, out.shape[1]))

    def gram(g: Array) -> Array:
        """The mean over rows of their Grams."""
        return jnp.einsum("kna,kma->nm", g, g) / len(units)

    theta = jnp.zeros((len(x), len(x)))
    for name, d in jax.vmap(lambda row: back(jnp.broadcast_to(row, out.shape))[0])(units).items():
        u = inputs[name]
        if name.startswith("dense"):
            theta += (u @ u.T + 1) * gram(d)
            continue
        shift, pixels = d.sum((2, 3)), (*d.shape[:2], -1, d.shape[-1])
        by_weight = "nhwc,knhwc->knc"
        if name.startswith("conv"):
            u, d, by_weight = u.reshape(len(x), -1, u.shape[-1]), d.reshape(pixels), "ntp,knto->knpo"
        grads = jnp.einsum(by_weight, u, d)
        theta += gram(shift) + gram(grads.reshape(*d.shape[:2], -1))
    return theta


def of_neural_tangents(network: Callable[..., Array], trace: bool, way: str) -> Callable[..., Array]:
    """Its empirical kernel in one of its implementations."""
    import jax.interpreters.ad
    import neural_tangents as nt
    from jax._src import source_info_util

    # where its structured derivatives look for them; the JAX that it installs has them elsewhere
    vars(jax.interpreters.ad).update(config=jax.config, source_info_util=source_info_util)

    def outputs(params: dict[str, Array], x: Array) -> Array:
        """As it asks for them."""
        out = network(params, lambda _name, _entering, leaving: leaving, x)
        return out if trace else out.sum(1, keepdims=True)

    kernel = nt.empirical_ntk_fn(outputs, vmap_axes=0, implementation=nt.NtkImplementation[way])
    return lambda params, x: kernel(x, None, params)


def analytic(depth: int, pictures: bool) -> Callable[..., Array]:
    """neural-tangents' kernel of a ReLU network of infinite width, pooled at the end if it is of pictures."""
    from neural_tangents import stax

    dense = functools.partial(stax.Dense, 1, W_std=2**0.5, b_std=0.0)
    conv = functools.partial(stax.Conv, 1, (3, 3), W_std=2**0.5, b_std=0.0, padding="SAME")
    hidden, end = (conv, [stax.GlobalAvgPool()]) if pictures else (dense, [])
    layers = [layer for _ in range(depth - 1) for layer in (hidden(), stax.Relu())]
    kernel = stax.serial(*layers, *end, dense())[2]
    return lambda _, x: kernel(x, None, "ntk")


def build(spec: Spec) -> Callable[[], Array]:
    """The kernel of ``x`` in ``inputs``, a file of numpy."""
    params, groups, trace = dict(np.load(spec["inputs"])), spec["groups"], spec["output"] == "trace"
    x = params.pop("x")
    x = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
    network = functools.partial(conv4, groups, spec["side"] == "jax") if groups else mlp
    if spec["depth"]:
        kernel = analytic(spec["depth"], x.ndim == 4)
    elif spec["side"] == "jax":
        kernel = functools.partial(layer_by_layer, network, trace)
    else:
        kernel = of_neural_tangents(network, trace, spec["way"])
    turned = as_jax_has_them(params, groups and len(params["conv3.weight"]))
    compiled, held = jax.jit(kernel), jax.device_put((turned, x))
    return lambda: jax.block_until_ready(compiled(*held))


WORKER = Worker(build, lambda kernel: np.asarray(kernel, np.float64).ravel())
