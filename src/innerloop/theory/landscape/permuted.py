r"""Why the closed forms say nothing about N-way classification with permuted labels: their gain is 1.

Regress one-hot labels on features that contain a constant. A task whose ``C`` classes get their label numbers
at random is ``C!`` tasks, with optima :math:`W_iP_\pi`. Both solutions weigh the average over :math:`\pi`, in
which every column is :math:`\bar w_i=\tfrac1C\sum_cw_{ic}`: the regression of
:math:`\tfrac1C\sum_cy_c=\tfrac1C`, a constant. So
:math:`\bar w_i` predicts :math:`1/C` for *every* task, both :math:`E[\Sigma]^{-1}E[\Sigma\bar w]` and
:math:`E[Q]^{-1}E[Q\bar w]` are that one vector, and the gain is exactly 1 whatever the tasks are. What one
measures on such tasks is feature learning, which these forms do not contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innerloop.theory.hardness import Hardness, rank_tasks
from innerloop.theory.landscape.data import TaskFits, fit_tasks, sample_curvature
from innerloop.theory.landscape.features import Step, View, with_constant

PLAIN = "no formula predicts it for classification; only training does"
"""The same for whoever has pictures to label."""

REASON = (
    "labels are permuted at random from task to task: averaged over permutations all class columns are "
    "equal, both optima are the constant 1/C, and the closed forms predict a gain of exactly 1; what "
    "training shows there is feature learning, which they do not model"
)


class PermutedSolutions(NamedTuple):
    """Both solutions ``(d, C)``, their excess risks, and the gain, averaged over all labellings."""

    nal: Tensor
    maml: Tensor
    nal_risk: Tensor
    maml_risk: Tensor
    gain: Tensor


def permuted_landscape(
    x: Tensor, labels: Tensor, ways: int, lr: float, shots: float, inner_shots: float
) -> PermutedSolutions:
    """NAL and MAML over tasks whose labels are permuted at random, for squared loss on one-hot targets.

    Args:
        x: features ``(T, n, d)`` without a constant; more samples than ``d + 1``.
        labels: ``(T, n)``.
        ways: C.
        lr: α, for half the mean squared error.
        shots: m.
        inner_shots: n₂.
    """
    targets = torch.nn.functional.one_hot(labels, ways).to(x.dtype)
    fits = fit_tasks(with_constant(x), targets)
    test = sample_curvature(fits, lr, shots)
    nal = _solution(fits, fits.covariances)
    maml = _solution(fits, sample_curvature(fits, lr, inner_shots))
    before, after = (_risk(fits, test, w) for w in (nal, maml))
    return PermutedSolutions(nal, maml, before, after, before / after)


def _solution(fits: TaskFits, curvature: Tensor) -> Tensor:
    averaged = fits.optima.mean(-1, keepdim=True).expand_as(fits.optima)
    return torch.linalg.solve(curvature.mean(0), (curvature @ averaged).mean(0))


def _risk(fits: TaskFits, test: Tensor, w: Tensor) -> Tensor:
    """Equal columns of ``w`` see every labelling alike, so one labelling is enough."""
    v = w - fits.optima
    return 0.5 * ((test @ v) * v).sum((1, 2)).mean()


class PermutedGain(NamedTuple):
    """Numbers behind the symmetry: the gain, how far both solutions lie apart, and the rate of the step."""

    gain: float
    distance: float
    inner_lr: float


class PermutedLandscape(NamedTuple):
    """The landscape of tasks whose classes are permuted: the gain is 1 by symmetry.

    Attributes:
        view: what was looked at.
        reason: why, in words.
        checked: the same by numbers, where there are samples enough.
        hardness: the tasks by hardness.
    """

    view: View
    reason: str
    checked: PermutedGain | None
    hardness: Hardness

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        checked = {} if self.checked is None else {"checked": self.checked._asdict()}
        symmetric = {"gain": 1.0, "applies": False, "reason": self.reason, **checked}
        return {**self.view.as_dict(), **symmetric, "hardness": self.hardness.as_dict()}

    def __str__(self) -> str:
        lines = [*self.view.undecided(self.reason), "predicted gain 1, by symmetry", str(self.hardness)]
        return "\n".join(lines)


def permuted_task_landscape(view: View, step: Step, kinds: Sequence[str] = ()) -> PermutedLandscape:
    """The landscape of classification tasks whose classes come in any order.

    Args:
        view: the tasks, with labels.
        step: the step of adaptation; its shots are per class.
        kinds: what kind each task is of, if there are kinds.
    """
    ways = int(view.y.max()) + 1
    checked = None if view.z.shape[1] <= view.z.shape[2] + 1 else _checked(view, step, ways)
    ranked = rank_tasks(view.z, view.y, view.support, ways, kinds)
    return PermutedLandscape(view, REASON, checked, ranked)


def _checked(view: View, step: Step, ways: int) -> PermutedGain:
    z = view.z
    scale = float(torch.linalg.eigvalsh(torch.einsum("tni,tnj->ij", z, z) / (len(z) * z.shape[1]))[-1])
    lr = step.lr or 1 / (1 + scale)
    both = permuted_landscape(z, view.y, ways, lr, step.shots * ways, step.inner_shots * ways)
    return PermutedGain(float(both.gain), float((both.nal - both.maml).norm()), lr)
