r"""Random numbers that are addressable: a pure function of a seed, a name and an index.

Two kinds are offered. :func:`generator` seeds a :class:`torch.Generator` for a named purpose
(initialisation, dropout, …). :class:`Draws` gives numbers for many *episodes* at once, each a pure
function of ``(seed, episode, name, position)``, so that episode 17 is the same alone, in a batch, on
another rank and after a resume. It hashes counters with the SplitMix64 finaliser (Steele, Lea and Flood
2014), vectorised in numpy: the generator objects that one would otherwise make per episode cost more than
a compiled meta-step.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S12 = (np.uint64(n) for n in (30, 27, 31, 12))


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for a named purpose, the same on every machine."""
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator for a named purpose, derived from one seed."""
    made = torch.Generator(device=device)
    made.manual_seed(derive_seed(seed, *names))
    return made


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


def hashed_bits(
    key: int, index: NDArray[np.int64], count: int, first: NDArray[np.int64] | None = None
) -> NDArray[np.uint64]:
    """``count`` random 64-bit words for every index: shape ``(len(index), count)``."""
    # with ``first``, (len(index), parts): pieces of that row from there on, (len(index), parts, count)
    with np.errstate(over="ignore"):
        stream = _mix(np.uint64(key) + index.astype(np.uint64) * _GOLDEN)
        position = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        if first is not None:
            stream = stream[:, None] + first.astype(np.uint64) * _GOLDEN
        return _mix(stream[..., None] + position)


def hashed_uniform(key: int, index: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Uniforms strictly inside (0, 1), 52 bits each: shape ``(len(index), count)``."""
    bits = hashed_bits(key, index, count) >> _S12  # with one bit more, the half could round up to 1
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


class Draws:
    """Random tensors for a list of episodes, with a leading episode axis.

    Task-level draws (``per="task"``) depend on which task an episode shows, sample-level draws on the
    episode itself. The two differ when the number of tasks is finite and their samples are redrawn.

    Args:
        seed: one seed for the whole source of tasks.
        task: task index per episode.
        sample: sample index per episode; the task index if omitted.
        dtype: dtype of the tensors given out (numbers are made in float64 and rounded once).

    >>> both = Draws(0, [3, 4]).uniform("phase", (), 0.0, math.pi)
    >>> bool(both[1] == Draws(0, [4]).uniform("phase", (), 0.0, math.pi)[0])
    True
    """

    def __init__(
        self,
        seed: int,
        task: list[int] | NDArray[np.int64],
        sample: list[int] | NDArray[np.int64] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.seed = seed
        self.task = np.asarray(task, dtype=np.int64)
        self.sample = self.task if sample is None else np.asarray(sample, dtype=np.int64)
        self.dtype = dtype

    @property
    def size(self) -> int:
        """How many episodes."""
        return len(self.task)

    def _standard(self, name: str, shape: tuple[int, ...], per: str) -> NDArray[np.float64]:
        index = self.task if per == "task" else self.sample
        key = derive_seed(self.seed, per, name)
        return hashed_uniform(key, index, math.prod(shape)).reshape(len(index), *shape)

    def uniform(
        self, name: str, shape: tuple[int, ...] = (), low: float = 0.0, high: float = 1.0, per: str = "task"
    ) -> Tensor:
        """Uniform on ``(low, high)``, of shape ``(episodes, *shape)``.

        Args:
            name: what is drawn; another name gives independent numbers.
            shape: shape for every episode; a scalar by default.
            low: lower end.
            high: upper end.
            per: ``task`` for what defines a task, ``sample`` for what belongs to its samples.
        """
        values = low + (high - low) * self._standard(name, shape, per)
        return torch.from_numpy(values).to(self.dtype)

    def normal(
        self, name: str, shape: tuple[int, ...] = (), mean: float = 0.0, std: float = 1.0, per: str = "task"
    ) -> Tensor:
        """Normal, through the inverse of the distribution function.

        Args:
            name: what is drawn; another name gives independent numbers.
            shape: shape for every episode; a scalar by default.
            mean: mean of the distribution.
            std: its standard deviation.
            per: ``task`` for what defines a task, ``sample`` for what belongs to its samples.
        """
        standard = torch.special.ndtri(torch.from_numpy(self._standard(name, shape, per)))
        return (mean + std * standard).to(self.dtype)

    def integers(self, name: str, shape: tuple[int, ...], high: int, per: str = "task") -> Tensor:
        """Integers from 0 to ``high − 1``, int64.

        Args:
            name: what is drawn; another name gives independent numbers.
            shape: shape for every episode.
            high: how many integers there are to draw from.
            per: ``task`` for what defines a task, ``sample`` for what belongs to its samples.
        """
        return torch.from_numpy((self._standard(name, shape, per) * high).astype(np.int64))

    def generators(self, name: str, per: str = "task") -> list[torch.Generator]:
        """One torch generator per episode, for draws that cannot be vectorised (slower)."""
        index = self.task if per == "task" else self.sample
        return [generator(self.seed, per, name, int(i)) for i in index]
