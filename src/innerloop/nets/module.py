"""Any ``torch.nn.Module`` as a pure function with explicit buffers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

import innerloop.nets.norms as norms
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Network


class PolicyNorm(nn.Module):
    """Stands in for a batch-norm layer of a user's module; normalises by the declared policy."""

    def __init__(self, replaced: nn.modules.batchnorm._BatchNorm, policy: str) -> None:
        super().__init__()
        self.policy, self.eps, self.channels = policy, replaced.eps, replaced.num_features
        self.statistics: Statistics = "batch"
        if replaced.affine and policy != "none":
            self.weight, self.bias = replaced.weight, replaced.bias
        _, buffers = norms.init_norm("n", replaced.num_features, policy)
        known = {"mean": replaced.running_mean, "var": replaced.running_var} if policy == "running" else {}
        example = next(iter([*replaced.parameters(), *replaced.buffers()]), torch.empty(0))
        for name, value in buffers.items():
            given = known.get(name[2:])
            self.register_buffer(name[2:], value.to(example) if given is None else given.clone())

    def forward(self, x: Tensor) -> Tensor:
        """Normalises, and assigns (never mutates) the buffers, which functional calls hand back."""
        params: Params = {f"n.{k}": v for k, v in self._parameters.items() if v is not None}
        if not params and self.policy != "none":  # a layer without scale and shift stays one
            params = {"n.weight": x.new_ones(self.channels), "n.bias": x.new_zeros(self.channels)}
        buffers: Buffers = {f"n.{k}": v for k, v in self._buffers.items() if v is not None}
        y, changed = norms.norm("n", self.policy, params, buffers, x, self.statistics, self.eps)
        for name, value in changed.items():
            setattr(self, name[2:], value)
        return y


def replace_batch_norms(module: nn.Module, policy: str) -> nn.Module:
    """A copy of ``module`` whose batch-norm layers follow ``policy``; scale, shift and epsilon are kept."""
    module = copy.deepcopy(module)
    for name, child in list(module.named_modules()):
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            parent = module.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], PolicyNorm(child, policy))
    return module


def last_linear(module: nn.Module) -> str:
    """The name of the last ``nn.Linear``, the usual readout."""
    names = [name for name, child in module.named_modules() if isinstance(child, nn.Linear)]
    if not names:
        raise UserError("the module has no nn.Linear to serve as its last layer: name it with head='…'.")
    return names[-1]


def split_at(module: nn.Module, head: str) -> tuple[nn.Module, nn.Module]:
    """The layer of this name, and a copy of the module that passes its input through there."""
    try:
        readout = module.get_submodule(head)
    except AttributeError:
        known = ", ".join(name for name, _ in module.named_children())
        raise UserError(f"the module has no layer '{head}'; its layers are {known}.") from None
    body = copy.deepcopy(module)
    parent = body.get_submodule(head.rpartition(".")[0])
    setattr(parent, head.rpartition(".")[2], nn.Identity())
    return readout, body


class _Skeletons:
    """One structure per thread, because ``functional_call`` swaps tensors on the module it is given."""

    def __init__(self, module: nn.Module) -> None:
        self._original = module
        self._local = threading.local()
        self._lock = threading.Lock()

    def get(self) -> nn.Module:
        """This thread's own."""
        if not hasattr(self._local, "module"):
            with self._lock:
                self._local.module = copy.deepcopy(self._original).to("meta")
        return self._local.module


def from_module(
    module: nn.Module | Callable[[], nn.Module], head: str | None = None, norm: str = "transductive"
) -> Network:
    """A network from a torch module, or from a function that makes one.

    Batch-norm layers are replaced by ones that follow ``norm``. The module is used in evaluation mode, so
    dropout is off. Its outputs must be ``head(features)``: the last layer comes last
    (:func:`innerloop.testing.check_network` tests it).

    Args:
        module: the module (its present weights are the initial ones), or a factory without arguments (new
            weights are drawn from the generator given to ``init``).
        head: name of the last layer; the last ``nn.Linear`` if omitted.
        norm: the norm policy.

    >>> net = from_module(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)))
    >>> net.head_names
    ('2.weight', '2.bias')
    """
    norms.check_policy(norm)
    make = (lambda: module) if isinstance(module, nn.Module) else module
    whole = replace_batch_norms(make(), norm).eval()
    head = head if head is not None else last_linear(whole)
    readout, body = split_at(whole, head)
    head_names = tuple(f"{head}.{name}" for name, _ in readout.named_parameters())
    bodies, readouts = _Skeletons(body), _Skeletons(readout)
    body_names = [name for name, _ in body.named_parameters()]
    buffer_names = [name for name, _ in body.named_buffers()]

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        source = whole
        if not isinstance(module, nn.Module):
            seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                source = replace_batch_norms(module(), norm)
        params = {name: p.detach().clone() for name, p in source.named_parameters()}
        return params, {name: b.detach().clone() for name, b in source.named_buffers()}

    def features(
        params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
    ) -> tuple[Tensor, Buffers]:
        skeleton = bodies.get()
        for layer in skeleton.modules():
            if isinstance(layer, PolicyNorm):
                layer.statistics = statistics
        tensors = {name: params[name] for name in body_names}
        tensors |= {name: buffers[name] for name in buffer_names}
        outputs = functional_call(skeleton, tensors, (x,))
        # functional_call writes assigned buffers back into the dict it was given
        return outputs, {**buffers, **{name: tensors[name] for name in buffer_names}}

    def apply_head(params: Params, z: Tensor) -> Tensor:
        tensors = {name[len(head) + 1 :]: params[name] for name in head_names}
        return functional_call(readouts.get(), tensors, (z,))

    return Network(init, features, apply_head, head_names, norm)
