"""Stand-ins for functions without parameters: the same values and derivatives, in less time.

What several edges of a supernet compute of one tensor is computed once; pooling uses slices.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import innerloop.kernels.empirical.fast_layers as pooling
from innerloop.kernels.empirical.fast_layers import is_two_by_two
from innerloop.kernels.empirical.handlers import Args, Kwargs, bound
from innerloop.kernels.empirical.recorder import Handler, LayerRecorder


def _relu(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """Rectifies a tensor once, and notes what was rectified, for a pooling that follows."""
    given = bound(("input", "inplace"), args, kwargs)
    if given.get("inplace", False):
        return func(*args, **kwargs)
    x = given["input"]
    # it is shared while a layer holds it; who pools it next may let it go
    out = r.shared_results.once(func, x, (), lambda: func(*args, **kwargs), keep=False)
    r.rectified = (out, x, _versions(out, x))
    return out


def _max_pool2d(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """2×2 windows by slices. The largest of rectified values is the largest, rectified: fewer of them."""
    given = bound(pooling.NAMES, args, kwargs)
    x = given.pop("input")
    if not is_two_by_two(args, kwargs):
        windows = pooling.windows_of(x, given)
        if windows is None:
            return func(*args, **kwargs)
        return _pooled(r, func, x, windows, lambda: pooling.max_windows(x, windows))
    rectified, r.rectified = r.rectified, None
    if rectified is None or rectified[0] is not x or _versions(*rectified[:2]) != rectified[2]:
        return pooling.max_pool2d(x)
    return F.relu(pooling.max_pool2d(rectified[1]))


def _avg_pool2d(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """Averages over windows that leave the padding out."""
    given = bound(pooling.AVERAGE_NAMES, args, kwargs)
    x = given.pop("input")
    windows = pooling.averaged_windows(x, given)
    if windows is None:
        return func(*args, **kwargs)
    return _pooled(r, func, x, windows, lambda: pooling.mean_windows(x, windows))


def _pooled(r: LayerRecorder, func: Any, x: Tensor, windows: pooling.Windows, make: Any) -> Tensor:
    out = r.shared_results.once(func, x, tuple(windows), make)
    r.shared_results.pooled[id(out)] = out
    return out


def _shared_norm(r: LayerRecorder, func: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """``F.group_norm`` without parameters that count: of pooled maps, which several edges have, once."""
    given = bound(("input", "num_groups", "weight", "bias", "eps"), args, kwargs)
    x = given.pop("input")
    if id(x) not in r.shared_results.pooled or any(r.tag(value) is not None for value in given.values()):
        return func(*args, **kwargs)
    rest = tuple(given.get(name) for name in ("num_groups", "weight", "bias", "eps"))
    return r.shared_results.once(func, x, rest, lambda: func(*args, **kwargs))


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    """They count what was written into a tensor in place."""
    return tuple(tensor._version for tensor in tensors)


FASTER: dict[Any, Handler] = {
    F.max_pool2d: _max_pool2d,
    F.avg_pool2d: _avg_pool2d,
    F.group_norm: _shared_norm,
    **dict.fromkeys((F.relu, torch.relu, torch.Tensor.relu), _relu),
}
"""Functions without parameters for which there is a faster equal."""
