"""Floating point operations of a side, counted by torch on the operations that really run."""

from __future__ import annotations

import importlib
from typing import Any


def count_flops(target: str, options: dict[str, Any]) -> float:
    """Operations of one call of a side's step (matrix products and convolutions; the rest is small)."""
    from torch.utils.flop_counter import FlopCounterMode

    module, _, function = target.partition(":")
    step = getattr(importlib.import_module(module), function)(threads=1, **options)
    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())
