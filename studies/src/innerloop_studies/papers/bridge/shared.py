"""What the studies of Bridge's and MetaNTK's theory share: tasks, networks, means over draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from innerloop.core import Params, TaskBatch, get_loss
from innerloop.core.random import derive_seed
from innerloop.kernels.meta.descent import Descent
from innerloop.learners import Learner, anil, maml, multitask
from innerloop.nets import Network, mlp
from innerloop.report.plots.panels import Panel, line, panel
from innerloop.tasks.families import bridge_quadratic
from innerloop.tasks.sampler import make_sampler
from innerloop.theory.convergence import Rates, loss_bound
from innerloop.training.wide import Watch, descend, episodic_loss, objective_loss

DIM, TASKS, SHOTS, TEST_TASKS, TEST_SUPPORT, TEST_QUERY = 10, 20, 10, 20, 5, 10  # Bridge §5.1


def bridge_tasks(
    seed: int, split: str, n: int, shots: int, queries: int, *, standard: bool = False, sphere: bool = True
) -> TaskBatch:
    """Quadratic tasks in float64; ``standard`` centres labels and gives them variance 1."""
    settings = {"dim": DIM, "scale": "sphere" if sphere else "none"}
    given: dict[str, Any] = {"shots": shots, "queries": queries, "dtype": torch.float64, "settings": settings}
    stream = make_sampler(bridge_quadratic, seed=derive_seed(seed, "bridge"), split=split, **given)
    batch = stream.episodes(range(n))
    assert isinstance(batch, TaskBatch)
    if not standard:
        return batch
    # constants of the family, not of the draw: E y = ν³d and its spread at ν = 1.45
    mean, scale = 1.45**3 * DIM, 1.45**3 * (2 * DIM) ** 0.5
    return batch._replace(y_support=(batch.y_support - mean) / scale, y_query=(batch.y_query - mean) / scale)


def figure_1_tasks(seed: int, **options: bool) -> tuple[TaskBatch, TaskBatch]:
    """One draw of Bridge's synthetic experiment: 20 training and 20 test tasks."""
    train = bridge_tasks(seed, "train", TASKS, SHOTS, 0, **options)
    return train, bridge_tasks(seed, "test", TEST_TASKS, TEST_SUPPORT, TEST_QUERY, **options)


def wide_net(width: int, depth: int, seed: int) -> tuple[Network, Params]:
    """A multilayer perceptron in NTK parametrisation, and a draw of its weights in float64."""
    net = mlp(DIM, [width] * (depth - 1), 1, parametrisation="ntk")
    params, _ = net.init(torch.Generator().manual_seed(1000 * width + seed))
    return net, {name: value.double() for name, value in params.items()}


def wide_learner(method: str, net: Network, inner: Descent) -> Learner:
    """MAML or ANIL with the inner loop of a theorem, summed loss."""
    assert inner.steps is not None
    make = maml if method == "maml" else anil
    return make(net, get_loss("half-sse"), inner.time / inner.steps, inner.steps)


def train_wide(
    method: str, net: Network, params: Params, tasks: TaskBatch, rate: float, steps: int, inner: Descent
) -> tuple[Params, list[float]]:
    """Full-batch descent of MAML, ANIL, or MTL with one shared head; and the losses along it."""
    losses: list[float] = []
    watch: Watch = lambda _step, _params, value: losses.append(value)  # noqa: E731
    if method != "mtl":
        loss = episodic_loss(wide_learner(method, net, inner), tasks)
        return descend(loss, params, rate, steps, watch), losses
    objective = multitask(net, get_loss("half-sse"), tasks.size, heads="shared")
    started = objective.init(params, torch.Generator().manual_seed(0))
    trained = descend(objective_loss(objective, tasks), started, rate, steps, watch)
    return {name: trained[name] for name in params}, losses


def is_under_bound(losses: Sequence[float], eta: float, constants: Rates) -> bool:
    """Whether the loss is below (1 − ησ_min/3)^{2t} of its first value at every step."""
    times = torch.arange(len(losses), dtype=torch.float64)
    bound = loss_bound(times, eta, constants.smallest, losses[0])
    return bool((torch.tensor(losses, dtype=torch.float64) <= bound * (1 + 1e-9)).all())


def losses_panel(title: str, by_width: Sequence[Mapping[str, Any]], eta: float, constants: Rates) -> Panel:
    """Losses over their first along training, by width, and their bound."""
    steps = list(range(len(by_width[0]["loss"])))
    bound = loss_bound(torch.tensor(steps).double(), eta, constants.smallest, 1.0).tolist()
    lines = [line(f"width {one['width']}", steps, one["loss"]) for one in by_width]
    return panel("outer step t", title, [*lines, line("bound", steps, bound)], log_y=True)


def listed_by_width(by_width: Sequence[Mapping[str, Any]], key: str, spec: str) -> str:
    """A number of every width for people."""
    return ", ".join(f"{one['width']}: {one[key]:{spec}}" for one in by_width)


def mean_losses(courses: Sequence[Sequence[float]]) -> list[float]:
    """Geometric means over draws of losses over their first."""
    logs = torch.tensor([[loss / losses[0] for loss in losses] for losses in courses]).double().log()
    means: list[float] = logs.mean(0).exp().tolist()
    return means
