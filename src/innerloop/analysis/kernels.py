"""``innerloop analyze kernels``: spectra of meta-learners' kernels, and how far ANIL and MTL lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from innerloop.analysis.widths import width_is_whole
from innerloop.recipes.flat import FlatSettings
from innerloop.recipes.problems import Infinite
from innerloop.recipes.reading import Readers, When
from innerloop.recipes.rules import Rules
from innerloop.recipes.schema import Recipe


def _splits_have_queries(s: Settings) -> str | None:
    return "split=true needs query samples: give queries=10" if s.split and s.queries == 0 else None


def _maml_has_a_split(s: Settings) -> str | None:
    return "kernel=maml needs split=true and queries=10" if s.kernel == "maml" and not s.split else None


def _convergence_has_a_split(s: Settings) -> str | None:
    if math.isfinite(s.inner_time) or (s.split and not s.inner_steps):
        return None
    return "inner_time=inf needs split=true and no inner_steps"


def _steps_take_time(s: Settings) -> str | None:
    if not s.inner_steps or s.inner_time > 0:
        return None
    return "inner_steps needs an inner_time: give inner_time=0.1"


def _residual_networks_are_deep(s: Settings) -> str | None:
    if s.network == "mlp" or s.depth >= 2:
        return None
    return f"network={s.network} has at least two layers with weights: give depth=2 or more"


class Settings(FlatSettings):
    """Keys of ``analyze kernels``. Times are rate × steps for the summed loss ½‖f − y‖²."""

    NO_RECIPE: ClassVar[str] = (
        "analyze kernels takes its own settings only: give tasks=bridge-quadratic, no recipe."
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


def run(settings: Settings, _recipe: Recipe | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Eigenvalues of the first repeat's kernels, and the gap over all repeats."""
    from innerloop.kernels.meta.compare import mean_error, mtl_anil_gap
    from innerloop.kernels.meta.descent import Descent
    from innerloop.theory.spectra import condition, spectrum

    s = settings
    inner = Descent(s.inner_time, s.inner_steps)
    outer = Descent(s.train_time, ridge=s.ridge, relative=s.relative)
    gaps, first = [], {}
    for repeat in range(s.repeats):
        kernel, train, test = _draw(s, repeat)
        gaps.append(
            mtl_anil_gap(
                kernel,
                train,
                test,
                inner=inner,
                outer=outer,
                test_descent=Descent(s.test_time),
                split=s.split,
                heads=s.heads,
                test_head=s.test_head,
            )
        )
        if repeat == 0:
            first = _meta_kernels(s, kernel, train, inner)
            say(f"kernels over {len(first[s.kernel])} samples")
    spectra = {name: spectrum(matrix) for name, matrix in first.items()}
    gap = mean_error(gaps)
    return {
        "mtl_anil_gap": gap.mean,
        "mtl_anil_gap_se": gap.error,
        "gap_by_repeat": [float(values.mean()) for values in gaps],
        "kernel": s.kernel,
        "condition": condition(spectra[s.kernel]),
        "eigenvalues": spectra[s.kernel].tolist(),
        "conditions": {name: condition(values) for name, values in spectra.items()},
        "protocol": "mean over test tasks and repeats of ‖F_ANIL − F_MTL‖₂ over the query vector; standard "
        "error from the scatter of the repeats' means; eigenvalues of the first repeat",
    }


def _draw(s: Settings, repeat: int) -> tuple[Any, Any, Any]:
    """The kernel, training tasks and test tasks of one repeat."""
    import torch

    from innerloop.core.random import derive_seed
    from innerloop.kernels.analytic.named import network_kernel
    from innerloop.kernels.empirical.kernel import empirical_kernel
    from innerloop.nets.residual import wide_network
    from innerloop.tasks.families import get_family
    from innerloop.tasks.quadratic import on_sphere
    from innerloop.tasks.sampler import make_sampler

    family, seed = get_family(s.tasks), derive_seed(s.seed, "analyze-kernels", repeat)
    options: dict[str, Any] = {} if s.dim is None else {"dim": s.dim}

    def tasks(split: str, n: int, shots: int, queries: int) -> Any:
        sampler = make_sampler(
            family,
            seed=seed,
            split=split,
            shots=shots,
            queries=queries,
            dtype=torch.float64,
            settings=options,
        )
        batch: Any = sampler.episodes(range(n))
        if s.scale == "sphere":
            batch = batch._replace(x_support=on_sphere(batch.x_support), x_query=on_sphere(batch.x_query))
        return batch

    train = tasks("train", s.n_tasks, s.shots, s.queries)
    test = tasks("test", s.test_tasks, s.test_support, s.test_query)
    if math.isinf(s.width):
        return network_kernel(s.network, s.depth, s.activation), train, test
    inputs = train.x_support.shape[-1]
    net = wide_network(s.network, inputs, int(s.width), s.depth, activation=s.activation)
    params, _ = net.init(torch.Generator().manual_seed(seed % 2**63))
    return empirical_kernel(net, {n: p.double() for n, p in params.items()}), train, test


def _meta_kernels(s: Settings, kernel: Any, train: Any, inner: Any) -> dict[str, Any]:
    """All kernels that these settings have, by name."""
    import torch

    from innerloop.kernels.meta.kernel import anil_kernel, anil_kernel_without_split, maml_kernel, mtl_kernel
    from innerloop.kernels.meta.task_blocks import stack

    n = train.size
    whole = stack(torch.cat([train.x_support, train.x_query], 1))
    base = kernel(whole, whole)
    found = {"ntk": base.ntk, "nngp": base.nngp, "mtl": mtl_kernel(base.ntk, base.nngp, n, s.heads)}
    if not s.split:
        return {**found, "anil": anil_kernel_without_split(base.ntk, base.nngp, n, inner)}
    x = torch.cat([stack(train.x_query), stack(train.x_support)])
    base = kernel(x, x)
    return {
        **found,
        "anil": anil_kernel(base.ntk, base.nngp, n, s.queries, inner),
        "maml": maml_kernel(base.ntk, n, s.queries, inner),
    }


def render(result: dict[str, Any]) -> list[str]:
    """For people."""
    s, values = result["settings"], result["eigenvalues"]
    error = result["mtl_anil_gap_se"]
    lines = [
        f"{s['tasks']}, {s['network']}, L = {s['depth']}, width {s['width']:g}, {s['heads']} heads, "
        f"{s['n_tasks']} tasks × {s['shots'] + s['queries']} samples",
        f"‖F_ANIL − F_MTL‖ = {result['mtl_anil_gap']:.4g} ± {error:.2g} (standard error, "
        f"{s['repeats']} repeats × {s['test_tasks']} test tasks)",
        f"{result['kernel']} kernel: eigenvalues {values[0]:.4g}, {values[min(1, len(values) - 1)]:.4g} … "
        f"{values[-1]:.4g}",
    ]
    return lines + [
        f"condition number of {name}: {value:.4g}" for name, value in result["conditions"].items()
    ]


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """The spectrum; eigenvalues that rounding made negative or zero are left out."""
    from innerloop.plots.panels import line, panel, panels_figure

    values = [value for value in result["eigenvalues"] if value > 0]
    series = line(f"{result['kernel']} kernel", range(1, len(values) + 1), values, dots=True)
    return {"kernels": panels_figure([panel("rank", "eigenvalue", [series], log_y=True)], width=5.5)}
