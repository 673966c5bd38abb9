"""Where the last layer starts, and whether the order of the labels matters."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Task, TaskBatch
from innerloop.learners import Learner, anil, boil, episodic, maml, maml_lslr, meta_sgd
from innerloop.nets import Network, from_module, mlp
from innerloop.testing.closeness import LAST_BITS, assert_close, assert_trees_close
from innerloop.testing.suites import check_method
from innerloop.training import Plan, fit, initial_state, make_optimiser, meta_gradient
from oracles import maml_loop, one_vector, problems
from oracles.forward import mlp_forward

WAYS = 4
MOVING_HEADS = {
    "maml": maml,
    "fomaml": partial(maml, first_order=True),
    "anil": anil,
    "meta-sgd": meta_sgd,
    "maml-lslr": maml_lslr,
}


def net(outputs: int = WAYS) -> Network:
    return mlp(4, [8, 6], outputs, activation="tanh")


def trained(learner: Learner, network: Network) -> dict[str, Tensor]:
    """Meta-parameters away from where they start; learned rates differ from weight to weight."""
    params = learner.init(problems.drawn(network)[0])
    draw = torch.Generator().manual_seed(1)
    return {
        n: v + 0.02 * torch.randn(v.shape, generator=draw, dtype=v.dtype) * (n not in learner.untrained)
        for n, v in params.items()
    }


def outputs_of(learner: Learner, params: dict[str, Tensor], task: Task) -> Tensor:
    adapted = learner.adapt(params, {}, task.x_support, task.y_support)
    return learner.predict(adapted, task.x_query)[0]


def renumbered(task: Task, order: Tensor) -> Task:
    if task.y_support.is_floating_point():  # one column per class: class c goes to column order[c]
        back = torch.argsort(order)
        return task._replace(y_support=task.y_support[:, back], y_query=task.y_query[:, back])
    return task._replace(y_support=order[task.y_support], y_query=order[task.y_query])


ORDER = torch.tensor([2, 0, 3, 1])


# ---- does the order of the labels matter? ----


@pytest.mark.parametrize("start", ["one-vector", "zero"])
@pytest.mark.parametrize("name", MOVING_HEADS)
def test_renumbered_labels_renumber_the_outputs(name: str, start: str) -> None:
    network, batch = net(), problems.classification(ways=WAYS)
    learner = MOVING_HEADS[name](network, get_loss("cross-entropy"), 0.3, 3, head_start=start)
    params = trained(learner, network)
    for task in batch.tasks():
        assert_close(
            outputs_of(learner, params, renumbered(task, ORDER))[:, ORDER], outputs_of(learner, params, task)
        )


@pytest.mark.parametrize("start", ["learned", "frozen"])
@pytest.mark.parametrize("name", MOVING_HEADS)
def test_rows_of_their_own_make_the_order_matter(name: str, start: str) -> None:
    network, task = net(), problems.classification(ways=WAYS).task(0)
    learner = MOVING_HEADS[name](network, get_loss("cross-entropy"), 0.3, 3, head_start=start)
    params = trained(learner, network)
    there, here = outputs_of(learner, params, renumbered(task, ORDER)), outputs_of(learner, params, task)
    assert (there[:, ORDER].softmax(-1) - here.softmax(-1)).abs().max() > 0.01


@pytest.mark.parametrize("start", ["one-vector", "zero"])
@pytest.mark.parametrize("ways", [2, 3])
def test_fewer_classes_than_outputs(ways: int, start: str) -> None:
    network, order = net(WAYS), torch.tensor([1, 0, 2, 3] if ways == 2 else [2, 0, 1, 3])
    learner = maml(network, get_loss("cross-entropy"), 0.3, 3, head_start=start)
    params, task = trained(learner, network), problems.classification(ways=ways).task(1)
    here = outputs_of(learner, params, task)
    assert_close(outputs_of(learner, params, renumbered(task, order))[:, order], here)
    assert_close(outputs_of(learner, params, renumbered(task, ORDER))[:, ORDER], here)


@pytest.mark.parametrize("start", ["one-vector", "zero"])
def test_squared_errors_of_one_hot_targets(start: str) -> None:
    network, task = net(), problems.classification(ways=WAYS).task(0)
    task = task._replace(
        y_support=F.one_hot(task.y_support, WAYS).double(), y_query=F.one_hot(task.y_query, WAYS).double()
    )
    learner = maml(network, get_loss("half-mse"), 0.1, 3, head_start=start)
    params = trained(learner, network)
    there, here = outputs_of(learner, params, renumbered(task, ORDER)), outputs_of(learner, params, task)
    assert_close(there[:, ORDER], here)


# ---- one vector ----


@pytest.mark.parametrize("mode", ["loop", "threads", "vmap"])
@pytest.mark.parametrize("first_order", [False, True])
def test_one_vector_equals_the_loop_over_copies(mode: str, first_order: bool) -> None:
    network, batch = net(3), problems.regression(inputs=4, outputs=3)
    learner = maml(network, get_loss("half-mse"), 0.1, 2, first_order=first_order, head_start="one-vector")
    params = learner.init(problems.drawn(network)[0])
    gradient = meta_gradient(episodic(learner, get_loss("half-mse")).loss, Plan(mode))(params, {}, batch)
    body = {n: v for n, v in params.items() if n not in network.head_names}
    vector = {n: params[n][0] for n in network.head_names}
    inner = maml_loop.Inner(0.1, 2, first_order=first_order)

    def one(leaves: dict[str, Tensor], task: tuple[Tensor, ...]) -> Tensor:
        own = [{n: leaves[n] for n in each} for each in (body, vector)]
        return one_vector.task_loss(mlp_forward(torch.tanh), get_loss("half-mse").value, *own, 3, inner, task)

    losses, grads = maml_loop.meta_gradient(one, {**body, **vector}, list(batch.tasks()))
    assert_close(gradient.losses, losses)
    # the vector is the mean of the rows, so each row has a third of its gradient, and rows stay equal
    expected = {n: torch.stack([g / 3] * 3) if n in vector else g for n, g in grads.items()}
    assert_trees_close(gradient.grads, expected)
    assert max(float(grads[n].abs().max()) for n in vector) > 1e-3


@pytest.mark.parametrize("name", ["maml", "fomaml", "anil"])
def test_under_cross_entropy_one_vector_is_zero(name: str) -> None:
    network, batch = net(), problems.classification(ways=WAYS)
    loss = get_loss("cross-entropy")
    shared, zero = (MOVING_HEADS[name](network, loss, 0.3, 3, head_start=s) for s in ("one-vector", "zero"))
    params = trained(shared, network)
    for task in batch.tasks():
        a, b = (outputs_of(each, params, task).log_softmax(-1) for each in (shared, zero))
        assert_close(a, b)
    grads = meta_gradient(episodic(shared, loss).loss)(params, {}, batch).grads
    assert max(float(grads[n].abs().max()) for n in network.head_names) < LAST_BITS
    assert float(grads["layer0.weight"].abs().max()) > 1e-4


def test_a_last_layer_without_rows_is_refused() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.scale = torch.nn.Parameter(torch.ones(3, 4)), torch.nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * F.linear(x, self.weight)

    network = from_module(torch.nn.Sequential(torch.nn.Linear(4, 4), Scaled()), "1")
    with pytest.raises(UserError, match=r"'1\.scale' has 0 for 3: use head_start=zero or frozen"):
        anil(network, get_loss("cross-entropy"), 0.1, head_start="one-vector").init(
            network.init(torch.Generator())[0]
        )


# ---- what is not trained ----


def after_training(start: str, batch: TaskBatch, make: Any = anil) -> tuple[Any, Any, Network]:
    """The parameters before and after some steps with weight decay."""
    network, loss = net(), get_loss("cross-entropy")
    learner = make(network, loss, 0.3, 3, head_start=start)
    first = initial_state(learner.init(problems.drawn(network)[0]), {})

    class Always:
        def batch(self, step: int, size: int) -> TaskBatch:
            return batch

    optimiser = make_optimiser("adamw", 0.05, weight_decay=0.1)
    last = fit(episodic(learner, loss), first, Always(), optimiser, steps=4, batch=batch.size)  # type: ignore[arg-type]
    return first.params, last.params, network


@pytest.mark.parametrize("start", ["learned", "frozen", "one-vector", "zero"])
def test_which_parameters_training_moves(start: str) -> None:
    before, after, network = after_training(start, problems.classification(ways=WAYS))
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    head = set(network.head_names)
    assert moved - head == set(before) - head
    assert moved & head == (set() if start in ("frozen", "zero") else head)
    for name in head:
        if start == "zero":
            assert not after[name].any()
        elif start == "one-vector":  # equal rows stay equal to the last bit
            assert torch.equal(after[name], after[name][:1].expand_as(after[name]))


@pytest.mark.parametrize("mode", ["loop", "threads", "vmap"])
def test_a_frozen_head_leaves_the_gradient_of_the_body_alone(mode: str) -> None:
    network, batch, loss = net(), problems.classification(ways=WAYS), get_loss("cross-entropy")
    params, _ = problems.drawn(network)
    learned, frozen = (
        meta_gradient(episodic(anil(network, loss, 0.3, 3, head_start=s), loss).loss, Plan(mode))(
            params, {}, batch
        )
        for s in ("learned", "frozen")
    )
    assert_close(frozen.losses, learned.losses)
    for name, grad in frozen.grads.items():
        if name in network.head_names:
            assert not grad.any()
            assert learned.grads[name].any()
        else:
            assert_close(grad, learned.grads[name])


@pytest.mark.parametrize(
    ("method", "start"),
    [("maml", "one-vector"), ("maml", "zero"), ("anil", "frozen"), ("meta-sgd", "one-vector")],
)
def test_every_start_conforms(method: str, start: str) -> None:
    check_method(method, head_start=start)


def test_boil_conforms_with_a_frozen_head_and_refuses_equal_rows() -> None:
    check_method("boil", head_start="frozen")
    with pytest.raises(UserError, match=r"all classes the same output.*set head_start=frozen"):
        boil(net(), get_loss("cross-entropy"), 0.1, head_start="zero")


def test_unknown_starts_and_online_rates_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'one-vector'"):
        maml(net(), get_loss("cross-entropy"), 0.1, head_start="one-vektor")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="leave out head_start"):
        anil(net(), get_loss("cross-entropy"), 0.1, online="h3", head_start="zero")
