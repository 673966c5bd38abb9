"""``innerloop analyze kernels``: spectra of meta-learners' kernels, and how far ANIL and MTL lie apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from innerloop.cli.analyses import Analysis, Say, draw_tasks, width_is_whole
from innerloop.experiment.recipe.flat import FlatSettings, Readers, When
from innerloop.experiment.recipe.problems import Infinite
from innerloop.experiment.recipe.rules import Rules
from innerloop.experiment.recipe.schema import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from innerloop.theory.kernels import KernelComparison, KernelRepeat


def _splits_have_queries(s: KernelSettings) -> str | None:
    return "split=true needs query samples: give queries=10" if s.split and s.queries == 0 else None


def _maml_has_a_split(s: KernelSettings) -> str | None:
    return "kernel=maml needs split=true and queries=10" if s.kernel == "maml" and not s.split else None


def _convergence_has_a_split(s: KernelSettings) -> str | None:
    if math.isfinite(s.inner_time) or (s.split and not s.inner_steps):
        return None
    return "inner_time=inf needs split=true and no inner_steps"


def _steps_take_time(s: KernelSettings) -> str | None:
    if not s.inner_steps or s.inner_time > 0:
        return None
    return "inner_steps needs an inner_time: give inner_time=0.1"


def _residual_networks_are_deep(s: KernelSettings) -> str | None:
    if s.network == "mlp" or s.depth >= 2:
        return None
    return f"network={s.network} has at least two layers with weights: give depth=2 or more"


class KernelSettings(FlatSettings):
    """Keys of ``analyze kernels``. Times are rate × steps for the summed loss ½‖f − y‖²."""

    NO_RECIPE: ClassVar[str] = (
        "analyze kernels is about a family of tasks: name one, as in `analyze kernels bridge-quadratic`."
    )
    READERS: ClassVar[Readers] = {"relative": (When("a ridge above 0", lambda s, _: s.ridge > 0),)}
    RULES: ClassVar[Rules] = (
        width_is_whole,
        _splits_have_queries,
        _maml_has_a_split,
        _convergence_has_a_split,
        _steps_take_time,
        _residual_networks_are_deep,
    )
    tasks: str = Field("bridge-quadratic", description="a family of regression tasks")
    dim: int | None = Field(None, ge=1, description="input dimension; none is the family's own")
    scale: Literal["none", "sphere"] = Field("none", description="sphere scales inputs to ‖x‖ = √d")
    network: Literal["mlp", "residual", "residual-norm", "residual-prenorm"] = Field(
        "mlp",
        description="residual: layers add to a stream; norm: LayerNorm on it; prenorm: in branches",
    )
    depth: int = Field(10, ge=1, description="L, layers with weights, the readout included")
    width: Annotated[float, Infinite()] = Field(
        math.inf, gt=0, description="of hidden layers; inf is the analytic kernel"
    )
    activation: Literal["relu", "erf", "linear"] = Field("relu", description="of hidden layers")
    n_tasks: int = Field(20, ge=1, description="N, training tasks")
    shots: int = Field(10, ge=1, description="samples per training task (its support set with a split)")
    queries: int = Field(0, ge=0, description="further samples per training task: its query set with a split")
    split: bool = Field(False, description="ANIL adapts to shots and is judged on queries; else both on all")
    test_tasks: int = Field(20, ge=1, description="test tasks per repeat")
    test_support: int = Field(5, ge=1, description="support samples of a test task")
    test_query: int = Field(10, ge=1, description="query samples of a test task")
    inner_time: Annotated[float, Infinite()] = Field(
        0.0, ge=0, description="λτ, rate × steps of the inner loop in training"
    )
    inner_steps: int | None = Field(None, ge=1, description="real steps of the inner loop; none is flow")
    test_time: Annotated[float, Infinite()] = Field(1.0, ge=0, description="the same at test time, ŝ")
    train_time: Annotated[float, Infinite()] = Field(
        math.inf, ge=0, description="ηt of the outer loop; inf is convergence"
    )
    ridge: float = Field(0.0, ge=0, description="added to the meta-kernel that is inverted")
    relative: bool = Field(False, description="ridge in units of the kernel's mean diagonal entry")
    heads: Literal["shared", "independent"] = Field("shared", description="whether heads are one draw")
    test_head: Literal["initial", "trained"] = Field("initial", description="ANIL's head at test time")
    kernel: Literal["ntk", "nngp", "mtl", "anil", "maml"] = Field(
        "mtl", description="whose eigenvalues and condition number to report (maml needs a split)"
    )
    repeats: int = Field(5, ge=1, description="independent draws of tasks (and networks)")
    seed: int = Field(0, ge=0, description="of all draws")


def run(settings: KernelSettings, _recipe: Recipe | None, say: Say) -> KernelComparison:
    """Eigenvalues of the first repeat's kernels, and the gap over all repeats."""
    from innerloop.kernels.meta.descent import Descent
    from innerloop.theory.kernels import Learning, compare_kernels

    s = settings
    split = s.split and s.kernel in ("anil", "maml")  # these are kernels over query samples alone
    say(f"kernels over {s.n_tasks * (s.queries if split else s.shots + s.queries)} samples")
    learning = Learning(
        inner=Descent(s.inner_time, s.inner_steps),
        outer=Descent(s.train_time, ridge=s.ridge, relative=s.relative),
        test=Descent(s.test_time),
        split=s.split,
        heads=s.heads,
        test_head=s.test_head,
    )
    return compare_kernels((_draw(s, repeat) for repeat in range(s.repeats)), learning, s.kernel)


def _draw(s: KernelSettings, repeat: int) -> KernelRepeat:
    """The kernel, training tasks and test tasks of one repeat."""
    import torch

    from innerloop.core.random import derive_seed
    from innerloop.kernels.analytic.networks import network_kernel
    from innerloop.kernels.empirical.kernel import empirical_kernel
    from innerloop.nets.residual import wide_network
    from innerloop.theory.kernels import KernelRepeat

    seed = derive_seed(s.seed, "analyze-kernels", repeat)
    train = draw_tasks(s, s.n_tasks, s.shots, s.queries, seed=seed)
    test = draw_tasks(s, s.test_tasks, s.test_support, s.test_query, seed=seed, split="test")
    if math.isinf(s.width):
        return KernelRepeat(network_kernel(s.network, s.depth, s.activation), train, test)
    inputs = train.x_support.shape[-1]
    net = wide_network(s.network, inputs, int(s.width), s.depth, activation=s.activation)
    params, _ = net.init(torch.Generator().manual_seed(seed % 2**63))
    return KernelRepeat(empirical_kernel(net, {n: p.double() for n, p in params.items()}), train, test)


def heading(s: KernelSettings) -> str:
    """The family and the network."""
    return (
        f"{s.tasks}, {s.network}, L = {s.depth}, width {s.width:g}, {s.heads} heads, "
        f"{s.n_tasks} tasks × {s.shots + s.queries} samples\n"
    )


def figures(result: KernelComparison) -> dict[str, Figure]:
    """The spectrum."""
    from innerloop.report.plots.panels import spectrum_figure

    return {"kernels": spectrum_figure(f"{result.kernel} kernel", result.eigenvalues)}


ANALYSIS = Analysis(KernelSettings, run, heading, figures)
