"""The libraries we are compared with, used as their own examples use them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
LIBRARIES = ("higher", "torchopt")


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


def higher_gradient(
    kind: str, loss: Loss, params: Params, lr: float, steps: int, fields: tuple[Tensor, ...]
) -> Callable[[], Params]:
    """``higher.innerloop_ctx``, one task after the other."""
    import higher

    module = module_for(kind, params)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)

    def run() -> Params:
        """The mean gradient over tasks."""
        module.zero_grad()
        for x_support, y_support, x_query, y_query in zip(*fields, strict=True):
            with higher.innerloop_ctx(module, optimiser, copy_initial_weights=False) as (net, inner):
                for _ in range(steps):
                    inner.step(loss(net(x_support), y_support))
                loss(net(x_query), y_query).backward()
        tasks = fields[0].shape[0]
        return {
            name: p.grad / tasks
            for name, p in zip(params, module.parameters(), strict=True)
            if p.grad is not None
        }

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
        """The mean gradient over tasks."""
        for leaf in leaves:
            leaf.grad = None
        for x_support, y_support, x_query, y_query in zip(*fields, strict=True):
            for _ in range(steps):
                inner.step(loss(module(x_support), y_support))
            loss(module(x_query), y_query).backward()
            torchopt.recover_state_dict(module, start)
            torchopt.recover_state_dict(inner, optimiser_start)
        tasks = fields[0].shape[0]
        return {
            name: leaf.grad / tasks
            for name, leaf in zip(params, leaves, strict=True)
            if leaf.grad is not None
        }

    return run
