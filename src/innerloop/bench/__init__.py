"""Side by side with peers, here and now: one file per benchmark."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from innerloop.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BENCHMARKS = {
    "maml-sine": "MAML on sinusoids, MLP 1-40-40-1, 25 tasks, against a plain loop, higher and torchopt",
    "maml-conv": "MAML on pictures of 28×28 (Conv4-64) and 84×84 (Conv4-32), 4 tasks, against the same",
    "ranks": "a MAML step on two ranks, worker processes and threads; the all-reduce; a model of its cost",
    "heads": "2,000 few-shot heads on 640-d features, against a loop of scikit-learn's estimators",
    "qp": "8 heads of MetaOptNet and R2D2, forward and backward, against a general solver and a linear head",
    "episodes": "Omniglot episodes to float tensors, one thread, against a numpy gather per episode",
    "resnet": "a training step of ResNet-12, 32×32, batch 64, against eager float32",
    "rate": "the adaptation rate's estimator over 5,000 tasks, streamed, against sgemm and forming S",
    "ntk": "the empirical tangent kernel of an MLP and a convolutional network, against vmap(grad)",
    "metakernel": "MAML's kernel of 200 tasks against a loop over pairs; growth of kernel predictions",
    "landscape": "10,000 task environments at d = 10 in one call, against a numpy loop over environments",
    "search": "scores of architectures against per-sample gradients, a round of a search, and whole searches",
    "own-pictures": "features of 500 pictures by a pretrained network, 2,000 episodes, predict as a whole",
    "memory": "peak memory over thousands of meta-steps, of first-order and checkpointed loops, and of iMAML",
}
"""Names and what they measure. Nothing here imports torch."""

DRAWN = ("metakernel", "ranks")
"""Those whose result can be drawn, by :func:`figure`."""


def run(name: str, *, quick: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs a benchmark.

    Args:
        name: one of :data:`BENCHMARKS`.
        quick: few repeats: to see that it runs, not to quote.
        say: receives lines for people while it runs.

    Returns:
        ``name``, ``machine`` and ``cases``: each with ``case``, ``peer``, ``ours_ms``, ``peer_ms``, ``ratio``
        (peer's time over ours), ``ours_mb``, ``peer_mb`` (peak resident memory of the process), ``threads``,
        ``repeats``, ``gflops``, ``sgemm_share``, ``at_least`` (the ratio we promise) and ``notes``.
    """
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise UserError(f"unknown benchmark '{name}'{did_you_mean(name, BENCHMARKS)}: there are {known}.")
    module = import_module(f"innerloop.bench.{name.replace('-', '_')}")
    result: dict[str, Any] = module.run(quick=quick, say=say)
    return {"name": name, **result}


def figure(result: dict[str, Any]) -> Figure:
    """The picture of a result of :func:`run`, for the benchmarks of :data:`DRAWN`."""
    if result["name"] == "ranks":
        from innerloop.bench.cost_table import cost_figure

        return cost_figure(result["models"])
    from innerloop.bench.metakernel_growth import growth_figure

    return growth_figure(result["growth"])
