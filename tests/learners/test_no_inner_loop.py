"""Training without an inner loop: class rows as Bridge released them, and last layers by length and angle."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.experiment.data import Sizes
from innerloop.experiment.model import build_model
from innerloop.experiment.recipe.library import load_recipe
from innerloop.learners import erm, multitask
from innerloop.learners.objectives.multitask import head_scale, released_rows
from innerloop.nets import Network, conv4, from_module, mlp, resnet12
from innerloop.nets.network import with_last_layer
from innerloop.testing import check_network, check_objective
from innerloop.testing.closeness import FINITE_DIFFERENCE, assert_close, assert_trees_close
from innerloop.training import Plan, meta_gradient
from oracles import class_rows, problems
from oracles import finite_differences as fd

Tree = dict[str, Tensor]
CROSS_ENTROPY = get_loss("cross-entropy")


def drawn_rows(network: Network) -> tuple[Tree, Tree]:
    """Parameters with rows of seven classes as released, and buffers."""
    objective = multitask(network, CROSS_ENTROPY, 7, "released", ways=3)
    params, buffers = problems.drawn(network)
    return objective.init(params, torch.Generator().manual_seed(0)), buffers


# ---- class rows as released ----


@pytest.mark.parametrize("mode", ["loop", "threads", "vmap"])
@pytest.mark.parametrize("norm", ["running", "transductive", "none"])
@pytest.mark.parametrize("last_layer", ["linear", "normalised"])
def test_released_rows_equal_one_picture_at_a_time(last_layer: str, norm: str, mode: str) -> None:
    """Statistics are those of one task, in every mode: gradients are accumulated task by task."""
    plain = conv4(1, 16, 3, filters=4, norm=norm)
    network, batch = with_last_layer(plain, last_layer), problems.images(tasks=3)
    params, buffers = drawn_rows(network)
    objective = multitask(network, CROSS_ENTROPY, 7, "released", ways=3)
    gradient = meta_gradient(objective.loss, Plan(mode, 2))(params, buffers, batch)  # type: ignore[arg-type]

    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    losses = [
        class_rows.task_loss(
            lambda x: plain.features(leaves, buffers, x, "batch")[0],
            leaves["heads.head.weight"],
            task,
            normalise=last_layer == "normalised",
        )
        for task in batch.tasks()
    ]
    assert_close(gradient.losses, torch.stack(losses).detach())
    assert_trees_close(gradient.grads, class_rows.accumulated(losses, leaves))


@pytest.mark.parametrize("last_layer", ["linear", "normalised", "cosine"])
def test_gradients_of_class_rows_are_derivatives(last_layer: str) -> None:
    network = with_last_layer(mlp(4, [6, 5], 3, activation="tanh"), last_layer)
    params, buffers = drawn_rows(network)
    batch = problems.classification()
    for objective in (multitask(network, CROSS_ENTROPY, 7, "released", ways=3), erm(network, CROSS_ENTROPY)):
        value = objective.loss
        assert value is not None
        grads = meta_gradient(value, Plan("vmap"))(params, buffers, batch).grads

        def mean(p: Tree, value=value) -> Tensor:  # type: ignore[no-untyped-def]
            return torch.stack([value(p, buffers, task)[0] for task in batch.tasks()]).mean()

        for seed in (0, 1):
            direction = fd.random_direction(params, seed)
            expected = fd.directional(mean, params, direction)
            assert_close(fd.along(grads, direction), expected, FINITE_DIFFERENCE)


def test_released_rows_start_as_published() -> None:
    assert [round(head_scale(classes, 5), 2) for classes in (64, 351, 60)] == [3.58, 8.38, 3.46]
    features, classes = 640, 351
    rows = released_rows(torch.Generator().manual_seed(0), classes, features, ways=5)
    linear = torch.nn.init.kaiming_uniform_(
        torch.empty(classes, features), a=math.sqrt(5), generator=torch.Generator().manual_seed(1)
    )
    assert rows.shape == linear.shape
    ratio = float(rows.std() / linear.std())
    assert abs(ratio / math.sqrt(classes / 5) - 1) < 0.01
    bound = math.sqrt(classes / 5) / math.sqrt(features)
    assert 0.99 * bound < float(rows.abs().max()) <= bound


def test_released_rows_have_no_bias_and_leave_the_networks_own_head_alone() -> None:
    network = resnet12(3, 16, 5, widths=(4, 4, 4, 8), norm="running", drop_rate=0.0)
    params, _ = drawn_rows(network)
    assert [name for name in params if name.startswith("heads.")] == ["heads.head.weight"]
    objective = multitask(network, CROSS_ENTROPY, 7, "released", ways=3)
    assert objective.untrained == ("head.weight", "head.bias")
    batch = problems.classification(shape=(3, 16, 16))
    grads = meta_gradient(objective.loss, Plan("loop"))(*drawn_rows(network), batch).grads
    assert not grads["head.weight"].any()
    assert not grads["head.bias"].any()


def test_objectives_with_other_last_layers_conform() -> None:
    batch = problems.classification()
    for kind in ("linear", "normalised", "cosine"):
        network = with_last_layer(mlp(4, [6], 3, activation="tanh"), kind)
        params, buffers = network.init(torch.Generator().manual_seed(0))
        single = batch._replace(x_support=batch.x_support.float(), x_query=batch.x_query.float())
        check_objective(multitask(network, CROSS_ENTROPY, 7, "released", ways=3), params, buffers, single)
        check_objective(erm(network, CROSS_ENTROPY), params, buffers, single)


def test_rows_that_make_no_sense_are_refused() -> None:
    network = mlp(4, [6], 3)
    with pytest.raises(UserError, match="heads must be 'shared', 'independent' or 'released', not 'x'"):
        multitask(network, CROSS_ENTROPY, 7, "x")
    with pytest.raises(UserError, match="targets that are numbers have no classes: set heads=independent"):
        multitask(network, get_loss("mse"), 7, "released", ways=3)
    with pytest.raises(UserError, match="needs the ways of training tasks"):
        multitask(network, CROSS_ENTROPY, 7, "released")
    with pytest.raises(UserError) as caught:
        load_recipe("sine-multitask", ["outer.heads=released", "inner.lr=auto", "model.last_layer=cosine"])
    assert str(caught.value).splitlines() == [
        "outer.heads=released keeps a row per class, and the loss mse has no classes: set "
        "outer.heads=independent.",
        "inner.lr=auto estimates a rate from the features as they are, and model.last_layer=cosine reads "
        "them at length one: give inner.lr a number and leave inner.online off.",
    ]


def test_recipes_scale_rows_by_the_ways_of_training() -> None:
    recipe = load_recipe("cifar-fs-mtl-thin", ["tasks.ways=4", "eval.ways=10"])
    model = build_model(recipe, Sizes((3, 32, 32), 10, 10, 64, True))
    params = model.objective.init(
        model.network.init(torch.Generator().manual_seed(0))[0], torch.Generator().manual_seed(0)
    )
    expected = released_rows(torch.Generator().manual_seed(0), 64, 256, ways=4)
    assert torch.equal(params["heads.head.weight"], expected)
    z = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    assert_close(model.network.head(params, z), model.network.head(params, 7 * z))  # at length one


# ---- last layers ----


def test_last_layers_are_their_formulas() -> None:
    plain = mlp(2, [4], 3, activation="tanh")
    params, _ = problems.drawn(plain)
    z = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    w, b = params["layer1.weight"], params["layer1.bias"]
    assert with_last_layer(plain, "linear") is plain
    unit = z / z.norm(dim=1, keepdim=True)
    assert_close(with_last_layer(plain, "normalised").head(params, z), unit @ w.T + b)
    cosine = torch.stack([F.cosine_similarity(z, row[None], dim=1) for row in w], 1)
    assert_close(with_last_layer(plain, "cosine", 4.0).head(params, z), 4.0 * cosine)


@pytest.mark.parametrize("kind", ["normalised", "cosine"])
def test_networks_with_other_last_layers_conform(kind: str) -> None:
    x = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    check_network(with_last_layer(conv4(1, 16, 3, filters=4, norm="group"), kind), x)
    module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    check_network(with_last_layer(from_module(lambda: module), kind), x[:, 0, 0])


def test_a_cosine_layer_draws_no_bias() -> None:
    network = with_last_layer(conv4(1, 16, 3, filters=4), "cosine")
    assert network.head_names == ("head.weight",)
    assert "head.bias" not in network.init(torch.Generator().manual_seed(0))[0]


def test_last_layers_that_make_no_sense_are_refused() -> None:
    network = mlp(2, [4], 3)
    with pytest.raises(UserError, match=r"unknown last layer 'cosin' \(did you mean 'cosine'\?\)"):
        with_last_layer(network, "cosin")
    two = network._replace(head_names=("layer0.weight", "layer1.weight"))
    with pytest.raises(UserError, match="one matrix of weights, and this network's has layer0"):
        with_last_layer(two, "cosine")
