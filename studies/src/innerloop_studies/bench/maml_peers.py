"""Whom MAML is compared with: the fastest loop over tasks that we can write in plain PyTorch, and libraries.

The plain loop is the headline peer. Parameters are a dict, inner gradients come from
``torch.autograd.grad(create_graph=True)``. No module is cloned or patched, nothing is computed twice, and
nothing of ``innerloop`` is used. ``F.batch_norm`` is right here (plain autograd, no ``vmap``), and fast. With
strides, pictures and filters are channels-last: that makes the loop about a fifth faster than the usual
layout on one inner step. With max pooling it makes it a quarter slower, so there the layout is the usual one.

The libraries are used as their own examples use them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Params = dict[str, Tensor]
Forward = Callable[[Params, Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
LIBRARIES = ("higher", "torchopt")


# ---- the plain loop ----


def mlp(params: Params, x: Tensor) -> Tensor:
    """Three dense layers, ReLU between them."""
    x = F.relu(F.linear(x, params["layer0.weight"], params["layer0.bias"]))
    x = F.relu(F.linear(x, params["layer1.weight"], params["layer1.bias"]))
    return F.linear(x, params["layer2.weight"], params["layer2.bias"])


def conv(params: Params, x: Tensor) -> Tensor:
    """Conv4 with strides of two and batch statistics."""
    x = _channels_last(x)  # contiguous() would leave pictures of one channel as they are
    for i in range(4):
        x = F.conv2d(x, params[f"conv{i}.weight"], params[f"conv{i}.bias"], stride=2, padding=1)
        x = F.batch_norm(x, None, None, params[f"norm{i}.weight"], params[f"norm{i}.bias"], training=True)
        x = x.relu_()  # batch norm does not need its result again
    return F.linear(x.flatten(1), params["head.weight"], params["head.bias"])


def pooled(params: Params, x: Tensor) -> Tensor:
    """Conv4 with max pooling and batch statistics; ReLU on what is left after pooling, which is the same."""
    for i in range(4):
        x = F.conv2d(x, params[f"conv{i}.weight"], params[f"conv{i}.bias"], padding=1)
        x = F.batch_norm(x, None, None, params[f"norm{i}.weight"], params[f"norm{i}.bias"], training=True)
        x = F.max_pool2d(x, 2).relu_()
    return F.linear(x.flatten(1), params["head.weight"], params["head.bias"])


def task_gradient(
    forward: Forward,
    loss: Loss,
    params: Params,
    lr: float,
    steps: int,
    task: tuple[Tensor, Tensor, Tensor, Tensor],
) -> tuple[Tensor, ...]:
    """The gradient of the query loss after ``steps`` inner steps, in the order of ``params``."""
    x_support, y_support, x_query, y_query = task
    names, start = list(params), list(params.values())
    current = start
    for _ in range(steps):
        inner = loss(forward(dict(zip(names, current, strict=True)), x_support), y_support)
        grads = torch.autograd.grad(inner, current, create_graph=True)
        current = list(torch._foreach_add(current, grads, alpha=-lr))
    outer = loss(forward(dict(zip(names, current, strict=True)), x_query), y_query)
    return torch.autograd.grad(outer, start)


def meta_gradient(
    forward: Forward, loss: Loss, params: Params, lr: float, steps: int, fields: tuple[Tensor, ...]
) -> Params:
    """The gradient of the mean query loss over tasks; ``fields`` are support x, y and query x, y, stacked."""
    laid_out = (lambda value: value) if forward is pooled else _channels_last
    leaves = {name: laid_out(value.detach()).requires_grad_() for name, value in params.items()}
    total: list[Tensor] | None = None
    for task in zip(*fields, strict=True):
        grads = task_gradient(forward, loss, leaves, lr, steps, task)
        if total is None:
            total = list(grads)
        else:
            torch._foreach_add_(total, grads)
    assert total is not None
    return {name: g / fields[0].shape[0] for name, g in zip(leaves, total, strict=True)}


def _channels_last(value: Tensor) -> Tensor:
    return value.to(memory_format=torch.channels_last) if value.ndim == 4 else value


FORWARDS: dict[str, Forward] = {"mlp": mlp, "conv": conv, "pooled": pooled}


# ---- libraries ----


def installed() -> list[str]:
    """Those of the peers that are installed here."""
    return [name for name in LIBRARIES if find_spec(name) is not None]


def mlp_module(hidden: int) -> nn.Module:
    """Three dense layers, ReLU between them."""
    return nn.Sequential(
        nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
    )


def conv_module(channels: int, filters: int, features: int, ways: int, pooling: bool = False) -> nn.Module:
    """Conv4 with strides of two or max pooling; batch statistics always, as in MAML."""
    blocks: list[nn.Module] = []
    for i in range(4):
        blocks += [
            nn.Conv2d(channels if i == 0 else filters, filters, 3, stride=1 if pooling else 2, padding=1),
            nn.BatchNorm2d(filters, track_running_stats=False),
            nn.ReLU(),
            *([nn.MaxPool2d(2)] if pooling else []),
        ]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(features, ways))


def module_for(kind: str, params: Params) -> nn.Module:
    """A module with the weights of ``params``, whose order is that of its layers."""
    if kind == "mlp":
        module: nn.Module = mlp_module(params["layer0.weight"].shape[0])
    else:
        ways, features = params["head.weight"].shape
        filters, channels = params["conv0.weight"].shape[:2]
        module = conv_module(channels, filters, features, ways, pooling=kind == "pooled")
    own = list(module.parameters())
    if [tuple(p.shape) for p in own] != [tuple(p.shape) for p in params.values()]:
        raise ValueError("the peer's module has other shapes than ours")
    module.to(next(iter(params.values())).dtype)
    with torch.no_grad():
        for mine, given in zip(own, params.values(), strict=True):
            mine.copy_(given)
    return module


def _means(params: Params, module: nn.Module, tasks: int) -> Params:
    named = zip(params, module.parameters(), strict=True)
    return {name: p.grad / tasks for name, p in named if p.grad is not None}


def higher_gradient(
    kind: str, loss: Loss, params: Params, lr: float, steps: int, fields: tuple[Tensor, ...]
) -> Callable[[], Params]:
    """``higher.innerloop_ctx``, one task after the other."""
    import higher

    module = module_for(kind, params)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)

    def run() -> Params:
        module.zero_grad()
        for x_support, y_support, x_query, y_query in zip(*fields, strict=True):
            with higher.innerloop_ctx(module, optimiser, copy_initial_weights=False) as (net, inner):
                for _ in range(steps):
                    inner.step(loss(net(x_support), y_support))
                loss(net(x_query), y_query).backward()
        return _means(params, module, len(fields[0]))

    return run


def torchopt_gradient(
    kind: str, loss: Loss, params: Params, lr: float, steps: int, fields: tuple[Tensor, ...]
) -> Callable[[], Params]:
    """``torchopt.MetaSGD``, as in its MAML example, but one backward pass per task to spare memory."""
    import torchopt

    module = module_for(kind, params)
    inner = torchopt.MetaSGD(module, lr=lr)
    leaves = list(module.parameters())
    start = torchopt.extract_state_dict(module, by="reference")
    optimiser_start = torchopt.extract_state_dict(inner, by="reference")

    def run() -> Params:
        for leaf in leaves:
            leaf.grad = None
        for x_support, y_support, x_query, y_query in zip(*fields, strict=True):
            for _ in range(steps):
                inner.step(loss(module(x_support), y_support))
            loss(module(x_query), y_query).backward()
            torchopt.recover_state_dict(module, start)
            torchopt.recover_state_dict(inner, optimiser_start)
        return _means(params, module, len(fields[0]))

    return run
