"""How tasks are run: decided once, written into the run, used again on resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Self, get_args

import torch

from innerloop.core.arguments import checked
from innerloop.core.errors import UserError, did_you_mean

Mode = Literal["vmap", "threads", "processes", "loop"]
Compile = Literal["off", "trace", "full", "native"]


class _Plan(NamedTuple):
    mode: Mode = "loop"
    threads: int = 1
    chunk: int | None = None
    compile: Compile = "off"
    reason: str = ""
    ranks: int = 1


class Plan(_Plan):
    """How a function is mapped over tasks.

    Attributes:
        mode: ``vmap`` (all tasks in one batched computation), ``threads`` (whole tasks in parallel, one
            intra-op thread each), ``processes`` (the same in worker processes, which do not wait for each
            other's Python) or ``loop`` (one after the other).
        threads: cores in use: workers in ``threads`` and ``processes``, intra-op threads otherwise.
        chunk: tasks at a time under ``vmap``, to bound memory; ``None`` is all at once.
        compile: under ``vmap`` ``full`` (generated C++) or ``trace`` (the graph is captured once and
            replayed; needs no compiler); ``native`` (networks use the native code that they have, under
            ``vmap`` in a captured graph), but not in ``processes``; or ``off``.
        reason: why this was chosen, in one sentence.
        ranks: processes among which tasks are divided, each of which runs its own so; they must have met
            (:func:`innerloop.training.execution.rank_group.join`), and all do the same.

    Raises:
        UserError: there is no such mode or way to compile, or a number is none.
    """

    __slots__ = ()

    @checked
    def __new__(
        cls,
        mode: Mode = "loop",
        threads: int = 1,
        chunk: int | None = None,
        compile: Compile = "off",
        reason: str = "",
        ranks: int = 1,
    ) -> Self:
        """Refuses what there is not."""
        for what, word, known in (("mode", mode, get_args(Mode)), ("compile", compile, get_args(Compile))):
            if word not in known:
                hint = did_you_mean(str(word), known)
                raise UserError(f"Plan: there is no {what}={word!r}{hint}; there are {', '.join(known)}.")
        if compile == "native" and mode == "processes":
            raise UserError(
                "Plan: compile='native' is not for mode='processes': use 'threads', 'loop' or 'vmap'."
            )
        return super().__new__(cls, mode, threads, chunk, compile, reason, ranks)

    @property
    def intra_op(self) -> int:
        """Threads that torch may use inside one operation: one where tasks have workers of their own."""
        return 1 if self.mode in ("threads", "processes") else self.threads

    @property
    def label(self) -> str:
        """How tables of measurements call it.

        >>> Plan("loop", 2).label, Plan("vmap", 1, compile="full").label
        ('loop@2', 'vmap@1+full')
        """
        return f"{self.mode}@{self.threads}" + ("" if self.compile == "off" else f"+{self.compile}")

    def as_dict(self) -> dict[str, Any]:
        """For the manifest, which keeps the number of ranks apart: a run may go on with another."""
        return {name: value for name, value in self._asdict().items() if name != "ranks"}

    def __str__(self) -> str:
        workers = "worker" if self.mode == "processes" else "thread"
        parts = [self.mode, f"{self.threads} {workers}{'s' if self.threads != 1 else ''}"]
        if self.chunk:
            parts.append(f"chunks of {self.chunk}")
        if self.mode == "vmap" or self.compile == "native":
            parts.append(f"compile={self.compile}")
        if self.ranks > 1:
            parts.append(f"{self.ranks} ranks")
        return ", ".join(parts)


@contextmanager
def torch_threads(plan: Plan | None) -> Iterator[None]:
    """Gives torch the threads that a plan leaves to it (None: as they are), and back those it had."""
    before = torch.get_num_threads()
    wanted = before if plan is None else plan.intra_op
    if wanted != before:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
