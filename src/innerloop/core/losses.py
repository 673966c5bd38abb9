r"""Losses by name, each with its convention.

The papers use three conventions for squared error, and a learning rate found under one is off by a
constant under another. With residuals :math:`r_i = f(x_i) - y_i` over ``n`` samples:

==============  ==========================================  =========================
name            value                                       used by
==============  ==========================================  =========================
``half-sse``    :math:`\tfrac12\sum_i\|r_i\|^2`             Bridge, MetaNTK
``half-mse``    :math:`\tfrac1{2n}\sum_i\|r_i\|^2`          Landscape
``mse``         :math:`\tfrac1n\sum_i\|r_i\|^2`             AdaptLR, Finn et al.
==============  ==========================================  =========================

So a step of size :math:`\alpha` on ``mse`` equals one of :math:`2\alpha` on ``half-mse`` and one of
:math:`2\alpha/n` on ``half-sse`` (:func:`rate_factor`). Samples are averaged (or summed), outputs summed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.types import Loss


def _sum_of_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.shape != targets.shape:
        raise UserError(
            f"outputs have shape {tuple(outputs.shape)} but targets {tuple(targets.shape)}: "
            "give targets one column per output."
        )
    return (outputs - targets).square().sum()


def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return _sum_of_squares(outputs, targets) / outputs.shape[0]


def _half_mse(outputs: Tensor, targets: Tensor) -> Tensor:
    return _sum_of_squares(outputs, targets) / (2 * outputs.shape[0])


def _half_sse(outputs: Tensor, targets: Tensor) -> Tensor:
    return _sum_of_squares(outputs, targets) / 2


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets)


def _cross_entropy_sum(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="sum")


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("mse", "mean over samples of ‖f(x) − y‖², no ½ (AdaptLR, Finn)", _mse),
        Loss("half-mse", "½ · mean over samples of ‖f(x) − y‖² (Landscape)", _half_mse),
        Loss("half-sse", "½ · sum over samples of ‖f(x) − y‖² (Bridge, MetaNTK)", _half_sse),
        Loss("cross-entropy", "mean over samples of −log softmax(f(x))[y]", _cross_entropy),
        Loss("cross-entropy-sum", "sum over samples of −log softmax(f(x))[y]", _cross_entropy_sum),
    )
}
"""Every loss by its name."""


def get_loss(name: str | Loss) -> Loss:
    """The loss of that name; a loss itself is given back.

    >>> import torch
    >>> get_loss("half-sse").value(torch.tensor([[3.0], [0.0]]), torch.tensor([[1.0], [0.0]]))
    tensor(2.)
    """
    if isinstance(name, Loss):
        return name
    if not isinstance(name, str):
        raise UserError(
            f"a loss is a Loss or its name, such as 'mse', not a {type(name).__name__}: there are "
            f"{', '.join(LOSSES)}; one of your own is innerloop.core.types.Loss(name, convention, value)."
        )
    if name not in LOSSES:
        raise UserError(f"unknown loss '{name}'{did_you_mean(name, LOSSES)}; there are {', '.join(LOSSES)}.")
    return LOSSES[name]


def rate_factor(from_loss: str, to_loss: str, samples: int) -> float:
    """What to multiply a learning rate with when the loss convention changes, so that steps stay equal.

    Args:
        from_loss: the loss under which the rate was chosen.
        to_loss: the loss under which it will be used; of the same family (squared errors or cross-entropies).
        samples: number of samples that a loss is taken over; only the conventions that sum depend on it.

    >>> rate_factor("mse", "half-mse", samples=10)
    2.0
    >>> rate_factor("mse", "half-sse", samples=10)
    0.2
    """
    scale = {
        "mse": 1.0,
        "half-mse": 0.5,
        "half-sse": samples / 2,
        "cross-entropy": 1.0,
        "cross-entropy-sum": float(samples),
    }
    families = [name.startswith("cross") for name in (from_loss, to_loss)]
    if from_loss not in scale or to_loss not in scale or families[0] != families[1]:
        raise UserError(f"a rate cannot be carried over from '{from_loss}' to '{to_loss}'.")
    return scale[from_loss] / scale[to_loss]


def smoothed(loss: Loss, share: float) -> Loss:
    r"""Cross-entropy against labels that give a share ε of their weight to the other classes, evenly.

    .. math:: -(1-\varepsilon)\log p_y - \frac{\varepsilon}{k-1}\sum_{c\ne y}\log p_c

    as MetaOptNet was trained (with ε = 0.1). torch's ``label_smoothing`` spreads over all ``k`` classes, the
    right one among them: this is its εk/(k − 1). Classes whose output is minus infinity cannot be, and get no
    share.

    Args:
        loss: ``cross-entropy`` or ``cross-entropy-sum``.
        share: ε, from 0 (the loss itself) to below 1.

    Raises:
        UserError: the loss has no labels.

    >>> import torch
    >>> float(smoothed(LOSSES["cross-entropy"], 0.5).value(torch.zeros(1, 2), torch.tensor([0])))  # log 2
    0.6931471824645996
    """
    if share == 0:
        return loss
    if not is_classification(loss):
        raise UserError(f"{loss.name} has no labels to smooth: give a share of 0.")
    summed = loss.name == "cross-entropy-sum"

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of ``outputs`` against smoothed labels, summed or averaged as ``loss`` is."""
        possible = outputs > -torch.inf
        log_p = F.log_softmax(outputs, -1)
        right = log_p.gather(-1, targets[..., None])[..., 0]
        # minus infinity times zero is nan, in gradients too
        others = torch.where(possible, log_p, 0.0).sum(-1) - right
        count = (possible.sum(-1) - 1).clamp(min=1)
        each = -(1 - share) * right - share * others / count
        return each.sum() if summed else each.mean()

    return Loss(loss.name, f"{loss.convention}, {share:g} of a label on the other classes", value)


def is_classification(loss: Loss) -> bool:
    """Whether targets are class labels."""
    return loss.name.startswith("cross-entropy")


def score(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """What evaluation reports of one task: accuracy for labels, mean squared error (no ½) otherwise."""
    return accuracy(outputs, targets) if is_classification(loss) else _mse(outputs, targets)


def accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Share of rows of ``(…, n, classes)`` whose largest output is the label ``(…, n)``."""
    # nan where an output is nan or infinite, which argmax would call class 0; minus infinity is an answer
    share = (outputs.argmax(-1) == labels).to(outputs.dtype).mean(-1)
    return torch.where(outputs.amax(-1).isfinite().all(-1), share, torch.nan)


def score_name(loss: Loss) -> str:
    """``accuracy`` or ``mse``: the key under which :func:`score` is reported."""
    return "accuracy" if is_classification(loss) else "mse"
