r"""The landscape of somebody's own tasks: estimates in a feature space, with intervals.

For squared loss and models linear in the adapted parameters, everything in
:mod:`.landscape.forms` can be estimated: :math:`\hat\Sigma_i=X_i^\top X_i/n`, :math:`\hat w_i` by
least squares, and :math:`Q_i^{(s)}` without bias and without assuming Gaussian inputs, from two halves A and
B of the samples: :math:`E[\hat P_A\hat\Sigma_B\hat P_A]=Q^{(n/2)}`, so that

.. math:: \hat Q^{(s)}=\hat P_A\hat\Sigma_B\hat P_A+\alpha^2\big(\tfrac1s-\tfrac2n\big)\hat V,\qquad
          V=E[(x^\top\Sigma x)xx^\top]-\Sigma^3,

with :math:`\hat P_A=I-\alpha\hat\Sigma_A`. (Covariances of all samples in both places would be too large by
about :math:`\alpha^2V/n`: as if the step were on fewer samples.) Estimated optima scatter more than the true
ones do, by :math:`\hat\sigma_i^2(X_i^\top X_i)^{-1}`; what that adds to risks and spreads is subtracted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError

QUANTILES = (0.025, 0.975)


class TaskFits(NamedTuple):
    r"""What samples say about each of ``T`` tasks with ``k`` outputs.

    Attributes:
        covariances: ``(T, d, d)``, second moments of the features.
        optima: ``(T, d, k)``.
        noise: ``(T,)``, residual variance per output.
        scatter: ``(T, d, d)``, covariance of an estimated optimum's column.
        halves: ``(2, T, d, d)``, second moments of the even and of the odd samples.
        spread: ``(T, d, d)``, :math:`V=E[(x^\top\Sigma x)xx^\top]-\Sigma^3`, from the halves, without bias.
        half: samples in a half.
    """

    covariances: Tensor
    optima: Tensor
    noise: Tensor
    scatter: Tensor
    halves: Tensor
    spread: Tensor
    half: int


class LandscapePrediction(NamedTuple):
    """Predictions for a mixture of tasks, or many (a leading axis): risks, gain, geography."""

    nal_risk: Tensor
    maml_risk: Tensor
    nal_hard: Tensor
    nal_easy: Tensor
    maml_hard: Tensor
    maml_easy: Tensor
    gain: Tensor
    R: Tensor
    r_hard: Tensor
    r_easy: Tensor
    rho_hard: Tensor
    rho_easy: Tensor


def fit_tasks(x: Tensor, y: Tensor) -> TaskFits:
    """Least squares for every task.

    Args:
        x: features ``(T, n, d)``; more samples than dimensions.
        y: targets ``(T, n, k)``.

    >>> x = torch.tensor([[[1.0], [2.0], [-1.0]]])
    >>> fit_tasks(x, 3 * x).optima.flatten()
    tensor([3.])
    """
    if x.ndim != 3 or y.ndim != 3 or x.shape[:2] != y.shape[:2]:
        raise UserError(
            f"features of shape {tuple(x.shape)} with targets of shape {tuple(y.shape)}: "
            "give (tasks, samples, dimensions) and (tasks, samples, outputs)."
        )
    n, d = x.shape[1:]
    if n <= d:
        raise UserError(
            f"{n} samples per task in {d} dimensions leave the optima undetermined: give more samples "
            "(ten times the dimension is a good number), or fewer features."
        )
    gram = x.mT @ x
    covariances = gram / n
    if bool((torch.linalg.eigvalsh(covariances)[:, 0] <= 0).any()):
        raise UserError("features of a task are linearly dependent: remove constant or repeated ones.")
    optima = torch.linalg.solve(gram, x.mT @ y)
    noise = (x @ optima - y).square().sum(1).mean(-1) / (n - d)
    halves, spread = _halves(x)
    return TaskFits(
        covariances, optima, noise, noise[:, None, None] * torch.linalg.inv(gram), halves, spread, n // 2
    )


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x.shape[1] // 2
    parts = torch.stack([x[:, : 2 * h : 2], x[:, 1 : 2 * h : 2]])
    moments = parts.mT @ parts / h
    other = moments.flip(0)
    weight = ((parts @ other) * parts).sum(-1, keepdim=True)
    raw = (weight * parts).mT @ parts / h - moments @ other @ moments
    # the product of three has Σ³ + V/h for its mean
    return moments, raw.mean(0) * (h / (h - 1) if h > 1 else 1.0)


def sample_curvature(fits: TaskFits, lr: float, samples: float) -> Tensor:
    r""":math:`\hat Q_i^{(s)}`, ``(T, d, d)``, without bias; see the head of this file."""
    eye = torch.eye(fits.halves.shape[-1], dtype=fits.halves.dtype, device=fits.halves.device)
    left = eye - lr * fits.halves
    crossed = (left @ fits.halves.flip(0) @ left).mean(0)
    return crossed + lr**2 * (1 / samples - 1 / fits.half) * fits.spread


def left_after_step(fits: TaskFits, lr: float) -> Tensor:
    """Hardness as the rate of descent: what share of a task's excess loss one full step leaves, ``(T,)``."""
    # ‖(I − αΣ)v‖²_Σ/‖v‖²_Σ, v from w* to the average optimum; for Σ = ρI (1 − αρ)², the paper's order
    v = fits.optima.mean(0) - fits.optima
    after = v - lr * fits.covariances @ v
    s = fits.covariances
    return ((s @ after) * after).sum((1, 2)) / ((s @ v) * v).sum((1, 2))


def estimated_dimension(fits: TaskFits) -> Tensor:
    r""":math:`\operatorname{tr}\Sigma/\|\Sigma\|` of the tasks (Landscape, Remark 1), their harmonic mean."""
    # the largest eigenvalue of a sample covariance is too large, by (1 + √(d/n))² for isotropic inputs: so
    # one half of the samples gives the direction, the other its variance. Without bias where directions are
    # all alike, nearly so where one stands out; in between the dimension comes out somewhat too large
    directions = torch.linalg.eigh(fits.halves).eigenvectors[..., -1:]
    along = (directions.mT @ fits.halves.flip(0) @ directions).mean(0)[:, 0, 0]
    share = (along / fits.covariances.diagonal(dim1=1, dim2=2).sum(-1)).mean()
    return (1 / share).clamp(max=float(fits.covariances.shape[-1]))


def solutions(fits: TaskFits, lr: float, inner_shots: float) -> tuple[Tensor, Tensor]:
    """The solutions of NAL and MAML for equally frequent tasks, each ``(d, k)``."""
    nal, maml = (
        torch.linalg.solve(c.mean(0), (c @ fits.optima).mean(0))
        for c in (fits.covariances, sample_curvature(fits, lr, inner_shots))
    )
    return nal, maml


def predict(
    fits: TaskFits, hard: Tensor, lr: float, shots: float, inner_shots: float, weights: Tensor | None = None
) -> LandscapePrediction:
    """Risks of both solutions, the gain, and the geography, for weights ``(…, T)`` of the tasks.

    Args:
        fits: the tasks.
        hard: which of them count as hard, ``(T,)``.
        lr: α, for half the mean squared error.
        shots: m.
        inner_shots: n₂.
        weights: equal if omitted; bootstrap counts otherwise.
    """
    t, d, k = fits.optima.shape
    p = fits.optima.new_ones(t) if weights is None else weights.to(fits.optima)
    p = p / p.sum(-1, keepdim=True)
    test = sample_curvature(fits, lr, shots)
    floor = 0.5 * k * (test * fits.scatter).sum((1, 2))
    risks = []
    for curvature in (fits.covariances, sample_curvature(fits, lr, inner_shots)):
        total = (p @ curvature.reshape(t, -1)).reshape(*p.shape[:-1], d, d)
        pull = (p @ (curvature @ fits.optima).reshape(t, -1)).reshape(*p.shape[:-1], d, k)
        v = torch.linalg.solve(total, pull)[..., None, :, :] - fits.optima
        risks.append(0.5 * ((test @ v) * v).sum((-2, -1)) - floor)
    is_hard = hard.to(p)
    groups = [_share(p * is_hard), _share(p * (1 - is_hard))]
    centres = [(g @ fits.optima.reshape(t, -1)) for g in groups]
    spreads = [_spread(fits, g, c) for g, c in zip(groups, centres, strict=True)]
    scale = fits.covariances.diagonal(dim1=1, dim2=2).mean(-1)
    nal, maml = ((p * risk).sum(-1) for risk in risks)
    by_group: list[Tensor] = [(g * risk).sum(-1) for risk in risks for g in groups]
    R = (centres[0] - centres[1]).square().mean(-1).sqrt()
    scales = [(g * scale).sum(-1) for g in groups]
    values = [nal, maml, *by_group, nal / maml, R, *spreads, *scales]
    return LandscapePrediction._make(values)


def bootstrap(
    fits: TaskFits,
    hard: Tensor,
    lr: float,
    shots: float,
    inner_shots: float,
    generator: torch.Generator,
    draws: int = 400,
) -> dict[str, tuple[float, float, float]]:
    """Every prediction with its 95 % interval over resampled tasks: ``name -> (value, low, high)``.

    The interval covers which tasks happened to be seen. Tasks are resampled within the two groups.

    Args:
        fits: what samples say about the tasks.
        hard: which tasks are hard, ``(T,)``.
        lr: α, the inner rate.
        shots: samples that a new task is adapted to.
        inner_shots: samples that MAML adapts to in training.
        generator: where the resampling is from.
        draws: bootstrap samples.
    """
    value = predict(fits, hard, lr, shots, inner_shots)
    counts = fits.optima.new_zeros(draws, len(hard))
    for group in (torch.nonzero(hard)[:, 0], torch.nonzero(~hard)[:, 0]):
        if len(group) < 2:
            raise UserError("a bootstrap needs at least two hard and two easy tasks: give more tasks.")
        picked = group[torch.randint(len(group), (draws, len(group)), generator=generator)]
        counts.scatter_add_(1, picked, torch.ones_like(picked, dtype=counts.dtype))
    again = predict(fits, hard, lr, shots, inner_shots, counts)
    ends = torch.tensor(QUANTILES, dtype=counts.dtype)
    out = {}
    for name, one, many in zip(LandscapePrediction._fields, value, again, strict=True):
        low, high = torch.quantile(many, ends).tolist()
        out[name] = (float(one), low, high)
    return out


def _share(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def _spread(fits: TaskFits, share: Tensor, centre: Tensor) -> Tensor:
    """Variance of the optima of a group per coordinate, without what estimating them adds."""
    flat = fits.optima.reshape(len(fits.optima), -1)
    raw = share @ flat.square() - centre.square()
    added = share @ fits.scatter.diagonal(dim1=1, dim2=2).mean(-1)
    # the weighted variance is short by the centre's own; 1/Σp² is how many tasks the weights amount to
    effective = 1 / share.square().sum(-1)
    unbiased = raw.mean(-1) * effective / (effective - 1).clamp(min=1e-9)
    return (unbiased - added).clamp(min=0)
