"""The processes that share one run: what they tell each other (no pickles), and which of them is missing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from innerloop.core.ranks import LostRankError, Rank
from innerloop.core.resources import process_fields

TIMEOUT = 600.0
"""Seconds after which a rank that does not answer is given up."""

_MEET = timedelta(minutes=30)  # to start: one of them may have to convert a data set first
_LISTEN = timedelta(days=365)  # between calls rank 0 may compile, measure or write as long as it likes
_GRACE = 5.0  # seconds in which all that still live say so
_TELL = 1.0  # seconds between notes of how far a rank is


class RankGroup:
    """This process among those that share the work, made by :func:`join`."""

    def __init__(self, here: Rank, base: Any, store: Any) -> None:
        self.rank, self.size, self.here = here.rank, here.size, here
        self.timeout, self.busy, self.whole = TIMEOUT, False, True
        self._base, self._store = base, store
        self._count, self._told_at = 0, 0.0
        self._control = dist.new_group(backend="gloo", timeout=_LISTEN)
        store.set(f"who/{self.rank}", f"{os.getpid()} {socket.gethostname()}")

    # ---- exchanges: every rank calls the same ones in the same order

    def add_up(self, flat: Tensor) -> None:
        """The sum over ranks, in place: the one exchange of a training step."""
        self._wait(lambda: dist.all_reduce(flat, async_op=True))

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Everybody's tensors, on the processor, by rank."""
        mine = _packed(tensors)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._wait(lambda: dist.all_gather(lengths, torch.tensor([len(mine)]), async_op=True))
        room = int(torch.cat(lengths).max())
        padded = torch.cat([mine, mine.new_zeros(room - len(mine))])
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        self._wait(lambda: dist.all_gather(parts, padded, async_op=True))
        return [_unpacked(part[: int(n)]) for part, n in zip(parts, lengths, strict=True)]

    def announce(self, tensors: dict[str, Tensor]) -> None:
        """Rank 0 tells all others."""
        self._tell(_packed(tensors))

    def listen(self) -> dict[str, Tensor]:
        """What rank 0 announces next, however long that takes."""
        return _unpacked(self._tell(None))

    def _tell(self, content: Tensor | None) -> Tensor:
        length = torch.tensor([0 if content is None else len(content)])
        self._wait(lambda: dist.broadcast(length, 0, group=self._control, async_op=True), patient=True)
        content = torch.empty(int(length), dtype=torch.uint8) if content is None else content
        self._wait(lambda: dist.broadcast(content, 0, group=self._control, async_op=True), patient=True)
        return content

    def _wait(self, start: Callable[[], Any], patient: bool = False) -> None:
        if not patient:
            self._arrive()
        try:
            start().wait(*(() if patient else (timedelta(seconds=self.timeout),)))
        except RuntimeError as error:
            self.whole = False
            raise self._lost(error) from error

    # ---- who is missing

    def _arrive(self) -> None:
        """Says now and then how many exchanges this rank has come to: of slow steps, every one."""
        self._count += 1
        if time.monotonic() - self._told_at > _TELL:
            self._told_at = time.monotonic()
            self._store.set(f"at/{self.rank}", str(self._count))

    def report(self, error: BaseException) -> None:
        """Leaves the reason for which this rank stops, for the one that tells of it."""
        self._store.set(f"error/{self.rank}", f"{type(error).__name__}: {error}".splitlines()[0][:500])

    def _lost(self, error: RuntimeError) -> LostRankError:
        """Names the ranks that do not say that they live."""
        try:
            missing = self._missing()
            names = [self._name(rank) for rank in missing]
        except RuntimeError:  # the store is gone too
            missing, names = [], []
        if not names:
            first = (str(error).splitlines() or ["unknown"])[0]
            return LostRankError(f"rank {self.rank} lost its connection to the other ranks ({first}).")
        hung, plural = "timed out" in str(error).lower(), "s" if len(names) > 1 else ""
        verb = f"did not answer for {self.timeout:g} seconds" if hung else "stopped"
        return LostRankError(f"rank{plural} {' and '.join(names)} {verb}.", hung)

    def _missing(self) -> list[int]:
        """Ranks whose process is gone; where there is none, those that are silent."""
        self._store.set(f"alive/{self.rank}", "")
        others = [rank for rank in range(self.size) if rank != self.rank]
        deadline = time.monotonic() + _GRACE
        while True:
            dead = [rank for rank in others if self._dead(rank)]
            silent = [rank for rank in others if not self._here(rank)]
            if dead or not silent or time.monotonic() > deadline:
                return dead or silent
            time.sleep(0.1)

    def _here(self, rank: int) -> bool:
        """Whether a rank says that it lives, or has come to this exchange and waits as we do."""
        if self._store.check([f"alive/{rank}"]):
            return True
        known = self._store.check([f"at/{rank}"])
        return known and int(self._store.get(f"at/{rank}").decode()) >= self._count

    def _dead(self, rank: int) -> bool:
        """Whether the process is known to be gone: it said why, or ran on this machine and does no more."""
        if self._store.check([f"error/{rank}"]):
            return True
        if self._store.check([f"alive/{rank}"]):  # it noticed the loss as we did, and may have ended since
            return False
        pid, _, host = self._who(rank).partition(" ")
        return host == socket.gethostname() and not process_lives(int(pid))

    def _who(self, rank: int) -> str:
        return str(self._store.get(f"who/{rank}").decode())

    def _name(self, rank: int) -> str:
        pid, _, host = self._who(rank).partition(" ")
        why = self._store.get(f"error/{rank}").decode() if self._store.check([f"error/{rank}"]) else ""
        return f"{rank} (process {pid} on {host}{': ' + why if why else ''})"

    # ---- what outlives a loss

    def remember(self, text: str) -> None:
        """Keeps a line for the next attempt: the directory of the run."""
        if self.here.job:
            Path(self.here.job).write_text(text, encoding="utf-8")
        elif self.here.hosted:
            self._base.set("innerloop/run", text)

    def recall(self) -> str | None:
        """What an earlier attempt kept."""
        if self.here.attempt == 0:
            return None
        if self.here.job:
            path = Path(self.here.job)
            return path.read_text(encoding="utf-8") if path.is_file() else None
        known = self.here.hosted and self._base.check(["innerloop/run"])
        return str(self._base.get("innerloop/run").decode()) if known else None


_current: RankGroup | None = None


def join(here: Rank) -> RankGroup:
    """Meets the other ranks; returns when all are there."""
    global _current
    stores: Any = dist  # its stores are not in the list of names that it exports
    if here.store:
        base = stores.FileStore(here.store, here.size)
    else:
        serves = here.rank == 0 and not here.hosted
        base = stores.TCPStore(here.address, here.port, here.size, serves, _MEET)
    store = stores.PrefixStore(f"innerloop/attempt-{here.attempt}", base)
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(here.local_rank % torch.cuda.device_count())
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=here.rank, world_size=here.size, timeout=_MEET)
    _current = RankGroup(here, base, store)
    return _current


def leave() -> None:
    """Ends the membership of this process."""
    global _current
    if _current is not None:
        _current = None
        dist.destroy_process_group()


def group_here() -> RankGroup | None:
    """The group of this process; None where it is alone."""
    return _current


@contextmanager
def apart() -> Iterator[None]:
    """While this process works by itself, and other ranks at something else: then it has no group."""
    global _current
    held, _current = _current, None
    try:
        yield
    finally:
        _current = held


def group_of(ranks: int) -> RankGroup:
    """The group that a plan for this many ranks needs."""
    group = group_here()
    if group is None or group.size != ranks:
        here = 1 if group is None else group.size
        raise RuntimeError(f"the plan is for {ranks} ranks, and there are {here}.")
    return group


def process_lives(pid: int) -> bool:
    """Whether a process of this machine is there, and not only its entry in the table."""
    if fields := process_fields(pid):
        return fields[0] not in ("Z", "X")
    if process_fields(os.getpid()):
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _packed(tensors: dict[str, Tensor]) -> Tensor:
    """Tensors as bytes."""
    on_cpu = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    return torch.frombuffer(bytearray(save(on_cpu)), dtype=torch.uint8)


def _unpacked(content: Tensor) -> dict[str, Tensor]:
    return load(content.numpy().tobytes())
