"""Side by side with peers: every speed we state comes from ``innerloop bench NAME``.

Importing this room imports nothing heavy; the measuring happens in child processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from innerloop.core.errors import UserError, did_you_mean

NAMES: dict[str, str] = {
    "maml-sine": "MAML on sinusoids (MLP 1-40-40-1, 25 tasks): compiled, captured and eager against peers",
    "maml-conv": "MAML on Conv4-64 at 28×28 (4 tasks): task threads against peers",
    "memory": "peak memory over thousands of meta-steps; first-order and recomputed inner loops",
}


def run(name: str, *, quick: bool = False, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Runs a benchmark.

    Args:
        name: one of :data:`NAMES`.
        quick: a few repeats only: shows that it works, not how fast.
        say: receives progress as lines of text.

    Returns:
        ``name``, ``machine`` and ``cases``, each case with ``case``, ``peer``, ``ours_ms``, ``peer_ms``,
        ``ratio``, ``ours_mb``, ``peer_mb``, ``threads``, ``repeats``.
    """
    if name not in NAMES:
        raise UserError(
            f"unknown benchmark '{name}'{did_you_mean(name, NAMES)}; there are {', '.join(NAMES)}."
        )
    module = importlib.import_module(f"innerloop.bench.{name.replace('-', '_')}")
    return {"name": name, **module.run(quick=quick, say=say)}
