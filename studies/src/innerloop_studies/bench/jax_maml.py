"""MAML in JAX, jitted, on one host device or two; runs in an environment of its own, without torch.

Convolutions are products of patches laid out (``im2col``), or ``lax.conv_general_dilated``; pictures are
channels last, and weights lie as JAX wants them before the clock starts.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from innerloop_studies.bench.worker import Spec, Worker

Params = dict[str, Any]
Function = Callable[[Any, Any], Any]
EPS = 1e-5  # as torch and we have it


def mlp(params: Params, x: Any) -> Any:
    """Three dense layers, ReLU between them."""
    for i in range(3):
        x = x @ params[f"layer{i}.weight"] + params[f"layer{i}.bias"]
        x = jax.nn.relu(x) if i < 2 else x
    return x


def patches(x: Any, stride: int) -> Any:
    """What every place of a 3×3 convolution sees, ``(samples, height, width, 9 · channels)``."""
    h, w = ((side - 1) // stride + 1 for side in x.shape[1:3])
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [
        x[:, i : i + stride * (h - 1) + 1 : stride, j : j + stride * (w - 1) + 1 : stride]
        for i in range(3)
        for j in range(3)
    ]
    return jnp.concatenate(taps, -1)


def by_patches(x: Any, weight: Any, stride: int) -> Any:
    """A 3×3 convolution as one product."""
    seen, filters = patches(x, stride), weight.shape[-1]
    return (seen.reshape(-1, seen.shape[-1]) @ weight.reshape(-1, filters)).reshape(*seen.shape[:3], filters)


def by_lax(x: Any, weight: Any, stride: int) -> Any:
    """A 3×3 convolution as XLA has it."""
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, weight, (stride,) * 2, ((1, 1),) * 2, dimension_numbers=layout)


def larger(a: Any, b: Any) -> Any:
    """The larger one. XLA may round again what ``jnp.max`` compares, and then loses its gradient."""
    return jnp.where(a >= b, a, b)


def features(convolve: Callable[..., Any], pooling: bool, params: Params, x: Any) -> Any:
    """Conv4's, with batch statistics; strides of two, or max pooling."""
    for i in range(4):
        x = convolve(x, params[f"conv{i}.weight"], 1 if pooling else 2) + params[f"conv{i}.bias"]
        mean = x.mean((0, 1, 2))
        scale = lax.rsqrt(((x - mean) ** 2).mean((0, 1, 2)) + EPS) * params[f"norm{i}.weight"]
        x = (x - mean) * scale + params[f"norm{i}.bias"]
        if pooling:
            h, w = (side // 2 * 2 for side in x.shape[1:3])
            upper = larger(x[:, :h:2, :w:2], x[:, :h:2, 1:w:2])
            x = larger(upper, larger(x[:, 1:h:2, :w:2], x[:, 1:h:2, 1:w:2]))
        x = jax.nn.relu(x)
    return x.reshape(len(x), -1)


def conv4(convolve: Callable[..., Any], pooling: bool, params: Params, x: Any) -> Any:
    """Conv4 and its last layer."""
    return features(convolve, pooling, params, x) @ params["head.weight"] + params["head.bias"]


def cross_entropy(outputs: Any, labels: Any) -> Any:
    """The mean over samples."""
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), labels[:, None], 1).mean()


def squared_error(outputs: Any, targets: Any) -> Any:
    """The mean over samples and outputs."""
    return ((outputs - targets) ** 2).mean()


def as_jax_has_them(params: Params, filters: int) -> Params:
    """Weights in JAX's layout; the last layer of Conv4 reads places before channels."""
    turned = {}
    for name, value in params.items():
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif value.ndim == 2 and filters:
            value = value.reshape(len(value), filters, -1).transpose(2, 1, 0).reshape(-1, len(value))
        turned[name] = value.T if value.ndim == 2 and not filters else value
    return turned


def build(spec: Spec) -> Callable[[], Params]:
    """The meta-gradient of the tasks in ``inputs``, a file of numpy."""
    given = dict(np.load(spec["inputs"]))
    x_in, y_in, x_out, y_out = (given.pop(f"task.{i}") for i in range(4))
    given_labels, pooled, filters = y_in, spec["workload"] in ("pooled", "protonet"), 0
    network: Function = mlp
    loss: Function = squared_error
    if spec["workload"] != "sine":
        convolve = {"im2col": by_patches, "lax": by_lax}[spec["convolution"]]
        network, loss = functools.partial(conv4, convolve, pooled), cross_entropy
        x_in, x_out = (x.transpose(0, 1, 3, 4, 2) for x in (x_in, x_out))
        filters = len(given["conv3.weight"])

    def task_loss(params: Params, x_in: Any, y_in: Any, x_out: Any, y_out: Any) -> Any:
        """The query loss after the inner steps; ProtoNet's by distances to class means."""
        if spec["workload"] == "protonet":
            hot = jax.nn.one_hot(y_in, int(given_labels.max()) + 1, axis=0)
            means = hot @ features(convolve, True, params, x_in) / hot.sum(1, keepdims=True)
            out = features(convolve, True, params, x_out)
            return loss(-((out[:, None] - means) ** 2).sum(-1), y_out)
        adapted = params
        for _ in range(spec["steps"]):
            grads = jax.grad(lambda p: loss(network(p, x_in), y_in))(adapted)
            adapted = {name: value - spec["lr"] * grads[name] for name, value in adapted.items()}
        return loss(network(adapted, x_out), y_out)

    def mean_gradient(params: Params, *tasks: Any) -> Params:
        """Of a device's tasks: small networks under ``vmap``, pictures task by task."""
        if not filters:
            return jax.grad(lambda p: jax.vmap(lambda *task: task_loss(p, *task))(*tasks).mean())(params)
        each = lax.map(lambda task: jax.grad(task_loss)(params, *task), tasks)
        return {name: value.mean(0) for name, value in each.items()}

    def sharded(params: Params, *tasks: Any) -> Params:
        """Of all devices."""
        return lax.pmean(mean_gradient(params, *tasks), "tasks")

    devices, over_all = jax.devices(), mean_gradient
    if len(devices) > 1:
        split = PartitionSpec("tasks")
        layout = {"in_specs": (PartitionSpec(), *[split] * 4), "out_specs": PartitionSpec()}
        over_all = jax.shard_map(sharded, mesh=Mesh(np.array(devices), ("tasks",)), check_vma=False, **layout)

    def gradient(params: Params, *tasks: Any) -> Params:
        """In torch's layout, from parameters in torch's layout."""
        turned, back = jax.vjp(functools.partial(as_jax_has_them, filters=filters), params)
        return back(over_all(turned, *tasks))[0]

    compiled, held = jax.jit(gradient), jax.device_put((given, x_in, y_in, x_out, y_out))
    return lambda: jax.block_until_ready(compiled(*held))


def flat(outcome: Params) -> np.ndarray[Any, Any]:
    """Gradients one after another, in the order of their names."""
    return np.concatenate([np.asarray(outcome[name], np.float64).ravel() for name in sorted(outcome)])


WORKER = Worker(build, flat)
