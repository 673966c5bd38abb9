"""Side by side with peers, here and now: one file per benchmark.

A benchmark is an entry of :data:`BENCHMARKS`. Its functions are loaded when they are called, so that nothing
here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.importing import Trusted, load_object

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from innerloop_studies.bench.rows import Report


class Measure(Protocol):
    """What measures, and what :func:`run` calls."""

    def __call__(self, *, quick: bool, say: Callable[[str], None]) -> Report:
        """``quick`` for few repeats, ``say`` for lines while it runs."""


class Benchmark(NamedTuple):
    """What the command knows of a benchmark."""

    what: str
    run: Measure
    figure: Callable[[Report], Figure] | None = None


def _late(name: str) -> Callable[..., Any]:
    """``module:function`` of this room, imported when it is called."""
    return lambda *args, **options: load_object(Trusted(f"innerloop_studies.bench.{name}"))(*args, **options)


BENCHMARKS: dict[str, Benchmark] = {
    "maml-sine": Benchmark(
        "MAML on sinusoids, MLP 1-40-40-1, 25 tasks, against a plain loop, higher and torchopt",
        _late("maml_sine:run"),
    ),
    "maml-conv": Benchmark(
        "MAML on pictures of 28×28 (Conv4-64) and 84×84 (Conv4-32), 4 tasks, against the same",
        _late("maml_conv:run"),
    ),
    "ranks": Benchmark(
        "a MAML step on two ranks, worker processes and threads; the all-reduce; a model of its cost",
        _late("ranks:run"),
        _late("cost_table:cost_figure"),
    ),
    "heads": Benchmark(
        "2,000 few-shot heads on 640-d features, against a loop of scikit-learn's estimators",
        _late("heads:run"),
    ),
    "qp": Benchmark(
        "8 heads of MetaOptNet and R2D2, forward and backward, against a general solver and a linear head",
        _late("qp:run"),
    ),
    "episodes": Benchmark(
        "Omniglot episodes to float tensors, one thread, against a numpy gather per episode",
        _late("episodes:run"),
    ),
    "resnet": Benchmark(
        "a training step of ResNet-12, 32×32, batch 64, against eager float32", _late("resnet:run")
    ),
    "rate": Benchmark(
        "the adaptation rate's estimator over 5,000 tasks, streamed, against sgemm and forming S",
        _late("rate:run"),
    ),
    "ntk": Benchmark(
        "the empirical tangent kernel of an MLP and a convolutional network, against vmap(grad)",
        _late("ntk:run"),
    ),
    "metakernel": Benchmark(
        "MAML's kernel of 200 tasks against a loop over pairs; growth of kernel predictions",
        _late("metakernel:run"),
        _late("metakernel_growth:growth_figure"),
    ),
    "landscape": Benchmark(
        "10,000 task environments at d = 10 in one call, against a numpy loop over environments",
        _late("landscape:run"),
    ),
    "search": Benchmark(
        "scores of architectures against per-sample gradients, a round of a search, and whole searches",
        _late("search:run"),
    ),
    "own-pictures": Benchmark(
        "features of 500 pictures by a pretrained network, 2,000 episodes, predict as a whole",
        _late("own_pictures:run"),
    ),
    "memory": Benchmark(
        "peak memory over thousands of meta-steps, of first-order and checkpointed loops, and of iMAML",
        _late("memory:run"),
    ),
}


def find(name: str) -> Benchmark:
    """The benchmark of a name."""
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise UserError(f"unknown benchmark '{name}'{did_you_mean(name, BENCHMARKS)}: there are {known}.")
    return BENCHMARKS[name]


def run(name: str, *, quick: bool = False, say: Callable[[str], None] = print) -> Report:
    """Runs a benchmark."""
    return {"name": name, **find(name).run(quick=quick, say=say)}
