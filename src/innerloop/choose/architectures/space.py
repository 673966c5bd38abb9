"""What is searched: numbered candidates, and how each becomes a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from innerloop.choose.architectures.size import Size, count_parameters, network_size
from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed
from innerloop.nets.cells.genotype import Choices
from innerloop.nets.network import Network

Candidate = TypeVar("Candidate")


class Space(NamedTuple, Generic[Candidate]):
    """Architectures for pictures of one shape. A new space is one function that returns this.

    Attributes:
        name: as messages call it.
        total: number of candidates.
        candidate: number from 0 to ``total`` − 1 → candidate; every candidate has one number.
        build: ``(candidate, norm, **changes) -> network``; ``norm`` is ``group`` while scoring, any policy in
            training, and ``changes`` are further arguments of the network, for this once.
        describe: a line for people.
        settings: ``(candidate, norm) ->`` the ``[model]`` table of a recipe that trains it, as plain data.
        shape: of one picture.
        thin: ``(candidate, **changes) ->`` a network of one channel for pictures of 3×3 pixels in one colour
            channel, on which linear regions are counted; without it they are counted on the whole network.
        start: the operators on every edge where a search by pruning begins; ``build`` and ``thin`` then take
            choices too. None if the space cannot be pruned.

    Functions of a module (or ``functools.partial`` of them) can be sent to other processes, so that
    candidates are scored on all cores; closures cannot where processes are not forked.
    """

    name: str
    total: int
    candidate: Callable[[int], Candidate]
    build: Callable[..., Network]
    describe: Callable[[Candidate], str]
    settings: Callable[[Candidate, str], dict[str, Any]]
    shape: tuple[int, int, int]
    thin: Callable[..., Network] | None = None
    start: Choices | None = None


def candidates(space: Space[Candidate]) -> Iterator[Candidate]:
    """All candidates in order, one at a time."""
    return map(space.candidate, range(space.total))


def size_of(space: Space[Candidate], candidate: Candidate) -> Size:
    """How large the candidate's network is, as it is trained."""
    return network_size(space.build(candidate, "transductive"), space.shape)


def random_candidate(space: Space[Candidate], seed: int, *names: str | int) -> Candidate:
    """A candidate drawn evenly, a pure function of the seed (and of names that tell purposes apart)."""
    words = [derive_seed(seed, "candidate", *names, part) for part in ("high", "low")]
    # 126 bits, so that the remainder favours no candidate noticeably
    return space.candidate(((words[0] << 63) | words[1]) % space.total)


def random_of_size(
    space: Space[Candidate],
    seed: int,
    parameters: int,
    tolerance: float = 0.05,
    tries: int = 1000,
) -> Candidate:
    """A random candidate whose network has about this many parameters, a pure function of the arguments.

    Candidates are drawn until one fits, so those that fit are equally likely.

    Args:
        space: where to draw.
        seed: of the draws.
        parameters: wanted, the last layer's included.
        tolerance: relative difference that is allowed.
        tries: draws after which to give up.

    Raises:
        UserError: none was found.
    """
    sizes = []
    for attempt in range(tries):
        candidate = random_candidate(space, seed, "of size", attempt)
        sizes.append(count_parameters(space.build(candidate, "transductive")))
        if abs(sizes[-1] - parameters) <= tolerance * parameters:
            return candidate
    raise UserError(
        f"none of {tries} random candidates of the space {space.name} has {parameters} parameters within "
        f"{tolerance:.0%}; they had {min(sizes)} to {max(sizes)}: ask for a size in between or raise "
        "tolerance."
    )
