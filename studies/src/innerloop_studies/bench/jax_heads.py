"""Logistic heads in JAX: Newton's method on all at once; runs in an environment of its own, without torch.

Weights lie in the span of the support set, so that Newton's matrix has 130 rows for 25 samples and 5 ways.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from innerloop_studies.bench.heads import DIMENSIONS, PROBLEMS, WAYS, C, objectives, problems
from innerloop_studies.bench.worker import Answer, Spec, Worker

CLOSE = 1e-7  # of the objective: what Newton's decrement may promise still
MOST = 50
HALVED = 6  # times that a step may be halved
TOGETHER = 50  # problems: their matrices stay in the cache


def newton(x: Any, y: Any) -> tuple[Any, Any]:
    """Weights and bias of one problem."""
    basis, triangle = jnp.linalg.qr(x.T)
    z = jnp.concatenate([triangle.T, jnp.ones_like(x[:, :1])], 1)
    rows, size = z.shape
    squares = (z[:, :, None] * z[:, None, :]).reshape(rows, -1)
    decay = jnp.ones((size, 1), x.dtype).at[-1].set(0)
    labels = jax.nn.one_hot(y, WAYS, dtype=x.dtype)
    # a constant on all biases changes nothing: some curvature there, and the matrix can be factored
    fixed = jnp.diag(jnp.repeat(decay[:, 0], WAYS)).at[-WAYS:, -WAYS:].add(1)
    cost = C["logistic"]

    def value(v: Any) -> Any:
        """The objective."""
        return 0.5 * (decay * v * v).sum() - cost * (labels * jax.nn.log_softmax(z @ v)).sum()

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The best of some steps along Newton's direction."""
        count, v, *_ = state
        p = jax.nn.softmax(z @ v)
        grad = (decay * v + cost * z.T @ (p - labels)).ravel()
        spread = (p[:, :, None] * jnp.eye(WAYS, dtype=x.dtype) - p[:, :, None] * p[:, None]).reshape(rows, -1)
        blocks = cost * (squares.T @ spread).reshape(size, size, WAYS, WAYS)
        matrix = blocks.transpose(0, 2, 1, 3).reshape(size * WAYS, size * WAYS) + fixed
        direction = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), grad)
        tries = v - 0.5 ** jnp.arange(HALVED, dtype=x.dtype)[:, None, None] * direction.reshape(v.shape)
        values = jax.vmap(value)(tries)
        best = values.argmin()
        return count + 1, tries[best], values[best], 0.5 * grad @ direction

    def goes_on(state: tuple[Any, ...]) -> Any:
        count, _, now, promised = state
        return (count < MOST) & (promised > CLOSE * now)

    start = jnp.zeros((size, WAYS), x.dtype)
    _, v, _, _ = lax.while_loop(goes_on, step, (0, start, value(start), jnp.asarray(jnp.inf, x.dtype)))
    return (basis @ v[:-1]).T, v[-1]


# all problems, some at a time; on one host device, for jaxlib 0.10 may hang if two factor matrices
solve = jax.jit(lambda x, y: lax.map(lambda one: newton(*one), (x, y), batch_size=TOGETHER))


def build(spec: Spec) -> Callable[[], tuple[Any, Any]]:
    """The benchmark's problems."""
    sizes = spec["sizes"]
    count, dimensions = sizes.get("problems", PROBLEMS), sizes.get("dimensions", DIMENSIONS)
    x, y, _ = problems(count, spec["normalise"], dimensions)
    held = jax.device_put((x.astype(spec["dtype"]), y))
    return lambda: jax.block_until_ready(solve(*held))


class JaxHeads(Worker):
    """Also says how good its solutions are."""

    def solutions(self, count: int, normalise: bool, dtype: str, sizes: dict[str, int]) -> Answer:
        """The objectives of so many problems."""
        x, y, _ = problems(count, normalise, sizes.get("dimensions", DIMENSIONS))
        weights, bias = (np.asarray(part, np.float64) for part in solve(x.astype(dtype), y))
        return {"objectives": objectives(x, y, weights, bias).tolist()}


WORKER = JaxHeads(build)
