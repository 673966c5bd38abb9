"""Where a module is divided into features and last layer, and whether the two make the module again."""

from __future__ import annotations

import copy
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor, nn

from innerloop.core.errors import UserError

_SCALES = (1.0, 1e3)  # of the last layer's weights: what leaves small or positive outputs alone shows itself


class Split(NamedTuple):
    """A module in two."""

    names: tuple[str, ...]
    body: nn.Module
    readout: nn.Sequential

    @property
    def prefix(self) -> str:
        """What the last layer's parameters begin with."""
        return f"{self.names[0]}." if self.names[0] else ""


def last_linear(module: nn.Module) -> str:
    """The name of the last ``nn.Linear``, the usual readout."""
    names = [name for name, child in module.named_modules() if isinstance(child, nn.Linear)]
    if not names:
        raise UserError("the module has no nn.Linear to serve as its last layer: name it with head='…'.")
    return names[-1]


def split_at(module: nn.Module, head: str) -> Split:
    """Divides at the layer of this name; layers without weights that follow it in a Sequential go with it."""
    try:
        module.get_submodule(head)
    except AttributeError:
        known = ", ".join(name for name, _ in module.named_children())
        raise UserError(f"the module has no layer '{head}'; its layers are {known}.") from None
    carried = ", ".join(name for name, _ in module.get_submodule(head).named_buffers())
    if carried:
        raise UserError(f"the last layer '{head}' has buffers ({carried}): name another layer with head='…'.")
    names = (head, *_followers(module, head))
    readout = nn.Sequential(*(module.get_submodule(name) for name in names))
    if not head:
        return Split(names, nn.Identity(), readout)
    body = copy.deepcopy(module)
    for name in names:
        parent = body.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], nn.Identity())
    return Split(names, body, readout)


def _followers(module: nn.Module, head: str) -> list[str]:
    """Layers that follow ``head`` in its Sequential, and this in the next one, up to a layer with weights."""
    following: list[str] = []
    while head:
        above, _, name = head.rpartition(".")
        parent = module.get_submodule(above)
        if type(parent).forward is not nn.Sequential.forward:
            break
        names = list(parent._modules)  # named_children() leaves out what occurs twice
        for child in names[names.index(name) + 1 :]:
            layer = parent.get_submodule(child)
            if next(layer.parameters(), None) is not None or next(layer.buffers(), None) is not None:
                return following
            following.append(f"{above}.{child}" if above else child)
        head = above
    return following


class SplitCheck:
    """Compares a division with the module itself, once: at the first inputs, whatever encloses that pass."""

    def __init__(self, module: nn.Module, split: Split) -> None:
        self._module, self._split, self._lock = module, split, threading.Lock()
        self.done = False

    def on_inputs_like(self, x: Tensor) -> None:
        """Compares on made-up inputs of this shape, type and device."""
        if x.device.type == "meta":
            return
        shape = (2, *x.shape[1:]) if x.shape[:1] == (0,) else tuple(x.shape)
        about = shape, x.dtype, x.device

        def made_up() -> Tensor:
            """Numbers between 0 and 1, the same in every call."""
            shape, dtype, device = about
            if not dtype.is_floating_point:
                return torch.zeros(shape, dtype=dtype, device=device)
            values = torch.rand(shape, generator=torch.Generator().manual_seed(0))
            return values.to(device, dtype)

        # another thread is outside of every transform, tracer and mode that this one may be in
        with self._lock, ThreadPoolExecutor(1) as pool:
            if not self.done:
                pool.submit(lambda: self.on(made_up())).result()

    def on(self, x: Tensor) -> None:
        """Compares on these inputs."""
        kind = x.dtype if x.is_floating_point() else None
        probe = copy.deepcopy(self._module).to(x.device, kind)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                last = _last_layers(probe, self._split.names[0], x)
        except UserError:
            raise
        except Exception as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"the module does not run on inputs of shape {tuple(x.shape)} ({line}): its layers do not "
                "fit them, or it wants inputs of a special kind, of which from_module takes some as example."
            ) from error
        head = self._split.names[0]
        comes_last = probe.get_submodule(self._split.names[-1]) in last
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            if not comes_last and not _commutes(probe, head, x):
                raise UserError(_refusal(probe, head, last))
            if _draws(probe, x):
                warnings.warn(
                    "the module draws random numbers in training other than by dropout layers of torch "
                    "(nn.Dropout, nn.Dropout2d, …): that noise is not switched on for training.",
                    stacklevel=2,
                )
        self.done = True


def _last_layers(module: nn.Module, head: str, x: Tensor) -> list[nn.Module]:
    """Layers, called once, whose output, untouched, is the module's, inner first; none if ``head`` recurs."""
    given: dict[nn.Module, list[tuple[object, int]]] = {}

    def note(layer: nn.Module, _: object, output: object) -> None:
        """Keeps what a layer gave, and how often that had been changed in place."""
        version = output._version if isinstance(output, Tensor) else 0
        given.setdefault(layer, []).append((output, version))

    hooks = [layer.register_forward_hook(note) for layer in module.modules()]
    outputs = module(x)
    for hook in hooks:
        hook.remove()
    if not isinstance(outputs, Tensor):
        raise UserError(f"the module gives a {type(outputs).__name__}, not one tensor: make it give one.")
    if len(given.get(module.get_submodule(head), ())) > 1:
        return []
    return [
        layer
        for layer, calls in given.items()
        if len(calls) == 1 and calls[0][0] is outputs and calls[0][1] == outputs._version
    ]


def _commutes(module: nn.Module, head: str, x: Tensor) -> bool:
    """Whether what follows the last layer may as well precede it, whatever its weights: a mean does."""
    for scale in (None, *_SCALES):
        if scale is not None:
            generator = torch.Generator().manual_seed(0)
            for p in module.get_submodule(head).parameters():
                p.copy_(scale * torch.randn(p.shape, generator=generator).to(p))
        split = split_at(module, head)
        torch.default_generator.manual_seed(0)
        whole = module(x)
        torch.default_generator.manual_seed(0)
        try:
            ours = split.readout(split.body(x))
        except Exception:  # what follows the layer does not take what enters it
            return False
        if ours.shape != whole.shape:
            return False
        rounding = 1e3 * torch.finfo(whole.dtype).eps * float(whole.abs().max())
        if not float((ours - whole).abs().max()) <= rounding:
            return False
    return True


def _draws(module: nn.Module, x: Tensor) -> bool:
    """Whether a pass in training mode takes random numbers."""
    before = torch.default_generator.get_state()
    try:
        module.cpu().train()(x.cpu())
    except Exception:  # training may ask more of inputs
        return False
    return not torch.equal(before, torch.default_generator.get_state())


def _refusal(module: nn.Module, head: str, last: list[nn.Module]) -> str:
    """One sentence with the layer to name."""
    begin = f"the module's outputs are not those of its layer '{head}', which was taken for the last one"
    name_of = {layer: name for name, layer in module.named_modules()}
    fit = [layer for layer in last if name_of[layer] and next(layer.buffers(), None) is None]
    if not fit:
        return (
            f"{begin}: the module does something to them afterwards; leave that out, or make it and '{head}' "
            "one layer and give its name as head='…'."
        )
    weighty = [layer for layer in fit if next(layer.parameters(), None) is not None]
    name = name_of[(weighty or fit)[0]]
    return f"{begin}, but those of '{name}': give head='{name}'."
