r"""Dropout, DropBlock and drop-path as pure functions of a counter that travels in the buffers.

A network has no random number argument. Noise is **on exactly if the buffers hold** :data:`STEP`, a counter
of noisy passes that every pass hands back one higher. Masks are a hash of (seed, layer, counter, place), so
a run that is continued from its buffers goes on bit by bit as if it had not stopped, and all execution modes
draw the same masks (tasks of one meta-batch share them). Evaluation strips the counter and has no noise.

>>> buffers = with_noise({})
>>> x = torch.ones(1, 2, 2, 2)
>>> dropout(x, buffers, 0.5, key("layer")).flatten().tolist()
[2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, 0.0]
>>> advance(buffers)
{'noise.step': tensor(1.)}
>>> torch.equal(dropout(x, without_noise(buffers), 0.5, key("layer")), x)
True
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.random import derive_seed
from innerloop.core.types import Buffers

STEP = "noise.step"
RAMP = 20 * 2000
"""Passes over which DropBlock's rate rises from zero (the released code of RFS and MetaOptNet)."""


def with_noise(buffers: Buffers, step: int = 0) -> Buffers:
    """The buffers with noise switched on, for training; ``step`` counts the noisy passes so far."""
    device = next((b.device for b in buffers.values()), torch.device("cpu"))
    return {**buffers, STEP: torch.tensor(float(step), device=device)}


def without_noise(buffers: Buffers) -> Buffers:
    """The buffers with noise switched off, for evaluation."""
    return {name: value for name, value in buffers.items() if name != STEP}


def advance(buffers: Buffers) -> Buffers:
    """The counter after one more pass, or nothing if noise is off."""
    # executors average buffers over tasks, which may leave it a rounding error off
    return {STEP: buffers[STEP].round() + 1} if STEP in buffers else {}


def check_rate(rate: float) -> float:
    """The rate itself, or an error."""
    if not 0 <= rate < 1:
        raise UserError(f"a drop rate of {rate} is not possible: give one from 0 up to (not including) 1.")
    return rate


def check_ramp(ramp: int) -> int:
    """The number of passes itself, or an error."""
    if not isinstance(ramp, int) or isinstance(ramp, bool) or ramp < 1:
        raise UserError(f"a rate cannot rise over ramp={ramp} passes: give a whole number from 1 up.")
    return ramp


def key(layer: str, seed: int = 0) -> int:
    """The key of a layer's masks."""
    return derive_seed(seed, "noise", layer)


def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_MIX_1, _MIX_2 = _int32(0x7FEB352D), _int32(0x846CA68B)


def _mix(z: Tensor, salt: Tensor | int) -> Tensor:
    """A bijection of 32-bit words with little bias (C. Wellons' lowbias32), salted half-way; wraps around."""
    z = (z ^ ((z >> 16) & 0xFFFF)) * _MIX_1  # torch shifts signed words: the mask makes it a logical shift
    z = z ^ salt
    z = (z ^ ((z >> 15) & 0x1FFFF)) * _MIX_2
    return z ^ ((z >> 16) & 0xFFFF)


def words(step: Tensor, key: int, count: int) -> Tensor:
    """``count`` uniform 32-bit words (as int32), a pure function of the counter and the key."""
    low, high = _int32(key), _int32(key >> 32)
    first = _mix(step.round().to(torch.int32) + low, high)
    second = _mix(first, low)
    return _mix(torch.arange(count, dtype=torch.int32, device=step.device) + first, second)


def hits(step: Tensor, key: int, shape: tuple[int, ...], rate: float | Tensor) -> Tensor:
    """Booleans that are true with probability ``rate``, each for itself."""
    drawn = words(step, key, math.prod(shape)).view(shape)
    if isinstance(rate, Tensor):
        return drawn < (rate.double() * 2.0**32 - 2.0**31).round().to(torch.int64)
    return drawn < round(rate * 2**32) - 2**31


def dropout(x: Tensor, buffers: Buffers, rate: float, key: int, channels: bool = False) -> Tensor:
    """Zero with probability ``rate``, divided by ``1 − rate`` otherwise; ``x`` itself if noise is off."""
    if STEP not in buffers or rate == 0:
        return x
    n, *rest = x.shape
    places = [1] * len(rest[1:]) if channels else rest[1:]
    # drawn channels-last, the layout of images in training
    dropped = hits(buffers[STEP], key, (n, *places, *rest[:1]), rate).movedim(-1, min(1, len(rest)))
    return x * ((~dropped).to(x.dtype) / (1 - rate))


def dropblock(x: Tensor, buffers: Buffers, rate: float, block: int, key: int, ramp: int = RAMP) -> Tensor:
    """Sets whole blocks to zero (Ghiasi et al. 2018) and rescales to the same mean, if noise is on."""
    # on pass t a corner is drawn with probability r_t/b² · hw/((h−b+1)(w−b+1)), r_t = r·min(1, (t+1)/ramp),
    # so that about a share r_t of values is dropped
    if STEP not in buffers or rate == 0:
        return x
    n, c, height, width = x.shape
    b = min(block, height, width)
    corners = (height - b + 1) * (width - b + 1)
    now = rate * ((buffers[STEP].double() + 1) / ramp).clamp(max=1.0)
    gamma = (now * (height * width / (b * b * corners))).clamp(max=1 - 2.0**-32)
    hit = hits(buffers[STEP], key, (n, height - b + 1, width - b + 1, c), gamma)
    spread = F.pad(hit.permute(0, 3, 1, 2).to(x.dtype), (b - 1,) * 4)
    kept = 1 - F.max_pool2d(spread, b, stride=1)
    return x * (kept * (kept.numel() / kept.sum().clamp(min=1)))


def drop_path(x: Tensor, buffers: Buffers, rate: float, key: int, ramp: int, epoch: int = 1) -> Tensor:
    """Zero for a sample with probability r_t, divided by 1 − r_t otherwise, if noise is on."""
    # on pass t, rounded down to whole epochs, r_t = r·min(1, t/ramp): the first pass leaves nothing out
    # (Larsson et al. 2017; Zoph et al. 2018 and DARTS raise the rate in training)
    if STEP not in buffers or rate == 0:
        return x
    reached = (buffers[STEP].double() / epoch).floor() * epoch
    now = rate * (reached / ramp).clamp(max=1.0)
    dropped = hits(buffers[STEP], key, (x.shape[0], 1, 1, 1), now)
    return x * ((~dropped).to(x.dtype) / (1 - now).to(x.dtype))
