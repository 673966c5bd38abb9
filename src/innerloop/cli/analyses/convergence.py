"""``innerloop analyze convergence``: the bound on a training loss, and a wide network beside it."""

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

    from innerloop.core.types import TaskBatch
    from innerloop.training.convergence import Convergence

_ADAPTS = When("method=maml or method=anil", lambda s, _: s.method != "mtl")
_HEADS = When("method=mtl", lambda s, _: s.method == "mtl")


class ConvergenceSettings(FlatSettings):
    """Keys of ``analyze convergence``. Rates are of the summed loss ½‖f − y‖², NTK parametrisation."""

    NO_RECIPE: ClassVar[str] = (
        "analyze convergence is about a family of tasks: name one, as in `analyze convergence sine`."
    )
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


def run(settings: ConvergenceSettings, _recipe: Recipe | None, say: Say) -> Convergence:
    """Constants of the theorem from the analytic kernel; the course of the loss; whether the bound holds."""
    from innerloop.training.convergence import MetaMethod, WideNetwork, follow_bound

    s = settings
    tasks = _tasks(s)
    if math.isfinite(s.width):
        say(f"training a network of width {s.width:g} for {s.steps} steps")
    method = MetaMethod(s.method, s.inner_time, s.inner_steps, s.heads)
    network = WideNetwork(s.depth, s.width, s.activation)
    return follow_bound(tasks, method, network, eta=s.eta, steps=s.steps, seed=s.seed)


def _tasks(s: ConvergenceSettings) -> TaskBatch:
    from innerloop.core.random import derive_seed
    from innerloop.training.wide import without_split

    seed = derive_seed(s.seed, "analyze-convergence")
    tasks = draw_tasks(s, s.n_tasks, s.shots, s.queries, seed=seed)
    if s.label_std is not None:
        tasks = _scale_labels(tasks, s.label_std)
    return tasks if s.split or s.method == "mtl" else without_split(tasks)


def _scale_labels(batch: TaskBatch, std: float) -> TaskBatch:
    """Labels centred over all tasks together, and scaled to a standard deviation."""
    import torch

    labels = torch.cat([batch.y_support.flatten(), batch.y_query.flatten()])
    mean, scale = labels.mean(), std / labels.std()
    y_support, y_query = ((y - mean) * scale for y in (batch.y_support, batch.y_query))
    return batch._replace(y_support=y_support, y_query=y_query)


def heading(s: ConvergenceSettings) -> str:
    """The learner, the family and the network."""
    return f"{s.method} on {s.tasks}, L = {s.depth}, width {s.width:g}: "


def figures(result: Convergence) -> dict[str, Figure]:
    """The loss along training beside its bound."""
    from innerloop.report.plots.panels import bound_figure

    return {"convergence": bound_figure(result.loss, result.bound)}


ANALYSIS = Analysis(ConvergenceSettings, run, heading, figures)
