"""Is MAML worth it where classes are permuted? Its gain is 1 by symmetry; the tasks still have a hardness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

import innerloop.theory.permuted as permuted
from innerloop.theory.estimates.hardness import Hardness, rank_tasks
from innerloop.theory.estimates.landscape_features import Step, View


class Checked(NamedTuple):
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
    checked: Checked | None
    hardness: Hardness

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        checked = {} if self.checked is None else {"checked": self.checked._asdict()}
        told = {"gain": 1.0, "applies": False, "reason": self.reason, **checked}
        return {**self.view.as_dict(), **told, "hardness": self.hardness.as_dict()}


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
    return PermutedLandscape(view, permuted.REASON, checked, ranked)


def _checked(view: View, step: Step, ways: int) -> Checked:
    z = view.z
    scale = float(torch.linalg.eigvalsh(torch.einsum("tni,tnj->ij", z, z) / (len(z) * z.shape[1]))[-1])
    lr = step.lr or 1 / (1 + scale)
    both = permuted.permuted_landscape(z, view.y, ways, lr, step.shots * ways, step.inner_shots * ways)
    return Checked(float(both.gain), float((both.nal - both.maml).norm()), lr)
