r"""The empirical tangent kernel layer by layer: :math:`\Theta = \sum_l \Theta_l`, without Jacobians.

One forward and one backward pass; the weights' gradients are not computed. When the backward pass comes by a
layer, the layer's part is made from what entered it and the derivative that comes back
(:mod:`innerloop.kernels.empirical.factors`), and both are freed. Every pair of several outputs needs several
copies of the samples in one pass; the mean over outputs takes one backward pass after the other.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.autodiff import untransformed
from innerloop.kernels.empirical.factors import Factor, compact, gram, kept_bytes, put, room
from innerloop.kernels.empirical.handlers import FASTER, HANDLERS
from innerloop.kernels.empirical.jacobian import jacobian_ntk
from innerloop.kernels.empirical.recorder import Emit, LayerRecorder
from innerloop.kernels.empirical.recorder import NotUnderstoodError as NotUnderstoodError
from innerloop.kernels.empirical.tangent import Output, Tangent, block_size, count_saved

PASS_BYTES = 96 * 2**20  # memory of a pass if it is not scarcer: more samples at a time leave the cache

UNDER_WAY = 16  # tensors that are read and written at about the same time, in a network of many branches


class LayerwisePlan(NamedTuple):
    """What is known before the kernel is computed."""

    left: frozenset[str]
    saved: int
    kept: int
    widest: int


def record(
    t: Tangent,
    x: Tensor,
    rows: Tensor,
    emit: Emit,
    left: frozenset[str] = frozenset(),
    rehearsal: bool = False,
    in_turn: bool = False,
) -> frozenset[str]:
    """One forward and one backward pass, or one per row; factors are emitted on the way back."""
    turns = rows[:, None] if in_turn else rows[None]
    copied = turns.shape[1]
    recorder = LayerRecorder(t.params, len(x) * copied, copied, emit, HANDLERS, FASTER, rehearsal)
    recorder.left |= left
    with torch.enable_grad():
        copies = recorder.watch_input(x.repeat(copied, *[1] * (x.ndim - 1)) if copied > 1 else x)
        with untransformed(), recorder:
            outputs = t.forward(recorder.params, copies)
        recorder.shared_results.forget()
        if rehearsal:
            recorder.rehearse()
        elif outputs.requires_grad:
            for left_over, some in zip(reversed(range(len(turns))), turns, strict=True):
                weights, recorder.again = some.repeat_interleave(len(x), 0), left_over > 0
                torch.autograd.grad(outputs, recorder.anchor, weights, recorder.again, allow_unused=True)
    recorder.forget()
    return frozenset(recorder.shared() | set(t.params).difference(recorder.uses))


_PLANS: dict[object, LayerwisePlan] = {}
_PLANS_KEPT = 64


def find_plan(t: Tangent, x: Tensor, rows: Tensor) -> LayerwisePlan:
    """:func:`make_plan`; a layered network of the same layers has the same, and is met again in a search."""
    if not t.layers:
        return make_plan(t, x, rows)
    key = (t.layers, frozenset(t.params), tuple(x.shape[1:]), len(x[:2]), x.dtype)
    if key not in _PLANS:
        while len(_PLANS) >= _PLANS_KEPT:
            del _PLANS[next(iter(_PLANS))]
        _PLANS[key] = make_plan(t, x, rows)
    return _PLANS[key]


def make_plan(t: Tangent, x: Tensor, rows: Tensor) -> LayerwisePlan:
    """Rehearses with two samples (with one, their axis could be mistaken for another), and measures."""
    kept, held = 0, 0
    saved: dict[int, int] = {}

    def measure(_: int, factor: Factor) -> None:
        """Adds up what a layer's factor takes."""
        nonlocal kept, held
        held += 0 if factor.inputs is None else factor.inputs.nbytes
        kept += kept_bytes(factor)

    with count_saved(saved, t):
        left = record(t, x[:2], rows[:1], measure, rehearsal=True)
    n = len(x[:2])
    return LayerwisePlan(
        left, (sum(saved.values()) + held) // n, kept // n, max(saved.values(), default=0) // n
    )


def layerwise_ntk(t: Tangent, x1: Tensor, x2: Tensor | None, output: Output, memory: int) -> Tensor:
    """Θ layer by layer; parameters that are used in other ways than in layers are added by Jacobians."""
    like = next(iter(t.params.values()))
    unit = torch.eye(t.outputs, dtype=like.dtype, device=like.device)
    plan = find_plan(t, x1, unit)
    rows, in_turn = unit.sum(0, keepdim=True) if output == "sum" else unit, output == "trace"
    total = _kernel(t, x1, x2, rows, plan, memory, in_turn)
    if not t.layers:
        _verify(t, x1, x2, rows if in_turn else rows[:1], total, plan.left)
    theta = total.permute(1, 3, 0, 2) if output == "full" else total[0, :, 0] / len(rows)
    return theta + jacobian_ntk(_only(t, plan.left), x1, x2, output, memory) if plan.left else theta


def _only(t: Tangent, names: frozenset[str]) -> Tangent:
    """As a function of these parameters alone."""
    fixed = {name: p for name, p in t.params.items() if name not in names}
    part = {name: p for name, p in t.params.items() if name in names}
    return t._replace(forward=lambda params, x: t.forward({**fixed, **params}, x), params=part)


def _kernel(
    t: Tangent,
    x1: Tensor,
    x2: Tensor | None,
    rows: Tensor,
    plan: LayerwisePlan,
    memory: int,
    in_turn: bool = False,
) -> Tensor:
    """``(R, n, R, m)`` of the layers; in one pass, else in several with factors kept, else in quarters.

    ``in_turn`` is the sum of every row's own, ``(1, n, 1, m)``.
    """
    count, most = 1 if in_turn else len(rows), len(x1) + (0 if x2 is None else len(x2))
    # derivatives come back while activations are still held, and a layer needs room to work; where there are
    # many layers side by side, only a few of them are under way at a time
    under_way = min(2 * plan.saved, UNDER_WAY * plan.widest)
    per_sample, kept = count * (plan.saved + under_way), count * plan.kept
    in_cache = PASS_BYTES // max(1, min(per_sample + kept, count * UNDER_WAY * plan.widest))
    chunk = _even(most, min(block_size(per_sample + kept, memory, most), max(1, in_cache)))
    x, split = (x1, None) if x2 is None else (torch.cat([x1, x2]), len(x1))
    if chunk >= most:
        return _one_pass(t, x, rows, split, plan.left, in_turn)
    if in_turn:
        return reduce(Tensor.add_, (_kernel(t, x1, x2, row, plan, memory) for row in rows[:, None]))
    beside_kept = (memory - most * kept) // max(1, per_sample)
    if beside_kept >= 1:
        return _several_passes(t, x, rows, split, _even(most, min(chunk, beside_kept)), plan.left)
    if most * per_sample <= memory:
        return _one_pass(t, x, rows, split, plan.left)
    if most == 2 and x2 is not None:  # a single pair does not fit
        block_size(most * kept + chunk * per_sample, memory, 1)
    return _quarters(t, x1, x2, rows, plan, memory)


def _even(most: int, chunk: int) -> int:
    """As many samples a pass, or fewer, so that passes are of nearly equal size."""
    return -(-most // -(-most // chunk))


def _one_pass(
    t: Tangent, x: Tensor, rows: Tensor, split: int | None, left: frozenset[str], in_turn: bool = False
) -> Tensor:
    count, n = 1 if in_turn else len(rows), len(x) if split is None else split
    theta = rows.new_zeros(count, n, count, len(x) if split is None else len(x) - split)
    known: dict[int, Tensor] | None = {} if in_turn else None

    def add(number: int, factor: Factor) -> None:
        """Adds a layer's part of the kernel."""
        theta.add_(gram(factor, split, number, known))

    record(t, x, rows, add, left, in_turn=in_turn)
    return theta


def _several_passes(
    t: Tangent, x: Tensor, rows: Tensor, split: int | None, chunk: int, left: frozenset[str]
) -> Tensor:
    """A few samples at a time, so that activations stay in the cache; factors are kept until all are in."""
    # one pass after the other, each on all threads: passes side by side wait for each other in Python
    factors: dict[int, Factor] = {}
    for start in range(0, len(x), chunk):
        part = slice(start, start + chunk)

        def keep(number: int, factor: Factor, part: slice = part) -> None:
            """Puts the factor of some samples to those of the others."""
            small = compact(factor)
            if number not in factors:
                factors[number] = room(small, len(x))
            put(factors[number], part, small)

        record(t, x[part], rows, keep, left)
    count, n = len(rows), len(x) if split is None else split
    theta = rows.new_zeros(count, n, count, len(x) if split is None else len(x) - split)
    for number in sorted(factors):
        theta += gram(factors.pop(number), split)
    return theta


def _quarters(
    t: Tangent, x1: Tensor, x2: Tensor | None, rows: Tensor, plan: LayerwisePlan, memory: int
) -> Tensor:
    """Where even the factors do not fit, halves of the samples against halves."""

    def halves(x: Tensor) -> list[Tensor]:
        """The inputs in two parts, if there are two."""
        return [x] if len(x) == 1 else list(x.split(-(-len(x) // 2)))

    if x2 is not None:
        table = [[_kernel(t, a, b, rows, plan, memory) for b in halves(x2)] for a in halves(x1)]
    else:
        a, b = halves(x1)
        corner = _kernel(t, a, b, rows, plan, memory)
        table = [
            [_kernel(t, a, None, rows, plan, memory), corner],
            [corner.permute(2, 3, 0, 1), _kernel(t, b, None, rows, plan, memory)],
        ]
    return torch.cat([torch.cat(row, 3) for row in table], 1)


def _verify(
    t: Tangent, x1: Tensor, x2: Tensor | None, rows: Tensor, theta: Tensor, left: frozenset[str]
) -> None:
    """Compares one number, of these rows at the first samples, with plain gradients."""
    known = _only(t, frozenset(t.params) - left)
    if not known.params:
        return

    def gradient(x: Tensor, weights: Tensor) -> list[Tensor]:
        """The plain gradients of every row's weighted sum of outputs."""
        params = {name: p.detach().requires_grad_() for name, p in known.params.items()}
        with torch.enable_grad(), untransformed():
            values = known.forward(params, x).mT @ weights
            return [
                part
                for row in rows
                for part in torch.autograd.grad(
                    values @ row, list(params.values()), retain_graph=True, materialize_grads=True
                )
            ]

    mix = rows.new_tensor([1.0, -0.5])
    if x2 is None:
        mix = mix[: len(x1)]
        grads = gradient(x1[:2], mix)
        expected = float(sum(g.flatten() @ g.flatten() for g in grads))
        measured, size = float(mix @ theta[0, :2, 0, :2] @ mix), float(theta[0, :2, 0, :2].abs().max())
    else:
        pairs = zip(gradient(x1[:1], mix[:1]), gradient(x2[:1], mix[:1]), strict=True)
        products = [(float(a.flatten() @ b.flatten()), float(a.norm() * b.norm())) for a, b in pairs]
        expected, size = (sum(values) for values in zip(*products, strict=True))
        measured = float(theta[0, 0, 0, 0])
    tolerance = 1e-8 if theta.dtype == torch.float64 else 1e-3
    if not abs(measured - expected) <= tolerance * size:
        raise NotUnderstoodError(
            f"method='layerwise' does not understand this network (a check gave {measured:.6g}, plain "
            f"gradients {expected:.6g}): use method='jacobian'."
        )
