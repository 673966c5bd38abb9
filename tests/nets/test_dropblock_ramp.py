"""How long DropBlock's rate rises: in passes of the network, of which a meta-step is one."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Task, stack_tasks
from innerloop.experiment.recipe.library import load_recipe
from innerloop.learners import episodic, erm, multitask
from innerloop.learners.heads import metaoptnet_svm
from innerloop.nets import resnet12, with_noise
from innerloop.nets.noise import dropblock, key
from innerloop.training import Plan, meta_gradient


@pytest.mark.parametrize("name", ["mini-imagenet", "tiered-imagenet", "cifar-fs", "fc100"])
def test_dropblock_rises_over_as_many_calls_as_published(name: str) -> None:
    """MetaOptNet calls its network twice a step, RFS once; here one pass is all that a step shows it."""
    assert load_recipe(f"{name}-metaoptnet").model.settings["ramp"] == 40_000 // 2
    assert "ramp" not in load_recipe(f"{name}-supervised").model.settings
    assert load_recipe(f"{name}-supervised").outer.batch == 1


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_meta_step_is_one_pass_however_many_tasks_it_has(tasks: int) -> None:
    network = resnet12(1, 16, 3, widths=(2, 2, 2, 2), norm="running")
    params, buffers = network.init(torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(3)
    one = [torch.randn(3, 1, 16, 16, generator=draw) for _ in range(2)]
    batch = stack_tasks([Task(one[0], y, one[1], y, y)] * tasks)
    loss = get_loss("cross-entropy")
    passes = {
        "MetaOptNet": episodic(metaoptnet_svm(network, 3), loss),
        "MTL": multitask(network, loss, 5, "released", ways=3),
        "RFS": erm(network, loss),
    }
    for name, objective in passes.items():
        start = objective.init(params, draw)
        start = metaoptnet_svm(network, 3).init(start) if name == "MetaOptNet" else start
        gradient = meta_gradient(objective.loss, Plan("loop"))(start, with_noise(buffers, 10), batch)
        assert float(gradient.buffers["noise.step"]) == 11, name


def test_the_rate_is_whole_after_the_ramp() -> None:
    x = torch.ones(64, 8, 8, 8)
    shares = [
        float((dropblock(x, with_noise({}, step), 0.2, 2, key("a"), ramp=100) == 0).float().mean())
        for step in (0, 49, 99, 5000)
    ]
    assert shares[0] < 0.01
    assert shares[1] == pytest.approx(0.1, abs=0.02)
    assert shares[2] == pytest.approx(0.2, abs=0.03)
    assert shares[3] == pytest.approx(0.2, abs=0.03)
    with pytest.raises(UserError, match="whole number from 1 up"):
        resnet12(3, 32, 5, ramp=0)
