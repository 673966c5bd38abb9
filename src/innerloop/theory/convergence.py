r"""Global convergence of meta-learners with wide networks: the bound and its constants. On arrays only.

MetaNTK, Theorems 1 and 3; Bridge, Theorem 3, whose η₀ is printed with one mixed term twice (it is
:math:`2/(\sigma_{min}+\sigma_{max})` of each method's own kernel), whose condition on η is printed the wrong
way round (it is η < η₀), and whose rate must carry the η that is used. All for the summed loss ½‖F − Y‖² and
the NTK parametrisation, where the paper's 1/l is absorbed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.theory.kernels import condition, spectrum


class Rates(NamedTuple):
    """What a kernel says about gradient descent with it.

    Attributes:
        smallest: σ_min.
        largest: σ_max.
        condition: σ_max/σ_min.
        eta0: 2/(σ_min + σ_max), the largest outer rate of the theorem.
        rate: 1 − η₀σ_min/3, by which ‖F − Y‖ shrinks at least, per step with η₀.
    """

    smallest: float
    largest: float
    condition: float
    eta0: float
    rate: float


def rates(kernel: Tensor) -> Rates:
    """The constants of the theorem for a meta-kernel Φ.

    >>> rates(torch.diag(torch.tensor([1.0, 3.0])))
    Rates(smallest=1.0, largest=3.0, condition=3.0, eta0=0.5, rate=0.8333333333333334)
    """
    values = spectrum(kernel)
    smallest, largest = float(values[-1]), float(values[0])
    eta0 = 2 / (smallest + largest)
    return Rates(smallest, largest, condition(values), eta0, 1 - eta0 * smallest / 3)


def common_rate(*kernels: Tensor) -> float:
    r"""The η₀ that several methods may share (Bridge, Theorem 3): the least of their own ones.

    .. math:: \eta_0 = \min_m \frac{2}{\sigma_{min}(\Phi_m) + \sigma_{max}(\Phi_m)}

    The paper prints one mixed term, :math:`2/(\sigma_{min}(\Phi_{MTL}) + \sigma_{max}(\Phi_{ANIL}))`, twice.

    >>> common_rate(torch.diag(torch.tensor([1.0, 3.0])), torch.diag(torch.tensor([1.0, 7.0])))
    0.25
    """
    return min(rates(kernel).eta0 for kernel in kernels)


def loss_bound(steps: Tensor, eta: float, smallest: float, first_loss: float) -> Tensor:
    r"""What the loss of gradient descent may be after t steps (MetaNTK, eqs. 6, 32; Bridge, eqs. 29, 30).

    .. math:: \mathcal L(\theta_t) \le (1-\eta\sigma_{min}/3)^{2t}\,R_0^2/2

    Args:
        steps: t.
        eta: the outer rate that is used, at most η₀.
        smallest: σ_min.
        first_loss: :math:`R_0^2/2`, the loss before training.

    >>> loss_bound(torch.tensor([0.0, 1.0]), 0.5, 3.0, 8.0)
    tensor([8., 2.])
    """
    if not 0 < eta * smallest < 3:
        raise UserError(f"eta·σ_min is {eta * smallest:.3g}: the bound needs an outer rate of at most eta0.")
    return first_loss * (1 - eta * smallest / 3) ** (2 * steps)


def linear_loss(kernel: Tensor, residual: Tensor, eta: float, steps: Tensor) -> Tensor:
    r"""The loss while the kernel stands still: :math:`\tfrac12\|(I-\eta\Phi)^t r_0\|^2`.

    Args:
        kernel: Φ ``(rows, rows)``.
        residual: :math:`r_0 = F_0 - Y` ``(rows, outputs)``.
        eta: the outer rate.
        steps: t ``(times,)``.

    >>> linear_loss(torch.eye(1), torch.tensor([[2.0]]), 0.5, torch.tensor([0.0, 1.0]))
    tensor([2.0000, 0.5000])
    """
    values, vectors = torch.linalg.eigh((kernel + kernel.mT) / 2)
    parts = (vectors.mT @ residual).square().sum(1)
    return ((1 - eta * values) ** (2 * steps[:, None]) * parts).sum(1) / 2


def linear_distance(kernel: Tensor, residual: Tensor, eta: float, steps: Tensor) -> Tensor:
    r"""How far parameters are from their start while the kernel stands still (Bridge, eqs. 31, 41 and 43).

    .. math:: \|\theta_t-\theta_0\|^2 = r_0^\top\,\Phi^{-1}\big(I-(I-\eta\Phi)^t\big)^2\,r_0

    It does not depend on the width: over √width it falls like width^−½.

    Args:
        kernel: Φ ``(rows, rows)``.
        residual: :math:`r_0` ``(rows, outputs)``.
        eta: the outer rate.
        steps: t ``(times,)``.

    >>> linear_distance(torch.eye(1) * 4, torch.tensor([[2.0]]), 0.25, torch.tensor([0.0, 1.0]))  # √(4/4)
    tensor([0., 1.])
    """
    values, vectors = torch.linalg.eigh((kernel + kernel.mT) / 2)
    parts = (vectors.mT @ residual).square().sum(1)
    gone = 1 - (1 - eta * values) ** steps[:, None]
    floor = torch.finfo(values.dtype).eps * len(values) * values.abs().amax()
    # where the kernel is singular, nothing moves
    share = torch.where(values > floor, gone.square() / values.clamp(min=floor), 0.0)
    return (share * parts).sum(1).sqrt()
