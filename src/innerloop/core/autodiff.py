"""Inner gradients, by whichever of torch's two ways the caller runs under.

``torch.func.grad`` composes with ``vmap`` and is the default. Where tasks are run one at a time
(execution modes ``loop`` and ``threads``), ``torch.autograd.grad`` gives the same numbers about ten per
cent faster on convolutional networks, so those executors switch to it with :func:`plain_autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from innerloop.core.types import Params

_PLAIN: ContextVar[bool] = ContextVar("innerloop_plain_autograd", default=False)
_NATIVE: ContextVar[bool] = ContextVar("innerloop_native_layers", default=False)
_UNTRANSFORMED: ContextVar[bool] = ContextVar("innerloop_untransformed", default=False)


@contextmanager
def plain_autograd(native: bool = False) -> Iterator[None]:
    """Inside, :func:`gradient` uses ``torch.autograd.grad``. Not for use under ``torch.func`` transforms."""
    token, before = _PLAIN.set(True), _NATIVE.set(native)
    try:
        yield
    finally:
        _NATIVE.reset(before)
        _PLAIN.reset(token)


def is_native() -> bool:
    """Whether ``plain_autograd(native=True)`` is in force in this thread."""
    return is_plain() and _NATIVE.get()


@contextmanager
def native_batches(allowed: bool = True) -> Iterator[None]:
    """Inside, networks may compute all tasks under ``vmap`` in native code: one derivative."""
    token = _NATIVE.set(allowed)
    try:
        yield
    finally:
        _NATIVE.reset(token)


def has_native_batches() -> bool:
    """Whether :func:`native_batches` is in force in this thread."""
    return not torch.compiler.is_compiling() and _NATIVE.get() and not _PLAIN.get()


def _by_torch(fn: Callable[..., Any], *given: Any) -> Any:
    """``fn(*given)``, an inner derivative, without native code of batches, which has the outer one alone."""
    if torch.compiler.is_compiling():  # there is none then, and no context variable to trace
        return fn(*given)
    with native_batches(False):
        return fn(*given)


def is_plain() -> bool:
    """Whether :func:`plain_autograd` is in force in this thread."""
    if torch.compiler.is_compiling():  # whole functions are compiled under torch.func; no look-up to trace
        return False
    return _PLAIN.get()


@contextmanager
def untransformed() -> Iterator[None]:
    """Inside, no ``torch.func`` transform is used, but layers must stay recognisable: no fused blocks."""
    token, plain = _UNTRANSFORMED.set(True), _PLAIN.set(False)
    try:
        yield
    finally:
        _PLAIN.reset(plain)
        _UNTRANSFORMED.reset(token)


def is_untransformed() -> bool:
    """Whether :func:`untransformed` or :func:`plain_autograd` is in force in this thread."""
    return is_plain() or (not torch.compiler.is_compiling() and _UNTRANSFORMED.get())


def gradient(loss: Callable[[Params], Tensor], params: Params, keep_graph: bool = True) -> Params:
    """The gradient of ``loss`` at ``params``.

    Args:
        loss: a scalar function of the parameters.
        params: where to differentiate; every entry gets a gradient (zeros if it has no influence).
        keep_graph: whether the result can be differentiated again. Without it no second-order graph is
            built.

    >>> gradient(lambda p: (p["w"] ** 2).sum(), {"w": torch.tensor([3.0])})["w"]
    tensor([6.])
    """
    if not is_plain():
        if keep_graph:
            kept: Params = _by_torch(torch.func.grad(loss), params)
            return kept
        grads = _by_torch(torch.func.grad(loss), {name: value.detach() for name, value in params.items()})
        # the loss may also depend on the outer parameters by itself (ANIL's features): cut that too
        return {name: value.detach() for name, value in grads.items()}
    keep_graph = keep_graph and torch.is_grad_enabled()
    with torch.enable_grad():
        at = {
            name: value if keep_graph and value.requires_grad else value.detach().requires_grad_()
            for name, value in params.items()
        }
        grads = torch.autograd.grad(
            loss(at), list(at.values()), create_graph=keep_graph, materialize_grads=True
        )
    return dict(zip(at, grads, strict=True))


Auxiliary = TypeVar("Auxiliary")


def value_and_gradient(
    fn: Callable[[Params], tuple[Tensor, Auxiliary]], params: Params
) -> tuple[Tensor, Auxiliary, Params]:
    """The value of ``fn``, what it gives besides, and its gradient: all three constants, without a graph."""
    fixed = {name: value.detach() for name, value in params.items()}
    if is_plain():
        with torch.enable_grad():
            at = {name: value.requires_grad_() for name, value in fixed.items()}
            value, more = fn(at)
            gradients = torch.autograd.grad(value, list(at.values()), materialize_grads=True)
        answer = (value, more, dict(zip(at, gradients, strict=True)))
    else:
        grads, (value, more) = _by_torch(torch.func.grad_and_value(fn, has_aux=True), fixed)
        answer = (value, more, grads)
    constant: tuple[Tensor, Auxiliary, Params] = pytree.tree_map_only(Tensor, Tensor.detach, answer)
    return constant


def hessian_product(loss: Callable[[Params], Tensor], params: Params) -> Callable[[Params], Params]:
    r"""The function :math:`v \mapsto \nabla^2\ell(p)\,v`; the gradient is taken once, for all products."""
    fixed = {name: value.detach() for name, value in params.items()}
    if not is_plain():
        linearised: Any = _by_torch(torch.func.vjp, torch.func.grad(loss), fixed)
        pull = linearised[1]
        return lambda v: {name: value.detach() for name, value in pull(v)[0].items()}
    with torch.enable_grad():
        at = {name: value.requires_grad_() for name, value in fixed.items()}
        grads = torch.autograd.grad(loss(at), list(at.values()), create_graph=True, materialize_grads=True)

    def product(v: Params) -> Params:
        """The Hessian times ``v``, from the graph of the gradient."""
        columns = torch.autograd.grad(
            grads, list(at.values()), [v[name] for name in at], retain_graph=True, materialize_grads=True
        )
        return dict(zip(at, columns, strict=True))

    return product
