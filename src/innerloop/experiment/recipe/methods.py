"""Which settings go with which learner, by the table of learners. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from innerloop.core.errors import did_you_mean
from innerloop.learners.entry import KINDS, Entry
from innerloop.learners.table import LEARNERS, estimated_rates


def method_problems(inner: Mapping[str, Any], objective: str) -> Iterator[str]:
    """What is wrong with the settings of a learner, one sentence each.

    >>> inner = {"method": "none", "lr": "auto", "online": "off", "head_start": "learned", "settings": {}}
    >>> list(method_problems(inner, "erm"))
    ['inner.method=none has no inner rate: leave inner.lr=auto out.']
    """
    method = inner["method"]
    entry = LEARNERS[method]
    if inner["online"] != "off":
        yield from _online_problems(inner, entry)
    if inner["lr"] == "auto" and method not in estimated_rates():
        yield (
            f"inner.method={method} has no inner rate that can be estimated: set a number for inner.lr."
            if "lr" in entry.reads
            else f"inner.method={method} has no inner rate: leave inner.lr=auto out."
        )
    if objective == "reptile" and (entry.adapts != "all" or entry.learns_rates):
        yield "outer.objective=reptile moves all parameters: set inner.method=maml."
    if objective == "reptile" and inner["head_start"] != "learned":
        yield "outer.objective=reptile moves all parameters: leave inner.head_start out."
    yield from own_setting_problems(method, inner["settings"])


def _online_problems(inner: Mapping[str, Any], entry: Entry) -> Iterator[str]:
    if "online" not in entry.reads or inner["optimiser"] != "sgd":
        those = " or ".join(name for name, each in LEARNERS.items() if "online" in each.reads)
        yield (
            f"inner.online follows the last layer's features: set inner.method={those} and "
            "inner.optimiser=sgd, or inner.online=off."
        )
    elif inner["head_start"] != "learned":
        yield "inner.online starts from a learned last layer: leave inner.head_start out."
    elif inner["truncate"] is not None or inner["checkpoint"]:
        yield "inner.online differentiates through all steps: leave inner.truncate and inner.checkpoint out."


def own_setting_problems(method: str, given: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a learner's own settings.

    >>> list(own_setting_problems("maml", {"penalty": 1.0}))
    ['inner.settings.penalty: inner.method=maml has no settings of its own: leave it out.']
    """
    known = LEARNERS[method].settings
    for name, value in given.items():
        where = f"inner.settings.{name}"
        if not known:
            yield f"{where}: inner.method={method} has no settings of its own: leave it out."
        elif name not in known:
            hint = did_you_mean(name, known)
            yield f"{where} is no setting of inner.method={method}{hint}: there are {', '.join(known)}."
        elif not _is_a(value, known[name].kind):
            yield f"{where} must be {KINDS[known[name].kind]}, not {value!r}."


def _is_a(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
