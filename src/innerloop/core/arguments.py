"""What users give to factories, checked when they are called: by the name of the argument, in one place."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from innerloop.core.errors import Problems
from innerloop.core.formatting import shorten

P = ParamSpec("P")
T = TypeVar("T")


def _number(value: Any) -> str | None:
    if isinstance(value, Tensor) and value.is_floating_point():
        return None
    if value is not True and value is not False and isinstance(value, Real) and math.isfinite(value):
        return None
    return "a finite number, such as 0.01"


def _real(value: Any) -> str | None:
    """For numbers whose limits the factories know themselves."""
    is_flag = value is True or value is False
    return None if not is_flag and isinstance(value, (Real, Tensor)) else "a number, such as 0.1"


def _variance(value: Any) -> str | None:
    return None if _number(value) is None and value >= 0 else "a number from 0 up, such as 2.0"


def _whole(least: float, example: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        try:
            enough = not isinstance(value, bool) and operator.index(value) >= least
        except TypeError:
            enough = False
        above = f" from {least} up" if math.isfinite(least) else ""
        return None if enough else f"a whole number{above}, such as {example}"

    return check


def _is(kind: type, words: str) -> Callable[[Any], str | None]:
    return lambda value: None if isinstance(value, kind) else words


def _has(attribute: str, words: str) -> Callable[[Any], str | None]:
    return lambda value: None if hasattr(value, attribute) else words


_RULES: Mapping[str, Callable[[Any], str | None]] = {
    "network": _has("head_names", "a Network, such as mlp(1, [40], 1): wrap a torch module with from_module"),
    "learner": _has("adapt", "a Learner, such as maml(network, 'mse', lr=0.01)"),
    "lr": _number,
    "rule": _has("direction", "an UpdateRule, such as adam() of innerloop.learners.updates"),
    **dict.fromkeys(("weight_var", "bias_var"), _variance),
    **dict.fromkeys(("C", "penalty", "scale", "damping", "drop_rate", "head_scale"), _real),
    **dict.fromkeys(("name", "norm", "activation", "online", "head_start"), _is(str, "text")),
    **dict.fromkeys(
        ("first_order", "checkpoint", "bias", "head_bias", "avg_pool", "normalise"),
        _is(bool, "True or False"),
    ),
    "steps": _whole(-math.inf, 5),  # learners have limits of their own, which recipes call otherwise
    "cg_steps": _whole(-math.inf, 5),
    "truncate": _whole(0, 1),
    "ways": _whole(1, 5),
    "n_heads": _whole(1, 100),
    "shots": _whole(1, 5),
    "queries": _whole(0, 15),
    "n_tasks": _whole(1, 100),
    "inputs": _whole(1, 1),
    "outputs": _whole(1, 1),
    "channels": _whole(1, 3),
    "size": _whole(1, 28),
    "filters": _whole(1, 64),
    "threads": _whole(1, 2),
    "chunk": _whole(1, 5),
    "ranks": _whole(1, 2),
    "depth": _whole(1, 28),
    "widen": _whole(1, 10),
    "dropblock": _whole(1, 5),
}
"""What an argument of this name must be, in words where it is not; None is taken where it is the default."""


def _called(function: Callable[..., Any]) -> str:
    """What users call it: a class, where it is a constructor."""
    return function.__qualname__.removesuffix(".__new__").rpartition(".")[2]


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """A factory that refuses arguments of the wrong kind with a sentence for each, when it is called."""
    signature = inspect.signature(function)
    ruled = {name: p.default for name, p in signature.parameters.items() if name in _RULES}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        """Looks at the arguments first."""
        problems = Problems()
        given = signature.bind_partial(*args, **kwargs).arguments
        for name in [name for name in ruled if name in given]:
            value = given[name]
            if value is None and ruled[name] is None:
                continue
            if (wanted := _RULES[name](value)) is not None:
                shown = shorten(repr(value)) if isinstance(value, (str, int, float)) else type(value).__name__
                problems.add(f"{_called(function)}: {name}={shown} must be {wanted}.")
        problems.refuse()
        return function(*args, **kwargs)

    return call
