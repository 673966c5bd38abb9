r"""Whose statistics normalise? A declared policy, because published numbers differ by it.

====================  ===========================  =============================  ==================
policy                on the support set           on the query set               mixes query samples
====================  ===========================  =============================  ==================
``transductive``      its own batch's              its own batch's                yes
``support``           its own batch's              the support set's              no
``running``           train: own; test: stored     train: own; test: stored       in training only
``group``             each sample's own (groups)   each sample's own (groups)     no
``none``              no normalisation             no normalisation               no
====================  ===========================  =============================  ==================

``transductive`` is what MAML's released code does (a query image's prediction depends on the other query
images); ``support`` is the honest inductive counterpart. In ``running``, stored statistics are an
exponential average (momentum 0.1) kept as buffers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets import primitives

NORM_POLICIES = ("transductive", "support", "running", "group", "none")
MOMENTUM = 0.1
EPS = 1e-5


def check_policy(policy: str) -> str:
    """The policy itself, or an error that names the five there are."""
    if policy not in NORM_POLICIES:
        known = ", ".join(NORM_POLICIES)
        raise UserError(
            f"unknown norm policy '{policy}'{did_you_mean(policy, NORM_POLICIES)}; there are {known}."
        )
    return policy


def statistics_for(policy: str, phase: str, training: bool) -> Statistics:
    """Where statistics come from in a phase ("support" or "query"): the table above, as a function.

    >>> [statistics_for(policy, "query", training=True) for policy in ("support", "running")]
    ['stored', 'batch']
    """
    if policy == "support" and phase == "query":
        return "stored"
    if policy == "running" and not training:
        return "stored"
    return "batch"


def groups_for(channels: int) -> int:
    """At most 16 groups (MetaNTK's choice), as many as divide the channels.

    >>> groups_for(64), groups_for(48), groups_for(6)
    (16, 16, 6)
    """
    return max(g for g in range(1, min(16, channels) + 1) if channels % g == 0)


def init_norm(name: str, channels: int, policy: str) -> tuple[Params, Buffers]:
    """Scale one, shift zero, and the buffers that the policy needs."""
    if check_policy(policy) == "none":
        return {}, {}
    params = {f"{name}.weight": torch.ones(channels), f"{name}.bias": torch.zeros(channels)}
    if policy in ("support", "running"):
        return params, {f"{name}.mean": torch.zeros(channels), f"{name}.var": torch.ones(channels)}
    return params, {}


def norm(
    name: str,
    policy: str,
    params: Params,
    buffers: Buffers,
    x: Tensor,
    statistics: Statistics,
    eps: float = EPS,
) -> tuple[Tensor, Buffers]:
    """Normalises ``x`` (samples, channels, …) and returns the entries of the buffers that changed."""
    if policy == "none":
        return x, {}
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if policy == "group":
        return primitives.group_norm(x, groups_for(x.shape[1]), weight, bias, eps), {}
    if statistics == "stored" and policy != "transductive":
        mean, var = buffers[f"{name}.mean"], buffers[f"{name}.var"]
        return primitives.normalise(x, mean, var, weight, bias, eps), {}
    y, mean, var = primitives.batch_norm(x, weight, bias, eps)
    if policy == "transductive":
        return y, {}
    if policy == "running":
        mean, var = mean.detach(), var.detach() * (_count(x) / max(_count(x) - 1, 1))
        mean = torch.lerp(buffers[f"{name}.mean"], mean, MOMENTUM)
        var = torch.lerp(buffers[f"{name}.var"], var, MOMENTUM)
    return y, {f"{name}.mean": mean, f"{name}.var": var}


def _count(x: Tensor) -> int:
    return x.numel() // x.shape[1]
