"""A training step of ResNet-12 in JAX, jitted; runs in an environment of its own, without torch."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from innerloop_studies.bench import jax_maml
from innerloop_studies.bench.jax_maml import Params, by_lax, by_patches, cross_entropy
from innerloop_studies.bench.worker import Spec, Worker

MOMENTUM, DECAY, RATE, KEPT = 0.9, 5e-4, 0.0, 0.1  # as the other sides have them


def layer(
    convolve: Callable[..., Any], params: Params, seen: Params, name: str, x: Any
) -> tuple[Any, Params]:
    """Convolution and batch norm, and what the norm's running statistics are afterwards."""
    weight = params[f"{name}.weight"]
    x = x @ weight[0, 0] if weight.shape[0] == 1 else convolve(x, weight, 1)
    mean, count = x.mean((0, 1, 2)), x.size // x.shape[-1]
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    seen = {
        **seen,
        f"{name}.mean": (1 - KEPT) * seen[f"{name}.mean"] + KEPT * mean,
        f"{name}.var": (1 - KEPT) * seen[f"{name}.var"] + KEPT * variance * count / (count - 1),
    }
    scale = lax.rsqrt(variance + jax_maml.EPS) * params[f"{name}.norm.weight"]
    return (x - mean) * scale + params[f"{name}.norm.bias"], seen


def resnet12(
    convolve: Callable[..., Any], slope: float, params: Params, seen: Params, x: Any
) -> tuple[Any, Params]:
    """Logits."""
    for block in (f"block{i}" for i in range(4)):
        shortcut, seen = layer(convolve, params, seen, f"{block}.shortcut", x)
        for i in range(3):
            x, seen = layer(convolve, params, seen, f"{block}.conv{i}", x)
            x = jax.nn.leaky_relu(x + shortcut if i == 2 else x, slope)
        n, h, w, c = x.shape
        x = x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))
    return x.mean((1, 2)) @ params["head.weight"] + params["head.bias"], seen


def turned(value: Any, back: bool = False) -> Any:
    """A weight in JAX's layout, or back in torch's."""
    if value.ndim == 4:
        return value.transpose((3, 2, 0, 1) if back else (2, 3, 1, 0))
    return value.T


def build(spec: Spec) -> Callable[[], Params]:
    """A step on the pictures in ``inputs``, a file of numpy; returns the gradient that it used."""
    given = dict(np.load(spec["inputs"]))
    x, y = given.pop("x").transpose(0, 2, 3, 1), given.pop("y")
    params = {name: turned(value) for name, value in given.items()}
    normed = [(name.removesuffix(".norm.weight"), v) for name, v in params.items() if ".norm.weight" in name]
    zeros = {f"{name}.mean": np.zeros_like(v) for name, v in normed}
    seen = zeros | {f"{name}.var": np.ones_like(v) for name, v in normed}
    convolve = {"im2col": by_patches, "lax": by_lax}[spec["convolution"]]

    def step(params: Params, velocity: Params, seen: Params, rate: Any, x: Any, y: Any) -> Any:
        """One step of gradient descent with momentum."""

        def loss(params: Params) -> tuple[Any, Params]:
            outputs, after = resnet12(convolve, spec["slope"], params, seen, x)
            return cross_entropy(outputs, y), after

        grads, after = jax.grad(loss, has_aux=True)(params)
        velocity = {n: MOMENTUM * velocity[n] + grads[n] + DECAY * params[n] for n in params}
        return {n: params[n] - rate * velocity[n] for n in params}, velocity, after, grads

    velocity = {name: np.zeros_like(value) for name, value in params.items()}
    state, batch = jax.device_put((params, velocity, seen)), jax.device_put((x, y))
    compiled = jax.jit(step)

    def call() -> Params:
        nonlocal state
        *state, grads = jax.block_until_ready(compiled(*state, jnp.float32(RATE), *batch))
        return grads

    return call


def flat(grads: Params) -> np.ndarray[Any, Any]:
    """As torch has them."""
    return jax_maml.flat({name: turned(value, back=True) for name, value in grads.items()})


WORKER = Worker(build, flat)
