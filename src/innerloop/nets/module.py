"""Any ``torch.nn.Module`` as a pure function with explicit buffers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

import innerloop.nets.noise as noise
import innerloop.nets.norms as norms
from innerloop.core.errors import UserError
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.adoption import SplitCheck, last_linear, split_at
from innerloop.nets.network import Network, Pass

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


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


class CountedDropout(nn.Module):
    """Stands in for a module's dropout layer, by :mod:`innerloop.nets.noise`; called again, it draws anew."""

    def __init__(self, replaced: nn.modules.dropout._DropoutNd, name: str) -> None:
        super().__init__()
        self.rate, self.key = noise.check_rate(replaced.p), noise.key(name)
        self.channels = type(replaced) is not nn.Dropout
        self.calls, self.counter = 0, Buffers()

    def forward(self, x: Tensor) -> Tensor:
        """Drops values, or whole channels, if noise is on."""
        self.calls += 1
        return noise.dropout(x, self.counter, self.rate, self.key + (self.calls << 32), self.channels)


class PrimitivePReLU(nn.Module):
    """Stands in for ``nn.PReLU``, whose derivatives under ``vmap`` torch 2.13 gets wrong shapes for."""

    def __init__(self, replaced: nn.PReLU) -> None:
        super().__init__()
        self.weight = replaced.weight

    def forward(self, x: Tensor) -> Tensor:
        """The same function, from primitives."""
        slope = self.weight if x.ndim < 2 else self.weight.view(-1, *[1] * (x.ndim - 2))
        return torch.where(x > 0, x, x * slope)


def replace_layers(module: nn.Module, policy: str) -> nn.Module:
    """A copy whose norms follow ``policy``, with counted dropout, that transforms can differentiate."""
    module = copy.deepcopy(module)
    replaced: dict[nn.Module, nn.Module | None] = {}
    for name, child in list(module.named_modules(remove_duplicate=False)):
        if child not in replaced:
            replaced[child] = _replacement(child, policy, name)
        made = replaced[child]
        if made is None:
            continue
        if not name:
            return made
        setattr(module.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], made)
    return module


def _replacement(layer: nn.Module, policy: str, name: str) -> nn.Module | None:
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return PolicyNorm(layer, policy)
    if isinstance(layer, nn.modules.dropout._DropoutNd) and type(layer) in _DROPOUT:
        return CountedDropout(layer, name)
    return PrimitivePReLU(layer) if type(layer) is nn.PReLU else None


def _noise_of(module: nn.Module) -> list[CountedDropout]:
    """The layers that drop something when noise is on."""
    return [layer for layer in module.modules() if isinstance(layer, CountedDropout) and layer.rate > 0]


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


class _Function:
    """A module as a function of its parameters and buffers."""

    def __init__(self, module: nn.Module) -> None:
        self._skeletons = _Skeletons(module)
        self._params = [name for name, _ in module.named_parameters()]
        self._buffers = [name for name, _ in module.named_buffers()]

    def __call__(self, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The outputs, and the buffers after this pass."""
        skeleton = self._skeletons.get()
        dropping = _noise_of(skeleton) if noise.STEP in buffers else []
        for layer in dropping:
            layer.calls, layer.counter = 0, buffers
        for norm in skeleton.modules():
            if isinstance(norm, PolicyNorm):
                norm.statistics = statistics
        tensors = {name: params[name] for name in self._params}
        tensors |= {name: buffers[name] for name in self._buffers}
        outputs = functional_call(skeleton, tensors, (x,))
        for layer in dropping:
            layer.counter = {}  # what a transform wrapped must not outlive it
        # functional_call writes assigned buffers back into the dict it was given
        seen = {name: tensors[name] for name in self._buffers}
        return outputs, {**buffers, **seen, **noise.advance(buffers)}


def from_module(
    module: nn.Module | Callable[[], nn.Module],
    head: str | None = None,
    norm: str = "transductive",
    example: Tensor | None = None,
) -> Network:
    """A network from a torch module, or from a function that makes one.

    Batch-norm layers are replaced by ones that follow ``norm``, dropout layers in front of the last layer by
    ones that training switches on (:mod:`innerloop.nets.noise`). All else is as in evaluation mode; noise of
    another kind, such as ``F.dropout`` or drop-path, stays off, with a warning. Its outputs must be
    ``head(features)``: the last layer comes last, followed at most by layers without weights in the same
    ``nn.Sequential`` (a softmax), which are then part of the head. This is compared with the module itself,
    on ``example`` or else at the first pass.

    Args:
        module: the module (its present weights are the initial ones), or a factory without arguments (new
            weights are drawn from the generator given to ``init``).
        head: name of the last layer; the last ``nn.Linear`` if omitted.
        norm: the norm policy.
        example: a few inputs. Needed only if the module does not run on numbers between 0 and 1.

    Raises:
        UserError: for a layer that is not there, or one that does not come last.

    >>> net = from_module(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)))
    >>> net.head_names
    ('2.weight', '2.bias')
    """
    if not isinstance(module, nn.Module) and not callable(module):
        raise UserError(f"from_module takes a torch module or a function that makes one, not {module!r}.")
    whole, init = _adopted(module, norm)
    split = split_at(whole, head if head is not None else last_linear(whole))
    own = [name for name, _ in split.readout[0].named_parameters()]
    head_names = tuple(split.prefix + name for name in own)
    body, readouts = _Function(split.body), _Skeletons(split.readout)
    comparison = SplitCheck(whole, split)
    if example is not None:
        comparison.on(example.detach())

    def features(params: Params, buffers: Buffers, x: Tensor, statistics: Statistics) -> Pass:
        """The module up to its last layer; the first pass compares the division with the whole module."""
        if not torch.compiler.is_compiling() and not comparison.done:
            comparison.on_inputs_like(x)
        return body(params, buffers, x, statistics)

    def apply_head(params: Params, z: Tensor) -> Tensor:
        """The last layer, and what follows it."""
        tensors = {f"0.{name}": params[split.prefix + name] for name in own}
        return functional_call(readouts.get(), tensors, (z,))

    return Network(init, features, apply_head, head_names, norm, noise=bool(_noise_of(split.body)))


def whole_module(module: nn.Module, norm: str) -> Network:
    """A module as a network without a last layer of its own, for those who need its outputs only."""
    whole, init = _adopted(module, norm)
    return Network(init, _Function(whole), lambda params, z: z, (), norm, noise=bool(_noise_of(whole)))  # noqa: ARG005


def _adopted(
    module: nn.Module | Callable[[], nn.Module], norm: str
) -> tuple[nn.Module, Callable[[torch.Generator], tuple[Params, Buffers]]]:
    """The module as it will be called, and how to draw its first parameters."""
    norms.check_policy(norm)
    whole = replace_layers(module if isinstance(module, nn.Module) else module(), norm).eval()

    def init(generator: torch.Generator) -> tuple[Params, Buffers]:
        """The module's present tensors, or those of a new module whose weights the generator decides."""
        source = whole
        if not isinstance(module, nn.Module):
            seed = int(torch.randint(2**62, (1,), generator=generator, device=generator.device))
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                source = replace_layers(module(), norm)
        params = {name: p.detach().clone() for name, p in source.named_parameters()}
        return params, {name: b.detach().clone() for name, b in source.named_buffers()}

    return whole, init
