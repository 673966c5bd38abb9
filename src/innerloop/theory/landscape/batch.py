"""Many environments at once: both solutions, their excess risks and the gain, in one pass."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.theory.landscape.forms import Number, check, lift, normalised, one_over, solve


def compare_small(
    s: Tensor, optima: Tensor, shares: Tensor, lr: Number, shots: Number, inner_shots: Number
) -> tuple[Tensor, Tensor]:
    """Solutions ``(B, 2, d)`` and task risks ``(B, 2, T)`` of NAL and MAML."""
    d = s.shape[-1]
    s = s.permute(2, 3, 1, 0).contiguous()  # (d, d, T, B)
    w = optima.permute(2, 1, 0).contiguous()  # (d, T, B)
    p = shares.T.contiguous()
    trace = s.square().sum((0, 1))
    square = product(s, s)
    per = 1 / inner_shots
    # p Q = p [(1 + (α²/n₂) tr S²) S − 2α S² + α²(1 + 1/n₂) S³], its diagonal factor put into the last product
    square.mul_(p * (lr**2 * (1 + per))).sub_(s * (p * (2 * lr)))
    square.diagonal(dim1=0, dim2=1).add_((p * (1 + lr**2 * per * trace))[..., None])
    q = product(s, square)
    system = s.new_empty(d, d + 1, 2, s.shape[-1])
    torch.sum(s * p, 2, out=system[:, :d, 0])
    torch.sum(q, 2, out=system[:, :d, 1])
    torch.sum(times(s, w) * p, 1, out=system[:, d, 0])
    torch.sum(times(q, w), 1, out=system[:, d, 1])
    minimisers = eliminate(system)  # (d, 2, B)
    v = minimisers[:, :, None] - w[:, None]
    u = times(s[:, :, None], v)
    per = 1 / shots
    linear = (1 + lr**2 * per * trace) * (v * u).sum(0)
    cubic = (u * times(s[:, :, None], u)).sum(0)
    risks = 0.5 * (linear - 2 * lr * u.square().sum(0) + lr**2 * (1 + per) * cubic)
    return minimisers.permute(2, 1, 0), risks.permute(2, 0, 1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """``A B`` for matrices in the first two axes."""
    columns, rows = a.split(1, 1), b.split(1, 0)
    out = columns[0] * rows[0]
    for column, row in zip(columns[1:], rows[1:], strict=True):
        out.addcmul_(column, row)
    return out


def times(a: Tensor, x: Tensor) -> Tensor:
    """``A x`` for matrices in the first two axes and vectors in the first."""
    columns, entries = a.unbind(1), x.unbind(0)
    out = columns[0] * entries[0]
    for column, entry in zip(columns[1:], entries[1:], strict=True):
        out.addcmul_(column, entry)
    return out


def eliminate(system: Tensor) -> Tensor:
    """Solves augmented positive definite systems ``(n, n + 1, …)`` in place: they need no pivoting."""
    n = system.shape[0]
    for j in range(n):
        system[j, j + 1 :].mul_(system[j, j].reciprocal())
        system[j + 1 :, j + 1 :].addcmul_(system[j + 1 :, j : j + 1], system[j : j + 1, j + 1 :], value=-1)
    x = system[:, n].clone()
    for j in range(n - 2, -1, -1):
        x[j].sub_((system[j, j + 1 : n] * x[j + 1 :]).sum(0))
    return x


NUMBERS = 200_000  # of covariances at a time: what one chunk needs stays in the processor's cache
SMALL, MANY = (
    24,
    32,
)  # up to this dimension, and from this many environments on, the batch is the innermost axis


class Initialisation(NamedTuple):
    """An initialisation and what it costs.

    Attributes:
        solution: ``(…, d)``.
        risk: ``(…)``, the excess risk after one step, averaged over tasks.
        task_risks: ``(…, tasks)``, the same for every task.
    """

    solution: Tensor
    risk: Tensor
    task_risks: Tensor


class Landscape(NamedTuple):
    """Both solutions, and ``gain``: the excess risk of NAL over that of MAML, ``(…)``."""

    nal: Initialisation
    maml: Initialisation
    gain: Tensor


def compare(
    covariances: Tensor,
    optima: Tensor,
    *,
    lr: Number,
    shots: Number,
    inner_shots: Number | None = None,
    weights: Tensor | None = None,
) -> Landscape:
    r"""NAL and MAML of many environments at once: solutions, excess risks (Proposition 1), and the gain.

    Args:
        covariances: :math:`\Sigma_i`, ``(…, tasks, d, d)``, symmetric.
        optima: :math:`w_i^*`, ``(…, tasks, d)``.
        lr: α, for half the mean squared error.
        shots: ``m``, samples of the step in testing.
        inner_shots: ``n₂``, samples of the step in MAML's training; ``shots`` if omitted.
        weights: how often each task occurs, ``(…, tasks)``; equally often if omitted.

    >>> easy, hard = torch.eye(2), 0.1 * torch.eye(2)
    >>> optima = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> nal, maml, gain = compare(torch.stack([hard, easy]), optima, lr=1.0, shots=100)
    >>> [round(float(x), 3) for x in (nal.solution[0], maml.solution[0], gain)]
    [-0.818, 0.46, 3.07]
    """
    check(covariances, optima)
    batch = covariances.shape[:-3]
    tasks, d = optima.shape[-2:]
    shares = normalised(weights, optima).expand(*batch, tasks).reshape(-1, tasks)
    flat_s, flat_w = covariances.reshape(-1, tasks, d, d), optima.reshape(-1, tasks, d)
    numbers = [_flat(n, batch) for n in (lr, shots, shots if inner_shots is None else inner_shots)]
    parts = []
    chunk = max(MANY, NUMBERS // (tasks * d * d))
    one = _small if d <= SMALL and len(flat_s) >= MANY else _compare
    for start in range(0, max(len(flat_s), 1), chunk):
        cut = slice(start, start + chunk)
        rate, m, n2 = (n[cut] if isinstance(n, Tensor) else n for n in numbers)
        parts.append(one(flat_s[cut], flat_w[cut], shares[cut], rate, m, n2))
    nal, maml = (
        Initialisation(
            *(torch.cat(field).reshape((*batch, *field[0].shape[1:])) for field in zip(*some, strict=True))
        )
        for some in zip(*parts, strict=True)
    )
    return Landscape(nal, maml, nal.risk / maml.risk)


def _small(
    s: Tensor, optima: Tensor, shares: Tensor, lr: Number, shots: Number, inner_shots: Number
) -> tuple[Initialisation, Initialisation]:
    """One chunk of small environments; singular ones are left to the general way, which has an answer."""
    minimisers, risks = compare_small(s, optima, shares, lr, shots, inner_shots)
    if not bool(torch.isfinite(minimisers).all()):
        return _compare(s, optima, shares, lr, shots, inner_shots)
    mean = (risks * shares[:, None]).sum(-1)
    nal, maml = (Initialisation(minimisers[:, k], mean[:, k], risks[:, k]) for k in (0, 1))
    return nal, maml


def _compare(
    s: Tensor, optima: Tensor, shares: Tensor, lr: Number, shots: Number, inner_shots: Number
) -> tuple[Initialisation, Initialisation]:
    """One chunk: ``s`` is ``(B, T, d, d)``. A sum over tasks of products is one product of stacked blocks."""
    b, t, d, _ = s.shape
    rate, per = lift(lr, 3), one_over(inner_shots, 3)
    trace = s.square().sum((-2, -1))
    share = shares[..., None, None]
    # E[Q] = Σ S_i M_i with M_i = p_i [(1 + (α²/n₂) tr S_i²) I − 2α S_i + α²(1 + 1/n₂) S_i²]
    inner = torch.matmul(s, s).mul_(share * (rate**2 * (1 + per))).sub_(s * (share * (2 * rate)))
    inner.diagonal(dim1=-2, dim2=-1).add_(
        share[..., 0] * (1 + rate**2 * per * trace[..., None, None])[..., 0]
    )
    stacked = s.reshape(b, t * d, d).mT
    q_mean = stacked @ inner.view(b, t * d, d)
    q_pull = stacked @ (inner @ optima[..., None]).view(b, t * d, 1)
    s_mean = (shares[:, None] @ s.reshape(b, t, d * d)).view(b, d, d)
    s_pull = stacked @ (shares[..., None] * optima).reshape(b, t * d, 1)
    minimisers = solve(torch.stack([s_mean, q_mean]), torch.stack([s_pull, q_pull])[..., 0])
    # both solutions' risks in one pass: v is (B, T, d, 2)
    v = minimisers.permute(1, 2, 0)[:, None] - optima[..., None]
    u = s @ v
    cubic = (u * (s @ u)).sum(-2)
    rate, per = lift(lr, 2), one_over(shots, 2)
    linear = (1 + rate**2 * per * trace[..., None]) * (v * u).sum(-2)
    risks = 0.5 * (linear - 2 * rate * u.square().sum(-2) + rate**2 * (1 + per) * cubic)
    mean = (shares[..., None] * risks).sum(-2)
    nal, maml = (Initialisation(minimisers[k], mean[:, k], risks[..., k]) for k in (0, 1))
    return nal, maml


def _flat(value: Number, batch: torch.Size) -> Number:
    return value.expand(batch).reshape(-1) if isinstance(value, Tensor) else value
