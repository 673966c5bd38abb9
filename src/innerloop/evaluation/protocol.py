"""What a few-shot number depends on besides the network: stated in full, or it is not a number."""

from __future__ import annotations

from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.evaluation.heads import HEADS, check_head
from innerloop.nets.norms import check_policy, kind_of
from innerloop.solvers.problems import check_positive
from innerloop.tasks.episodes import Kind

FINE_TUNING = "finetune"


class Protocol(NamedTuple):
    """How a frozen network is judged on episodes of new classes.

    Attributes:
        ways: classes per episode.
        shots: support pictures per class.
        queries: query pictures per class.
        episodes: how many.
        norm: the norm policy of the network that is judged; another one is refused.
        seed: of the episodes. Runs judged with the same seed saw the same ones.
        head: what is fitted on the features of the support set (see :mod:`innerloop.evaluation.heads`), or
            ``finetune`` for gradient steps on the whole network.
        C: inverse penalty of ``logistic``, ``svm``, ``svc`` and ``ridge``.
        normalise: whether features are divided by their norm.
        copies: this many augmented copies of every support picture in its place (RFS: 5); 0 leaves it alone.
        lr: ``finetune`` only: Adam's rate.
        steps: ``finetune`` only: Adam's steps.
        grid: further inverse penalties that are judged on the same episodes, each with features of unit
            length and as they come.
        ensemble: whether queries are labelled by the mean of the probabilities over ``grid``, and not by
            ``C`` and ``normalise``.

    >>> Protocol(head="ridge", shots=1).as_dict()["kind"]
    'inductive'
    """

    ways: int = 5
    shots: int = 5
    queries: int = 15
    episodes: int = 600
    norm: str = "running"
    seed: int = 0
    head: str = "logistic"
    C: float = 1.0
    normalise: bool = True
    copies: int = 0
    lr: float = 1e-3
    steps: int = 10
    grid: tuple[float, ...] = ()
    ensemble: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For reports: all settings that apply to the head, and whether it is inductive."""
        out = self._asdict()
        if self.head == FINE_TUNING:
            del out["C"]
        else:
            del out["lr"], out["steps"]
            if not HEADS[self.head].penalised or self.ensemble:
                del out["C"]
        if self.ensemble:
            del out["normalise"]
        else:
            del out["grid"], out["ensemble"]  # settings beside the one that counts
        return {**out, "kind": kind_of(self.norm)}

    def kinds(self) -> tuple[Kind, ...]:
        """The one kind of episode that it asks for."""
        return (Kind(self.ways, self.shots, self.queries),)


def check_protocol(protocol: Protocol, norm: str) -> None:
    """Refuses heads that do not exist, and a norm policy that is not the network's."""
    check_head(protocol.head, [FINE_TUNING])
    check_policy(protocol.norm)
    if protocol.norm != norm:
        raise UserError(
            f"the protocol says norm={protocol.norm}, the network has norm={norm}: a number under one policy "
            "is not one under another, so give both the same."
        )
    check_grid(protocol)
    if protocol.copies < 0:
        raise UserError(f"copies={protocol.copies}: give 0 for none, or 5 as in RFS.")


def check_grid(protocol: Protocol) -> None:
    """Refuses a grid of settings that no head can be fitted under."""
    if protocol.head == FINE_TUNING and (protocol.grid or protocol.ensemble):
        raise UserError(
            "{grid} and {ensemble} are for heads on features, not for finetune.", names=("grid", "ensemble")
        )
    if protocol.ensemble and not protocol.grid:
        raise UserError(
            "{ensemble} averages over the penalties of {grid}: give some.", names=("grid", "ensemble")
        )
    for C in protocol.grid:
        check_positive("C", C)
