"""Trains a method on a mixture of easy and hard picture tasks and judges it on each (Landscape, §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from innerloop.core.statistics import mean_interval

if TYPE_CHECKING:
    from innerloop.core.types import Buffers, Params, Task
    from innerloop.data.source import ImageSource
    from innerloop.nets.network import Network
    from innerloop.objectives.base import Objective
    from innerloop.tasks.few_shot import Kind

AnyJob = TypeVar("AnyJob")

INNER_RATE = 0.1
NAL_RATE = 1e-6  # the paper's tuned rate: the network hardly moves
RATE = 1e-3
SUPERVISED_BATCH = 64
METHODS = ("MAML", "NAL", "MTL", "ProtoNet", "RFS")


class Budget(NamedTuple):
    """How much is trained and judged.

    Attributes:
        steps: meta-steps (and minibatches of RFS).
        tasks: per meta-step.
        filters: of the Conv4.
        pooling: ``stride`` or ``max``.
        episodes: judged per kind.
        test_steps: inner steps of NAL at test.
    """

    steps: int
    tasks: int
    filters: int
    pooling: str
    episodes: int
    test_steps: int = 1


def over_seeds(
    part: Callable[[AnyJob], dict[str, float]],
    jobs: Sequence[AnyJob],
    name: Callable[[AnyJob], str],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Carries out every training run and gathers its accuracies by name, as intervals over seeds."""
    from innerloop.reproduce.parts import two_at_a_time

    values: dict[str, list[dict[str, float]]] = {}
    for job, found in two_at_a_time(part, jobs):
        values.setdefault(name(job), []).append(found)
        shown = ", ".join(f"{kind} {value:.1f}" for kind, value in found.items())
        say(f"{name(job)}, seed {len(values[name(job)]) - 1}: {shown}")
    return {
        one: {kind: mean_interval([v[kind] for v in found])._asdict() for kind in found[0]}
        for one, found in values.items()
    }


def judge_all(
    method: str,
    train: tuple[ImageSource, Sequence[Kind]],
    judged: Mapping[str, tuple[ImageSource, Kind]],
    budget: Budget,
    seed: int,
    rate: float | None = None,
) -> dict[str, float]:
    """Accuracy in percent of one trained model on every kind of ``judged``; ``rate`` is the optimiser's."""
    import torch

    from innerloop.core.random import derive_seed
    from innerloop.nets import conv4

    torch.set_num_threads(1)
    source, kinds = train
    ways = max(kind.shape.ways for kind in kinds)
    _, height, _, channels = source.images.shape
    net = conv4(channels, height, ways, budget.filters, budget.pooling)
    params, buffers = train_one(method, net, source, kinds, budget, seed, rate)
    out = {}
    for name, (pictures, kind) in judged.items():
        out[name] = judge(
            method, net, params, buffers, pictures, kind, budget, derive_seed(seed, "judge", name)
        )
    return out


def objective_of(method: str, net: Network, classes: int, ways: int) -> Objective:
    """What each method trains on."""
    from innerloop.core.losses import get_loss
    from innerloop.learners import maml, protonet
    from innerloop.objectives import episodic, erm, multitask

    loss = get_loss("cross-entropy")
    if method == "MAML":
        return episodic(maml(net, loss, INNER_RATE, 1), loss)
    if method == "ProtoNet":
        return episodic(protonet(net, ways), loss)
    return multitask(net, loss, classes) if method == "MTL" else erm(net, loss)


def train_one(
    method: str,
    net: Network,
    source: ImageSource,
    kinds: Sequence[Kind],
    budget: Budget,
    seed: int,
    rate: float | None = None,
) -> tuple[Params, Buffers]:
    """Adam on the method's objective; if no rate is given, NAL at the paper's 1e-6."""
    import torch

    from innerloop.core.random import generator
    from innerloop.execution import Plan, meta_gradient
    from innerloop.tasks.few_shot import few_shot_sampler

    if method == "RFS":
        return train_supervised(net, source, kinds, budget, seed)
    ways = max(kind.shape.ways for kind in kinds)
    sampler = few_shot_sampler(source, "all", seed=seed, kinds=kinds)
    objective = objective_of(method, net, source.n_classes, ways)
    params, buffers = net.init(generator(seed, "init"))
    params = objective.init(params, generator(seed, "heads"))
    leaves = {name: value.detach().clone() for name, value in params.items()}
    optimiser = torch.optim.Adam(list(leaves.values()), lr=rate or (NAL_RATE if method == "NAL" else RATE))
    gradient = meta_gradient(objective.loss, Plan("loop"))
    for step in range(budget.steps):
        found = gradient(leaves, buffers, sampler.batch(step, budget.tasks))
        for name, leaf in leaves.items():
            leaf.grad = found.grads[name]
        optimiser.step()
        buffers = found.buffers
    return leaves, buffers


def train_supervised(
    net: Network, source: ImageSource, kinds: Sequence[Kind], budget: Budget, seed: int
) -> tuple[Params, Buffers]:
    """RFS (simple): one classifier of all training classes under the body, minibatches of pictures."""
    import numpy as np
    import torch
    import torch.nn.functional as F

    from innerloop.core.random import derive_seed, generator, hashed_uniform
    from innerloop.data.source import labels
    from innerloop.tasks.few_shot import image_loader

    rows = np.flatnonzero(np.isin(labels(source), training_classes(source, kinds)))
    number, load = labels(source), image_loader(source)
    params, buffers = net.init(generator(seed, "init"))
    body = {name: value.clone() for name, value in params.items() if name not in net.head_names}
    width = params[net.head_names[0]].shape[-1]
    weight = torch.randn(source.n_classes, width, generator=generator(seed, "heads")) / width**0.5
    leaves = {name: value.requires_grad_() for name, value in {**body, "classes.weight": weight}.items()}
    optimiser = torch.optim.Adam(list(leaves.values()), lr=RATE)
    keep = {name: params[name] for name in net.head_names}
    for step in range(budget.steps):
        u = hashed_uniform(derive_seed(seed, "minibatch"), np.asarray([step]), SUPERVISED_BATCH)[0]
        picked = rows[(u * len(rows)).astype(np.int64)]
        z, _ = net.features({**leaves, **keep}, buffers, load(picked[None])[0], "batch")
        loss = F.cross_entropy(z @ leaves["classes.weight"].T, torch.from_numpy(number[picked]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    trained = {name: value.detach() for name, value in leaves.items() if name != "classes.weight"}
    return {**trained, **keep}, buffers


def training_classes(source: ImageSource, kinds: Sequence[Kind]) -> Any:
    """Class numbers that any kind may draw from."""
    import numpy as np

    if source.groups is None or any(kind.groups is None for kind in kinds):
        return np.arange(source.n_classes)
    names = {name for kind in kinds for name in kind.groups or ()}
    wanted = [i for i, name in enumerate(source.group_names) if name in names]
    return np.flatnonzero(np.isin(source.groups, wanted))


def judge(
    method: str,
    net: Network,
    params: Params,
    buffers: Buffers,
    source: ImageSource,
    kind: Kind,
    budget: Budget,
    seed: int,
) -> float:
    """Mean accuracy over episodes of one kind, in percent."""
    import torch

    from innerloop.core.losses import accuracy, get_loss
    from innerloop.core.trees import split_prefix
    from innerloop.learners import maml, protonet
    from innerloop.objectives.multitask import PREFIX
    from innerloop.tasks.few_shot import few_shot_sampler

    sampler = few_shot_sampler(source, "all", seed=seed, kinds=[kind])
    params = split_prefix(params, PREFIX)[1]
    loss = get_loss("cross-entropy")
    steps = budget.test_steps if method == "NAL" else 1
    learner = protonet(net, kind.shape.ways) if method == "ProtoNet" else maml(net, loss, INNER_RATE, steps)

    def score(task: Task) -> float:
        if method in ("MTL", "RFS"):
            return _by_head(net, params, buffers, task, kind.shape.ways)
        adapted = learner.adapt(params, buffers, task.x_support, task.y_support)
        with torch.no_grad():
            outputs, _ = learner.predict(adapted, task.x_query)
        return float(accuracy(outputs[:, : kind.shape.ways], task.y_query))

    return 100 * mean_interval([score(sampler.episode(i)) for i in range(budget.episodes)]).mean


def _by_head(net: Network, params: Params, buffers: Buffers, task: Task, ways: int) -> float:
    """Logistic regression on normalised features of the frozen body (C = 3), as in Bridge."""
    import torch

    from innerloop.core.losses import accuracy
    from innerloop.evaluation.heads import fit_heads, head_scores

    with torch.no_grad():
        z, q = (
            net.features(params, buffers, x, "batch")[0].flatten(1)[None].double()
            for x in (task.x_support, task.x_query)
        )
        fitted = fit_heads(z, task.y_support[None], ways, "logistic", 3.0, True)
        return float(accuracy(head_scores(fitted, q)[0], task.y_query))
