"""A network as the function whose tangent kernel is asked for, what is checked before, and its memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from innerloop.core.autodiff import untransformed
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.module import from_module, whole_module
from innerloop.nets.network import Network, apply

Output: TypeAlias = Literal["sum", "trace", "full"]
"""What to make of several outputs: the kernel of their sum, the mean over outputs of each one's own kernel,
or every pair of them."""

MEMORY = 2**30  # bytes that a kernel may use beside its inputs and itself, if nothing is said


class Tangent(NamedTuple):
    """A function of some parameters, the others fixed."""

    forward: Callable[[Params, Tensor], Tensor]
    params: Params
    outputs: int
    mixes: bool
    layers: tuple[tuple[str, tuple[int, ...]], ...] = ()


def as_network(
    network: Network | nn.Module, params: Params | None, buffers: Buffers | None, divided: bool = True
) -> tuple[Network, Params, Buffers]:
    """A network with its parameters; a module's own by default, taken whole unless ``divided``."""
    if isinstance(network, nn.Module):
        made = from_module(network, norm="running") if divided else whole_module(network, norm="running")
        own, stats = made.init(torch.Generator())
        return made, own if params is None else params, stats if buffers is None else buffers
    if params is None:
        raise UserError(
            "a Network has no parameters of its own: give params, for example network.init(generator)[0]."
        )
    return network, params, {} if buffers is None else buffers


def tangent(
    network: Network | nn.Module,
    params: Params | None,
    x: Tensor,
    buffers: Buffers | None = None,
    names: Collection[str] | None = None,
    statistics: Statistics = "stored",
) -> Tangent:
    """The function to differentiate, after a look at what it does to a few of the inputs."""
    network, params, buffers = as_network(network, params, buffers, divided=False)
    wanted = list(params) if names is None else list(names)
    for name in wanted:
        if name not in params:
            raise UserError(f"the network has no parameter '{name}'{did_you_mean(name, params)}.")
    fixed = {name: p.detach() for name, p in params.items() if name not in set(wanted)}
    stored = {name: b.detach() for name, b in buffers.items()}

    def forward(part: Params, x: Tensor) -> Tensor:
        """The outputs, flattened, as a function of the parameters whose kernel is wanted."""
        outputs = apply(network, {**fixed, **part}, stored, x, statistics)[0]
        return outputs.reshape(outputs.shape[0], -1)

    part = {name: params[name].detach() for name in wanted}
    with torch.no_grad(), untransformed():
        if network.layered:  # its last layer tells what a pass would
            last = next(p for name in network.head_names if (p := params[name]).ndim == 2)
            layers = tuple((name, tuple(p.shape)) for name, p in params.items())
            return Tangent(forward, part, len(last), mixes=False, layers=layers)
        outputs = forward(part, x[:2])
        mixes = len(x) > 1 and not _close(outputs[1:2], forward(part, x[1:2]))
    return Tangent(forward, part, outputs.shape[1], mixes)


def _close(a: Tensor, b: Tensor) -> bool:
    """Equal but for rounding: another batch size may sum in another order."""
    scale = float(torch.maximum(a.abs().max(), b.abs().max()))
    return float((a - b).abs().max()) <= 1e3 * torch.finfo(a.dtype).eps * scale


def refuse_mixing(t: Tangent, method: str) -> None:
    """Batch statistics make every output a function of all inputs, so there is no kernel of two of them."""
    if t.mixes:
        raise UserError(
            "a sample's output depends on the samples beside it (batch statistics), which "
            f"method='{method}' cannot follow: use the norm policy 'group', stored statistics, or "
            "method='jacobian', which takes each set of inputs as one batch."
        )


def check_output(output: str) -> None:
    """Refuses words that are not known."""
    if output not in ("sum", "trace", "full"):
        known = ["sum", "trace", "full"]
        raise UserError(
            f"unknown output '{output}'{did_you_mean(output, known)}; there are {', '.join(known)}."
        )


def contract(a: Tensor, b: Tensor, output: Output) -> Tensor:
    """The kernel of Jacobians ``(n, rows, p)`` and ``(m, rows, p)``, whose rows are outputs or their sum."""
    if output == "full":
        flat = a.flatten(0, 1) @ b.flatten(0, 1).mT
        return flat.view(*a.shape[:2], *b.shape[:2]).transpose(1, 2)
    return a.flatten(1) @ b.flatten(1).mT / (a.shape[1] if output == "trace" else 1)


@contextmanager
def count_saved(seen: dict[int, int], t: Tangent) -> Iterator[None]:
    """Notes what autograd would keep for the backward pass, in bytes by place, parameters excepted."""
    # nothing is kept in fact, so no backward pass may follow: a tensor that a hook hands back is held for
    # ever by the function that made it, if no backward pass lets it go
    own = {p.untyped_storage().data_ptr() for p in t.params.values()}

    alive = []  # else the next tensor could take a freed one's place, and would not be counted

    def pack(tensor: Tensor) -> None:
        """Counts a tensor that autograd would keep."""
        alive.append(tensor.detach())
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()

    def unpack(_: None) -> Tensor:
        """Refuses a backward pass."""
        raise RuntimeError("nothing was kept for a backward pass")

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


def saved_bytes(t: Tangent, x: Tensor) -> int:
    """Bytes that one sample's forward pass keeps for its backward pass: one is passed and counted."""
    seen: dict[int, int] = {}
    params = {name: p.detach().requires_grad_() for name, p in t.params.items()}
    with torch.enable_grad(), count_saved(seen, t):
        outputs = t.forward(params, x[:1])
    del outputs
    return sum(seen.values())


def block_size(per_sample: int, memory: int, most: int) -> int:
    """How many samples fit."""
    if per_sample > memory:
        raise UserError(
            f"one sample needs about {max(per_sample >> 20, 1)} MB, more than memory={memory} bytes: "
            "raise memory."
        )
    return max(1, min(most, memory // max(per_sample, 1)))
