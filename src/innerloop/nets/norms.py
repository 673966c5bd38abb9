r"""Whose statistics normalise? A declared policy, because published numbers differ by it.

====================  ===========================  =============================  ==================
policy                on the support set           on the query set               mixes query samples
====================  ===========================  =============================  ==================
``transductive``      its own batch's              its own batch's                yes
``support``           its own batch's              the support set's              no
``running``           train: own*; test: stored    train: own*; test: stored      in training only
``group``             each sample's own (groups)   each sample's own (groups)     no
``none``              no normalisation             no normalisation               no
====================  ===========================  =============================  ==================

``transductive`` is what MAML's released code does (a query image's prediction depends on the other query
images); ``support`` is the honest inductive counterpart. In ``running``, stored statistics are an
exponential average (momentum 0.1) kept as buffers.

\* Learners that put a head of their own on features (ProtoNet, matching, R2D2, MetaOptNet) are trained with
both sets as one batch with one mean and variance, as the originals were.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.nets.ops.choice as ops
import innerloop.nets.ops.reference as reference
from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Buffers, Params, Statistics
from innerloop.nets.network import Pass

NORM_POLICIES = ("transductive", "support", "running", "group", "none")
"""Where normalisation layers take mean and variance from; the documentation describes each of them."""
KINDS = {"transductive": "transductive (queries are normalised by their own batch)"}
"""Whether queries of a task are judged together: only the norm policy decides it here."""
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


def kind_of(policy: str) -> str:
    """``inductive``, or ``transductive`` with the reason."""
    return KINDS.get(policy, "inductive")


def statistics_for(policy: str, phase: str, training: bool) -> Statistics:
    """Where statistics come from in a phase ("support" or "query"): the table above, as a function."""
    if policy == "support" and phase == "query":
        return "stored"
    if policy == "running" and not training:
        return "stored"
    return "batch"


def groups_for(channels: int) -> int:
    """At most 16 groups (MetaNTK's choice), as many as divide the channels."""
    return max(g for g in range(1, min(16, channels) + 1) if channels % g == 0)


def init_norm(
    name: str, channels: int, policy: str, device: torch.device | None = None
) -> tuple[Params, Buffers]:
    """Scale one, shift zero, and the buffers that the policy needs."""
    if check_policy(policy) == "none":
        return {}, {}
    one, zero = torch.ones(channels, device=device), torch.zeros(channels, device=device)
    stored = policy in ("support", "running")
    buffers = {f"{name}.mean": zero.clone(), f"{name}.var": one.clone()} if stored else {}
    return {f"{name}.weight": one, f"{name}.bias": zero}, buffers


def norm(
    name: str,
    policy: str,
    params: Params,
    buffers: Buffers,
    x: Tensor,
    statistics: Statistics,
    eps: float = EPS,
) -> Pass:
    """Normalises ``x`` (samples, channels, …) and returns the entries of the buffers that changed."""
    if policy == "none":
        return x, {}
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if policy == "group":
        return ops.group_norm(x, groups_for(x.shape[1]), weight, bias, eps), {}
    if statistics == "stored" and policy != "transductive":
        mean, var = buffers[f"{name}.mean"], buffers[f"{name}.var"]
        return reference.normalise(x, mean, var, weight, bias, eps), {}
    y, mean, var = reference.batch_norm(x, weight, bias, eps)
    return y, after_batch(name, policy, buffers, mean, var, y.numel() // y.shape[1])


def kernel_norm(
    name: str, policy: str, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics
) -> Pass:
    """As :func:`norm`, by torch's own kernels where they are right; statistics of bfloat16 are float32."""
    batch = policy == "transductive" or (policy == "running" and statistics == "batch")
    if not ops.norm_kernels_suit(policy, batch, x):
        y, changed = norm(name, policy, params, buffers, ops.at_least_float32(x), statistics)
        return y.to(x.dtype), changed
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if policy == "group":
        return F.group_norm(x, groups_for(x.shape[1]), weight, bias, EPS), {}
    if policy == "transductive":
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=EPS), {}
    # torch updates running statistics in place, so it is given copies
    mean, var = buffers[f"{name}.mean"].clone(), buffers[f"{name}.var"].clone()
    y = F.batch_norm(x, mean, var, weight, bias, True, MOMENTUM, EPS)
    return y, {f"{name}.mean": mean, f"{name}.var": var}


def conv_norm_relu(
    i: int, policy: str, params: Params, buffers: Buffers, x: Tensor, statistics: Statistics, stride: int
) -> Pass:
    """``relu(norm(conv(x)))`` of block ``i`` (parameters ``conv<i>.*`` and ``norm<i>.*``)."""
    weight, bias = params[f"conv{i}.weight"], params.get(f"conv{i}.bias")
    name = f"norm{i}"
    if policy == "transductive" or (policy == "running" and statistics == "batch"):
        scale, shift = params[f"{name}.weight"], params[f"{name}.bias"]
        y, mean, var = ops.conv_norm_relu(x, weight, bias, scale, shift, EPS, stride, 1)
        return y, after_batch(name, policy, buffers, mean, var, y.numel() // y.shape[1])
    x = F.conv2d(x, weight, bias, stride, 1)
    x, seen = norm(name, policy, params, buffers, x, statistics)
    return F.relu(x), seen


def after_batch(name: str, policy: str, buffers: Buffers, mean: Tensor, var: Tensor, count: int) -> Buffers:
    """The buffers that a pass with statistics of a batch of so many pixels leaves behind."""
    if policy == "transductive":
        return {}
    if policy == "running":
        mean, var = mean.detach(), var.detach() * (count / max(count - 1, 1))
        mean = torch.lerp(buffers[f"{name}.mean"], mean, MOMENTUM)
        var = torch.lerp(buffers[f"{name}.var"], var, MOMENTUM)
    return {f"{name}.mean": mean, f"{name}.var": var}
