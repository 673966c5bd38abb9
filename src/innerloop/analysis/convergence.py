"""``innerloop analyze convergence``: the bound on a training loss, and a wide network beside it."""

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

_ADAPTS = When("method=maml or method=anil", lambda s, _: s.method != "mtl")
_HEADS = When("method=mtl", lambda s, _: s.method == "mtl")


class Settings(FlatSettings):
    """Keys of ``analyze convergence``. Rates are of the summed loss ½‖f − y‖², NTK parametrisation."""

    NO_RECIPE: ClassVar[str] = "analyze convergence takes its own settings only: give method=maml, no recipe."
    READERS: ClassVar[Readers] = {
        "inner_time": (_ADAPTS,),
        "inner_steps": (_ADAPTS,),
        "split": (_ADAPTS,),
        "heads": (_HEADS,),
    }
    RULES: ClassVar[Rules] = (width_is_whole,)

    method: Literal["maml", "anil", "mtl"] = Field("maml", description="whose training")
    tasks: str = Field("bridge-quadratic", description="a family of regression tasks")
    dim: int | None = Field(None, ge=1, description="input dimension; none is the family's own")
    scale: Literal["none", "sphere"] = Field("sphere", description="sphere scales inputs to ‖x‖ = √d")
    label_std: float | None = Field(1.0, gt=0, description="labels are centred and scaled to it; none: raw")
    depth: int = Field(3, ge=1, description="L, layers with weights, the readout included")
    width: Annotated[float, Infinite()] = Field(
        256, gt=0, description="of hidden layers; inf: the kernel's own course, no training"
    )
    activation: Literal["relu", "erf", "linear"] = Field("relu", description="of hidden layers")
    n_tasks: int = Field(4, ge=1, description="N, training tasks")
    shots: int = Field(5, ge=1, description="support samples per task")
    queries: int = Field(5, ge=1, description="query samples per task")
    split: bool = Field(True, description="adapt to shots, judge on queries; false: both on all samples")
    heads: Literal["shared", "independent"] = Field("shared", description="whether mtl's heads are one draw")
    inner_time: float = Field(0.05, ge=0, description="λτ, rate × steps of the inner loop")
    inner_steps: int = Field(1, ge=1, description="τ, steps of the inner loop")
    eta: float = Field(0.5, gt=0, le=1, description="outer rate in units of η₀ = 2/(σ_min + σ_max)")
    steps: int = Field(100, ge=1, description="outer steps")
    seed: int = Field(0, ge=0, description="of tasks and network")


def run(settings: Settings, _recipe: Recipe | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Constants of the theorem from the analytic kernel; the course of the loss; whether the bound holds."""
    import torch

    from innerloop.theory.convergence import linear_distance, linear_loss, loss_bound, rates
    from innerloop.theory.spectra import spectrum

    s = settings
    tasks = _tasks(s)
    phi, left = _limit(s, tasks)
    constants = rates(phi)
    eta = s.eta * constants.eta0
    times = torch.arange(s.steps + 1, dtype=torch.float64)
    out: dict[str, Any] = {
        "sigma_min": constants.smallest,
        "sigma_max": constants.largest,
        "condition": constants.condition,
        "eigenvalues": spectrum(phi).tolist(),
        "eta0": constants.eta0,
        "eta": eta,
        "rate": 1 - eta * constants.smallest / 3,
        "steps": s.steps,
        "linear_distance": float(linear_distance(phi, left, eta, times[-1:])),
    }
    if math.isinf(s.width):
        course = linear_loss(phi, left, eta, times)
        extra: dict[str, Any] = {}
    else:
        say(f"training a network of width {s.width:g} for {s.steps} steps")
        course, extra = _train(s, tasks, phi, eta)
    bound = loss_bound(times, eta, constants.smallest, float(course[0]))
    holds = bool((course <= bound * (1 + 1e-9)).all())
    return {**out, "loss": course.tolist(), "bound": bound.tolist(), "holds": holds, **extra}


def _tasks(s: Settings) -> Any:
    import torch

    from innerloop.core.random import derive_seed
    from innerloop.tasks.families import get_family
    from innerloop.tasks.quadratic import on_sphere
    from innerloop.tasks.sampler import make_sampler
    from innerloop.training.wide import without_split

    batch: Any = make_sampler(
        get_family(s.tasks),
        seed=derive_seed(s.seed, "analyze-convergence"),
        shots=s.shots,
        queries=s.queries,
        dtype=torch.float64,
        settings={} if s.dim is None else {"dim": s.dim},
    ).episodes(range(s.n_tasks))
    if s.scale == "sphere":
        batch = batch._replace(x_support=on_sphere(batch.x_support), x_query=on_sphere(batch.x_query))
    if s.label_std is not None:
        labels = torch.cat([batch.y_support.flatten(), batch.y_query.flatten()])
        mean, scale = labels.mean(), s.label_std / labels.std()
        y_support, y_query = ((y - mean) * scale for y in (batch.y_support, batch.y_query))
        batch = batch._replace(y_support=y_support, y_query=y_query)
    return batch if s.split or s.method == "mtl" else without_split(batch)


def _limit(s: Settings, tasks: Any) -> tuple[Any, Any]:
    """The infinitely wide network's meta-kernel, and the residual it starts from."""
    import torch

    from innerloop.kernels.analytic.networks import mlp_kernel
    from innerloop.kernels.meta.descent import Descent
    from innerloop.kernels.meta.kernel import adaptation_of, mtl_kernel, split_kernel
    from innerloop.kernels.meta.task_blocks import stack, times_rows

    kernel = mlp_kernel(s.depth, s.activation)
    if s.method == "mtl":
        x, y = (
            stack(torch.cat(pair, 1))
            for pair in ((tasks.x_support, tasks.x_query), (tasks.y_support, tasks.y_query))
        )
        base = kernel(x, x)
        return mtl_kernel(base.ntk, base.nngp, tasks.size, s.heads), -y
    x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
    base = kernel(x, x)
    inner = base.ntk if s.method == "maml" else base.nngp
    queries = tasks.x_query.shape[1]
    blocks = adaptation_of(inner, tasks.size, queries, Descent(s.inner_time, s.inner_steps))
    left = times_rows(blocks, stack(tasks.y_support)) - stack(tasks.y_query)
    return split_kernel(base.ntk, blocks), left


def _train(s: Settings, tasks: Any, phi: Any, eta: float) -> tuple[Any, dict[str, Any]]:
    import torch

    from innerloop.core.random import derive_seed
    from innerloop.nets.mlp import mlp
    from innerloop.training.wide import watch_method

    width = int(s.width)
    inputs, outputs = tasks.x_support.shape[-1], tasks.y_support.shape[-1]
    net = mlp(inputs, [width] * (s.depth - 1), outputs, activation=s.activation, parametrisation="ntk")
    params, _ = net.init(torch.Generator().manual_seed(derive_seed(s.seed, "network") % 2**63))
    params = {name: value.double() for name, value in params.items()}
    inner = (s.inner_time / s.inner_steps, s.inner_steps)
    course = watch_method(s.method, net, params, tasks, eta, s.steps, inner=inner, heads=s.heads)
    if outputs > 1:  # the network's kernel has every output; the limit is the same for each
        phi = torch.kron(phi, torch.eye(outputs, dtype=phi.dtype))
    extra = {
        "movement": course.path / width**0.5,
        "distance": course.distance,
        "kernel_drift": course.drift,
        "kernel_drift_relative": course.drift / float(course.first.norm()),
        "kernel_error": float((course.first - phi).norm() / phi.norm()),
    }
    return torch.tensor(course.losses, dtype=torch.float64), extra


def render(result: dict[str, Any]) -> list[str]:
    """For people."""
    s, loss, bound = result["settings"], result["loss"], result["bound"]
    lines = [
        f"{s['method']} on {s['tasks']}, L = {s['depth']}, width {s['width']:g}: "
        f"σ_min {result['sigma_min']:.4g}, σ_max {result['sigma_max']:.4g}, "
        f"condition {result['condition']:.4g}",
        f"η₀ = {result['eta0']:.4g}, trained with η = {result['eta']:.4g}",
        f"loss {loss[0]:.4g} → {loss[-1]:.4g} after {result['steps']} steps; bound {bound[-1]:.4g}: "
        f"{'holds at every step' if result['holds'] else 'does NOT hold at every step'}",
    ]
    if "movement" in result:
        lines.append(
            f"parameters moved {result['movement']:.3g} (way/√width); distance {result['distance']:.3g}, "
            f"of a linear network that starts at zero {result['linear_distance']:.3g}; kernel drifted "
            f"{100 * result['kernel_drift_relative']:.2g} %; Φ̂₀ differs from Φ by "
            f"{100 * result['kernel_error']:.2g} %"
        )
    return lines


def figures(result: dict[str, Any]) -> dict[str, Any]:
    """The loss along training beside its bound."""
    from innerloop.plots.panels import line, panel, panels_figure

    steps = list(range(len(result["loss"])))
    found, bound = line("training loss", steps, result["loss"]), line("bound", steps, result["bound"])
    part = panel("outer steps", "training loss and its bound", [found, bound], log_y=True)
    return {"convergence": panels_figure([part], width=5.5)}
