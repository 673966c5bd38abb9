r"""When is MAML worth it? Closed forms for mixtures of linear regression tasks (Landscape, §3).

Task :math:`i` has inputs :math:`x\sim N(0,\Sigma_i)` and targets :math:`y=\langle w_i^*,x\rangle+z` with
noise
:math:`z\sim N(0,\nu^2)`. The loss is half the *mean* squared error; adaptation is one step of size
:math:`\alpha` on ``s`` samples. Then (eq. 5, Proposition 1)

.. math::
    Q_i^{(s)} &= (I-\alpha\Sigma_i)\Sigma_i(I-\alpha\Sigma_i)
                 + \tfrac{\alpha^2}{s}\big(\operatorname{tr}(\Sigma_i^2)\Sigma_i+\Sigma_i^3\big)\\
    w^*_{NAL} &= E[\Sigma_i]^{-1}E[\Sigma_i w_i^*],\qquad
    w^*_{MAML} = E[Q_i^{(n_2)}]^{-1}E[Q_i^{(n_2)}w_i^*]\\
    \mathcal E_m(w) &= \tfrac12 E_i\,\|w-w_i^*\|^2_{Q_i^{(m)}}

Arrays have shape ``(…, tasks, d, d)`` and ``(…, tasks, d)``: leading axes are environments, all computed at
once. What no initialisation can avoid, :math:`\nu^2/2 + \alpha^2\nu^2\operatorname{tr}(\Sigma_i^2)/2m`, is
kept apart (:func:`irreducible`), as the paper does in its eq. 16.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.solvers.inverse import spd_inverse

Number = float | Tensor  # a number, or one per environment (a tensor of the leading axes' shape)


class Irreducible(NamedTuple):
    """What no initialisation avoids: the noise itself, and the noise that the inner step carries in."""

    noise: Tensor
    step: Tensor


def adapted_curvature(covariances: Tensor, lr: Number, samples: Number) -> Tensor:
    r""":math:`Q^{(s)}` of every covariance, ``(…, d, d)`` (Landscape, below eq. 5).

    Expanded, so that two products suffice:
    :math:`Q=(1+\tfrac{\alpha^2}{s}\operatorname{tr}\Sigma^2)\Sigma-2\alpha\Sigma^2
    +\alpha^2(1+\tfrac1s)\Sigma^3`.

    Args:
        covariances: ``(…, tasks, d, d)``.
        lr: α, for half the mean squared error.
        samples: ``s``; ``inf`` means the full gradient.

    >>> adapted_curvature(torch.tensor([[[0.5]]]), lr=1.0, samples=4)   # ½·¼ + ¼(⅛ + ⅛)
    tensor([[[0.1875]]])
    """
    rate, per = lift(lr, 3), one_over(samples, 3)
    square = covariances @ covariances
    trace = covariances.square().sum((-2, -1), keepdim=True)
    linear = (1 + rate**2 * per * trace) * covariances
    return linear - 2 * rate * square + rate**2 * (1 + per) * (square @ covariances)


def nal_solution(covariances: Tensor, optima: Tensor, weights: Tensor | None = None) -> Tensor:
    r""":math:`w^*_{NAL}=E[\Sigma_i]^{-1}E[\Sigma_iw_i^*]` (eq. 5): the best without adaptation.

    Args:
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        weights: how frequent the tasks are, ``(…, tasks)``; all alike if omitted.

    >>> hard, easy = 0.25 * torch.eye(1), 0.75 * torch.eye(1)
    >>> nal_solution(torch.stack([hard, easy]), torch.tensor([[1.0], [0.0]]))
    tensor([0.2500])
    """
    return weighted_optimum(covariances, optima, weights)


def maml_solution(
    covariances: Tensor, optima: Tensor, lr: Number, samples: Number, weights: Tensor | None = None
) -> Tensor:
    r""":math:`w^*_{MAML}=E[Q_i^{(n_2)}]^{-1}E[Q_i^{(n_2)}w_i^*]` (eq. 5): the best before one step.

    Args:
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        lr: α, the inner rate.
        samples: n₂, the samples of an inner step in training.
        weights: how frequent the tasks are, ``(…, tasks)``; all alike if omitted.

    >>> hard, easy = 0.5 * torch.eye(1), torch.eye(1)
    >>> maml_solution(torch.stack([hard, easy]), torch.tensor([[1.0], [0.0]]), lr=1.0, samples=float("inf"))
    tensor([1.])
    """
    return weighted_optimum(adapted_curvature(covariances, lr, samples), optima, weights)


def weighted_optimum(curvatures: Tensor, optima: Tensor, weights: Tensor | None = None) -> Tensor:
    r""":math:`E[C_i]^{-1}E[C_iw_i^*]`, ``(…, d)``: the minimiser of :math:`E\|w-w_i^*\|^2_{C_i}`."""
    shares = normalised(weights, optima)
    pull = (shares[..., None] * (curvatures @ optima[..., None])[..., 0]).sum(-2)
    return solve((shares[..., None, None] * curvatures).sum(-3), pull)


def task_risks(w: Tensor, covariances: Tensor, optima: Tensor, lr: Number, samples: Number) -> Tensor:
    r""":math:`\tfrac12\|w-w_i^*\|^2_{Q_i^{(m)}}` of every task, ``(…, tasks)``, for any ``w`` ``(…, d)``.

    No :math:`Q` is formed: with :math:`v=w-w_i^*` and :math:`u=\Sigma v` it is
    :math:`\tfrac12\big[(1+\tfrac{\alpha^2}{m}\operatorname{tr}\Sigma^2)v^\top u-2\alpha\|u\|^2
    +\alpha^2(1+\tfrac1m)u^\top\Sigma u\big]`.

    Args:
        w: where adaptation starts.
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        lr: α, the inner rate.
        samples: m, the samples of the inner step.

    >>> task_risks(torch.tensor([1.0]), torch.tensor([[[0.5]]]), torch.tensor([[-1.0]]), lr=1.0, samples=4)
    tensor([0.3750])
    """
    rate, per = lift(lr, 1), one_over(samples, 1)
    v = w[..., None, :] - optima
    u = (covariances @ v[..., None])[..., 0]
    trace = covariances.square().sum((-2, -1))
    cubic = (u * (covariances @ u[..., None])[..., 0]).sum(-1)
    linear = (1 + rate**2 * per * trace) * (v * u).sum(-1)
    return 0.5 * (linear - 2 * rate * u.square().sum(-1) + rate**2 * (1 + per) * cubic)


def excess_risk(
    w: Tensor,
    covariances: Tensor,
    optima: Tensor,
    lr: Number,
    samples: Number,
    weights: Tensor | None = None,
) -> Tensor:
    r""":math:`\mathcal E_m(w)=\tfrac12E_i\|w-w_i^*\|^2_{Q_i^{(m)}}` of any ``w`` (Proposition 1), ``(…)``.

    Args:
        w: where adaptation starts, ``(…, d)``.
        covariances: ``(…, tasks, d, d)``.
        optima: ``(…, tasks, d)``.
        lr: α, the inner rate.
        samples: m, the samples of the inner step.
        weights: how frequent the tasks are, ``(…, tasks)``; all alike if omitted.
    """
    return (normalised(weights, optima) * task_risks(w, covariances, optima, lr, samples)).sum(-1)


def irreducible(
    covariances: Tensor, lr: Number, samples: Number, noise: float, weights: Tensor | None = None
) -> Irreducible:
    r"""The noise's own part of the loss, and what the inner step carries in of it (eq. 16).

    :math:`\nu^2/2` and :math:`\tfrac{\alpha^2\nu^2}{2m}E\operatorname{tr}\Sigma_i^2`.

    Args:
        covariances: ``(…, tasks, d, d)``.
        lr: α.
        samples: m.
        noise: ν, the standard deviation.
        weights: of the tasks.

    >>> irreducible(torch.eye(2)[None], lr=0.5, samples=4, noise=2.0)
    Irreducible(noise=tensor(2.), step=tensor(0.2500))
    """
    rate, per = lift(lr, 1), one_over(samples, 1)
    trace = covariances.square().sum((-2, -1))
    shares = normalised(weights, trace[..., None])
    step = (shares * rate**2 * per * trace).sum(-1) * (noise**2 / 2)
    return Irreducible(torch.full_like(step, noise**2 / 2), step)


def solve(matrices: Tensor, right: Tensor) -> Tensor:
    """The smallest minimiser ``A⁻¹ b`` for symmetric positive semidefinite ``A``."""
    inverse = spd_inverse(matrices)
    minimiser = (inverse @ right[..., None])[..., 0]
    rest = right - (matrices @ minimiser[..., None])[..., 0]
    minimiser = minimiser + (inverse @ rest[..., None])[..., 0]  # what rounding left over
    if bool(torch.isfinite(minimiser).all()):
        return minimiser
    if not bool((matrices.abs().amax((-2, -1)) > 0).all()):
        raise UserError(
            "one step solves every task from anywhere, so that no start is better than another: "
            "give a finite number of samples, or another inner rate."
        )
    return (torch.linalg.pinv(matrices, hermitian=True) @ right[..., None])[..., 0]


def normalised(weights: Tensor | None, optima: Tensor) -> Tensor:
    """Mixture weights that sum to one; equal ones if omitted."""
    tasks = optima.shape[-2]
    if weights is None:
        return optima.new_full((tasks,), 1.0 / tasks)
    total = weights.sum(-1, keepdim=True)
    if bool((weights < 0).any()) or not bool((total > 0).all()) or weights.shape[-1] != tasks:
        raise UserError(f"weights must be {tasks} numbers per environment, none negative and not all zero.")
    return weights / total


def lift(value: Number, axes: int) -> Number:
    """A number per environment with ``axes`` axes behind, so that it broadcasts; a plain number as it is."""
    return value.reshape(*value.shape, *[1] * axes) if isinstance(value, Tensor) else value


def one_over(samples: Number, axes: int) -> Number:
    """``1/s`` in the form of :func:`lift`; 0 for endless samples."""
    return lift(1.0 / samples, axes)


# many environments at once, in one pass


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


SMALL, MANY = 24, 32  # up to this dimension, from this many environments on, the batch is the innermost axis


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
    if (
        covariances.ndim < 3
        or covariances.shape[-1] != covariances.shape[-2]
        or covariances.shape[:-1] != optima.shape
    ):
        raise UserError(
            f"covariances of shape {tuple(covariances.shape)} with optima of shape {tuple(optima.shape)}: "
            "give (…, tasks, d, d) and (…, tasks, d)."
        )
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
