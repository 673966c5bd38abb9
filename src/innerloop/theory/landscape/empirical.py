r"""The minimisers on finite samples (Landscape, eqs. 41 and 43), exactly and without descent.

Both objectives are quadratic in ``w`` for a linear model, so each is one linear system. With
:math:`\hat P=I-\tfrac{\alpha}{n_2}X_{in}^\top X_{in}` the model after one inner step predicts
:math:`X_{out}(\hat Pw+\tfrac{\alpha}{n_2}X_{in}^\top y_{in})`, which is least squares in ``w``.
"""

from __future__ import annotations

from torch import Tensor

from innerloop.theory.landscape.forms import solve


def empirical_nal(x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    r""":math:`w_{NAL}=\big(\sum_iX_i^\top X_i\big)^{-1}\sum_iX_i^\top y_i` (eq. 41), ``(…, d)``.

    Args:
        x: ``(…, tasks, n, d)``.
        y: ``(…, tasks, n)``.
        weights: of the tasks, ``(…, tasks)``: hard tasks may be up-weighted (ζ of Table 3).

    >>> import torch
    >>> empirical_nal(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[1.0, 3.0]]))   # (1 + 6)/(1 + 4)
    tensor([1.4000])
    """
    return _least_squares(x, y, weights)


def empirical_maml(
    x_in: Tensor, y_in: Tensor, x_out: Tensor, y_out: Tensor, lr: float, weights: Tensor | None = None
) -> Tensor:
    r""":math:`w_{MAML}` (eq. 43), ``(…, d)``: the minimiser of the outer loss after one inner step.

    In data instead of optima and noise: with :math:`\hat C=X_{out}\hat P`,
    :math:`w=\big(\sum\hat C^\top\hat C\big)^{-1}\sum\hat C^\top
    \big(y_{out}-\tfrac{\alpha}{n_2}X_{out}X_{in}^\top y_{in}\big)`. (Eq. 42, from which the paper derives
    it, has the sign of the inner noise wrong; eq. 43 is right.)

    Args:
        x_in: ``(…, episodes, n₂, d)``; the episodes of all tasks.
        y_in: ``(…, episodes, n₂)``.
        x_out: ``(…, episodes, n₁, d)``.
        y_out: ``(…, episodes, n₁)``.
        lr: α, for half the mean squared error.
        weights: of the episodes.

    >>> import torch
    >>> one = torch.ones(1, 1, 1)
    >>> empirical_maml(one, torch.ones(1, 1), one, torch.ones(1, 1), lr=0.5)
    tensor([1.])
    """
    step = lr / x_in.shape[-2]
    gram = x_in.mT @ x_in
    left = x_out - step * (x_out @ gram)
    moved = step * (x_out @ (x_in.mT @ y_in[..., None]))[..., 0]
    return _least_squares(left, y_out - moved, weights)


def _least_squares(x: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    if weights is not None:
        root = weights.sqrt()[..., None]
        x, y = x * root[..., None], y * root
    rows = x.flatten(-3, -2)
    return solve(rows.mT @ rows, (rows.mT @ y.flatten(-2)[..., None])[..., 0])
