"""Whom MAML is compared with: the fastest loop over tasks that we can write in plain PyTorch, and libraries.

The plain loop is the headline peer. Parameters are a dict, inner gradients come from
``torch.autograd.grad(create_graph=True)``. No module is cloned or patched, nothing is computed twice, and
nothing of ``innerloop`` is used. ``F.batch_norm`` is right here (plain autograd, no ``vmap``), and fast. With
strides, pictures and filters are channels-last: that makes the loop about a fifth faster than the usual
layout on one inner step. With max pooling it makes it a quarter slower, so there the layout is the usual one.

The libraries are used as their own examples use them.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Params = dict[str, Tensor]
Forward = Callable[[Params, Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


# ---- the plain loop ----


def mlp(params: Params, x: Tensor) -> Tensor:
    """Three dense layers, ReLU between them."""
    x = F.relu(F.linear(x, params["layer0.weight"], params["layer0.bias"]))
    x = F.relu(F.linear(x, params["layer1.weight"], params["layer1.bias"]))
    return F.linear(x, params["layer2.weight"], params["layer2.bias"])


def features(pooling: bool, params: Params, x: Tensor) -> Tensor:
    """Conv4's, with batch statistics; strides of two, or max pooling, then ReLU on what is left: the same."""
    if not pooling:
        x = _channels_last(x)  # contiguous() would leave pictures of one channel as they are
    for i in range(4):
        stride = 1 if pooling else 2
        x = F.conv2d(x, params[f"conv{i}.weight"], params[f"conv{i}.bias"], stride=stride, padding=1)
        x = F.batch_norm(x, None, None, params[f"norm{i}.weight"], params[f"norm{i}.bias"], training=True)
        x = (F.max_pool2d(x, 2) if pooling else x).relu_()  # batch norm does not need its result again
    return x.flatten(1)


def conv4(pooling: bool, params: Params, x: Tensor) -> Tensor:
    """Conv4 and its last layer."""
    return F.linear(features(pooling, params, x), params["head.weight"], params["head.bias"])


FORWARDS: dict[str, Forward] = {"mlp": mlp, "conv": partial(conv4, False), "pooled": partial(conv4, True)}


def task_gradient(
    forward: Forward, loss: Loss, params: Params, lr: float, steps: int, task: tuple[Tensor, ...]
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
    laid_out = (lambda value: value) if forward is FORWARDS["pooled"] else _channels_last
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


def protonet_gradient(loss: Loss, params: Params, fields: tuple[Tensor, ...]) -> Params:
    """The gradient of ProtoNet's loss on one task: logits are minus squared distances to class means."""
    x_support, y_support, x_query, y_query = (field[0] for field in fields)
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    means = F.one_hot(y_support).T.to(x_support) @ features(True, leaves, x_support)
    means = means / y_support.bincount()[:, None]
    distances = (features(True, leaves, x_query)[:, None] - means).square().sum(-1)
    grads = torch.autograd.grad(loss(-distances, y_query), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True))


def _channels_last(value: Tensor) -> Tensor:
    return value.to(memory_format=torch.channels_last) if value.ndim == 4 else value


# ---- libraries ----


def module_for(kind: str, params: Params) -> nn.Module:
    """A module with the weights of ``params``, whose order is that of its layers; batch statistics always."""
    layers: list[nn.Module] = []
    if kind == "mlp":
        n = len(params["layer0.weight"])
        layers += [nn.Linear(1, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 1)]
    else:
        (ways, features), pooling = params["head.weight"].shape, kind == "pooled"
        filters, channels = params["conv0.weight"].shape[:2]
        for inputs in (channels, filters, filters, filters):
            layers.append(nn.Conv2d(inputs, filters, 3, stride=1 if pooling else 2, padding=1))
            layers += [nn.BatchNorm2d(filters, track_running_stats=False), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if pooling else []
        layers += [nn.Flatten(), nn.Linear(features, ways)]
    module = nn.Sequential(*layers).to(next(iter(params.values())).dtype)
    with torch.no_grad():
        for mine, given in zip(module.parameters(), params.values(), strict=True):
            if mine.shape != given.shape:
                raise ValueError("the peer's module has other shapes than ours")
            mine.copy_(given)
    return module


def by_library(
    library: str, kind: str, loss: Loss, params: Params, lr: float, steps: int, fields: tuple[Tensor, ...]
) -> Callable[[], Params]:
    """The mean gradient by one of :data:`LIBRARIES`, one task after the other."""
    module = module_for(kind, params)
    backward = LIBRARIES[library](module, loss, lr, steps)

    def run() -> Params:
        module.zero_grad()
        for task in zip(*fields, strict=True):
            backward(*task)
        named = zip(params, module.parameters(), strict=True)
        return {name: p.grad / len(fields[0]) for name, p in named if p.grad is not None}

    return run


def higher_task(module: nn.Module, loss: Loss, lr: float, steps: int) -> Callable[..., None]:
    """``higher.innerloop_ctx``."""
    import higher

    optimiser = torch.optim.SGD(module.parameters(), lr=lr)

    def backward(x_support: Tensor, y_support: Tensor, x_query: Tensor, y_query: Tensor) -> None:
        with higher.innerloop_ctx(module, optimiser, copy_initial_weights=False) as (net, inner):
            for _ in range(steps):
                inner.step(loss(net(x_support), y_support))
            loss(net(x_query), y_query).backward()

    return backward


def torchopt_task(module: nn.Module, loss: Loss, lr: float, steps: int) -> Callable[..., None]:
    """``torchopt.MetaSGD``, as in its MAML example, but one backward pass per task to spare memory."""
    import torchopt

    inner = torchopt.MetaSGD(module, lr=lr)
    start, inner_start = (torchopt.extract_state_dict(of, by="reference") for of in (module, inner))

    def backward(x_support: Tensor, y_support: Tensor, x_query: Tensor, y_query: Tensor) -> None:
        for _ in range(steps):
            inner.step(loss(module(x_support), y_support))
        loss(module(x_query), y_query).backward()
        torchopt.recover_state_dict(module, start)
        torchopt.recover_state_dict(inner, inner_start)

    return backward


LIBRARIES = {"higher": higher_task, "torchopt": torchopt_task}
