"""One run on many ranks. Rank 0 leads: it alone reads the command, decides, writes and talks.

The others follow. What all do together is a call: train these parts from this state, or judge these weights.
Rank 0 announces it with the recipe, its sizes and the tensors; then every rank does it, each with its share
of the tasks (``Plan.ranks``). So followers need the data of the recipe, and no run directory.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from innerloop.core.errors import NonFiniteError, UserError
from innerloop.core.ranks import LOST, LostRankError, Rank
from innerloop.core.resources import available_cores, divide_cores
from innerloop.experiment.parts import Parts
from innerloop.experiment.recipe.schema import Recipe
from innerloop.training.execution.plan import Plan
from innerloop.training.execution.rank_group import RankGroup, group_here, join, leave
from innerloop.training.execution.ranks import AllRanksError

Carry = Callable[[RankGroup, dict[str, Any], dict[str, Tensor]], None]
"""Carries out a call: what :func:`announce` was given."""

_CALL = "call"
END = "end"
IN_STEP = (NonFiniteError, AllRanksError)
"""Errors that all ranks find in numbers that all of them have: they end a call, and no more."""


@contextmanager
def all_ranks(
    kind: str, parts: Parts, plan: Plan, tensors: Mapping[str, Tensor], **arguments: Any
) -> Iterator[Plan]:
    """Has all ranks do what the block does, and yields the plan by which each does its share."""
    # the plan itself where this process is alone, or others could not build the parts (pictures in memory)
    group = group_here()
    if group is None or not parts.by_recipe:
        yield plan
        return
    if group.busy:  # part of a call already: all ranks come here by themselves
        yield plan._replace(ranks=group.size)
        return
    told = {
        "recipe": parts.recipe.model_dump(),
        "sizes": parts.sizes.as_dict(),
        "plan": plan.as_dict(),
        "arguments": arguments,
    }
    with called(kind, parts.recipe.run.rank_timeout, told, tensors) as ranks:
        yield plan._replace(ranks=ranks)


@contextmanager
def called(
    kind: str, timeout: float, told: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
) -> Iterator[int]:
    """Has all ranks carry out a call while the block does, and yields how many they are; 1 if it is alone."""
    group = group_here()
    if group is None:
        yield 1
        return
    group.timeout = timeout
    announce(group, {"kind": kind, "timeout": timeout, **told}, tensors or {})
    with at_work(group):
        yield group.size


@contextmanager
def at_work(group: RankGroup) -> Iterator[None]:
    """While a call is carried out; one that ends out of step with the others is the last."""
    group.busy = True
    try:
        yield
    except IN_STEP:
        raise
    except BaseException:
        group.whole = False
        raise
    finally:
        group.busy = False


def announce(group: RankGroup, told: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Sends a call to all other ranks."""
    if not group.whole:
        raise LostRankError("the ranks are out of step after an earlier failure: start them again.")
    text = torch.tensor(list(json.dumps(told).encode()), dtype=torch.uint8)
    group.announce({_CALL: text, **{f"/{name}": value for name, value in tensors.items()}})


def listen(group: RankGroup) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The next call: what :func:`announce` was given."""
    heard = group.listen()
    told: dict[str, Any] = json.loads(bytes(heard.pop(_CALL).tolist()))
    return told, {name[1:]: value for name, value in heard.items()}


def enter(here: Rank) -> RankGroup:
    """Joins the other ranks, with this rank's share of the machine's cores: they are divided, not shared."""
    divide_cores(here.local_size)
    torch.set_num_threads(available_cores())
    try:
        return join(here)
    except RuntimeError as error:
        line = (str(error).splitlines() or ["unknown"])[0]
        raise LostRankError(f"rank {here.rank} could not meet the other ranks ({line}).") from error


@contextmanager
def leading(here: Rank) -> Iterator[RankGroup]:
    """Rank 0, while it leads; at the end the others are told, unless they have stopped already."""
    group = enter(here)
    try:
        yield group
    finally:
        try:
            if group.whole:
                announce(group, {"kind": END}, {})
                leave()
        except (LostRankError, RuntimeError):
            pass  # they end by themselves once they hear nothing


def ranks_here() -> int:
    """How many ranks share the work of this process; 1 if it is alone."""
    group = group_here()
    return 1 if group is None else group.size


def own_tasks(tasks: int) -> int:
    """The most tasks of a batch that one rank gets."""
    return -(-tasks // ranks_here())


def ranks_notes(recipe: Recipe, before: int | None) -> list[str]:
    """What to say of a number of ranks that is not the one asked for, or has changed."""
    here, notes = ranks_here(), []
    if recipe.run.ranks not in (1, here):
        notes.append(
            f"run.ranks={recipe.run.ranks} is read by the command innerloop only: one process trains."
        )
    if before not in (None, here):
        notes.append(
            f"this run was trained on {before} rank(s) and goes on with {here}: last digits may differ."
        )
    if here > recipe.outer.batch:
        notes.append(f"{here} ranks share {recipe.outer.batch} task(s) of a step: some have none.")
    return notes


def remember_run(run: Path) -> None:
    """If ranks are lost and all are started again, they go on with this run."""
    group = group_here()
    if group is not None:
        group.remember(str(run.resolve()))


def follow(here: Rank, carry_out: Carry) -> tuple[int, bool]:
    """Any rank but 0: does what it is told until rank 0 ends."""
    if hasattr(signal, "pthread_sigmask"):  # rank 0 decides when to stop, and ends the others
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    group = enter(here)
    while True:
        try:
            told, tensors = listen(group)
        except LostRankError:
            return 0, False  # rank 0 has ended, and its own exit code says how
        if told["kind"] == END:
            leave()
            return 0, True
        try:
            carry_out(group, told, tensors)
        except LostRankError as error:
            if error.hung:  # perhaps rank 0 itself: who else would tell?
                sys.stderr.write(f"rank {group.rank}: {error}\n")
            return LOST, False
        except UserError as error:
            group.report(error)  # rank 0 tells it, with the name of this rank
            return LOST, False
        except BaseException as error:
            group.report(error)
            raise
