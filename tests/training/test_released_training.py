"""MetaOptNet's training as released: rates by milestone, smoothed labels, features that are not averaged."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, smoothed
from innerloop.experiment.parts import build
from innerloop.experiment.recipe.library import load_recipe
from innerloop.nets import resnet12
from innerloop.training import make_schedule

OUTPUTS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 3, 4, 0, 1])


def test_the_released_rates() -> None:
    schedule = build(
        load_recipe(
            "cifar-fs-metaoptnet",
            ["data.name=glyphs", "tasks.shots=5", "model.kind=conv4", "model.filters=4"],
        )
    ).schedule
    shares = {0: 1.0, 19_999: 1.0, 20_000: 0.06, 39_999: 0.06, 40_000: 0.012, 50_000: 0.0024, 59_999: 0.0024}
    assert {step: schedule(step) for step in shares} == shares


def test_factors_without_milestones_are_refused() -> None:
    with pytest.raises(UserError, match=r"outer\.factors has 1 shares of the rate and outer\.milestones 2"):
        load_recipe("sine-maml", ["outer.schedule=step", "outer.factors=[0.1]"])
    with pytest.raises(UserError, match=r"shares of outer\.lr above 0"):
        load_recipe("sine-maml", ["outer.schedule=step", "outer.factors=[0.1,0]"])
    with pytest.raises(UserError, match=r"outer\.milestones must rise"):
        load_recipe(
            "sine-maml", ["outer.schedule=step", "outer.milestones=[0.5,0.2]", "outer.factors=[0.1,0.2]"]
        )
    with pytest.raises(UserError, match="give one for each"):
        make_schedule("step", 10, [0.5], factors=[0.1, 0.2])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_smoothed_labels_are_a_share_for_the_others(share: float) -> None:
    target = torch.full((7, 5), share / 4, dtype=torch.float64)
    target[torch.arange(7), LABELS] = 1 - share
    expected = -(target * F.log_softmax(OUTPUTS, 1)).sum(1).mean()
    value = smoothed(get_loss("cross-entropy"), share).value(OUTPUTS, LABELS)
    torch.testing.assert_close(value, expected)
    # torch spreads over all classes, the right one among them
    torch.testing.assert_close(value, F.cross_entropy(OUTPUTS, LABELS, label_smoothing=share * 5 / 4))
    summed = smoothed(get_loss("cross-entropy-sum"), share).value(OUTPUTS, LABELS)
    torch.testing.assert_close(summed, 7 * expected)


def test_classes_that_cannot_be_get_no_share() -> None:
    few = OUTPUTS[:, :3].clone().requires_grad_()
    padded = torch.cat([few, torch.full((7, 2), -torch.inf, dtype=torch.float64)], 1)
    loss, labels = smoothed(get_loss("cross-entropy"), 0.1), LABELS.clamp(max=2)
    value = loss.value(padded, labels)
    torch.testing.assert_close(value, loss.value(few, labels))
    gradient, expected = (torch.autograd.grad(each, few)[0] for each in (value, loss.value(few, labels)))
    torch.testing.assert_close(gradient, expected)


def test_smoothing_is_for_labels_and_none_is_the_loss_itself() -> None:
    loss = get_loss("cross-entropy")
    assert smoothed(loss, 0.0) is loss
    with pytest.raises(UserError, match="mse has no labels to smooth"):
        smoothed(get_loss("mse"), 0.1)


def test_smoothing_reaches_training_and_leaves_the_score_alone() -> None:
    items = ["data.name=glyphs", "model.filters=4", "tasks.ways=5", "eval.episodes=5"]
    plain, soft = (
        build(load_recipe("cifar-fs-protonet", [*items, f"outer.label_smoothing={share}"]))
        for share in (0.0, 0.3)
    )
    task = plain.data.train.episode(0)
    values = [float(each.objective.loss(each.params, each.buffers, task)[0]) for each in (plain, soft)]
    assert abs(values[0] - values[1]) > 1e-3
    assert soft.loss is plain.loss


def test_features_that_are_not_averaged() -> None:
    widths = (2, 2, 3, 4)
    nets = [resnet12(3, 84, 5, widths=widths, avg_pool=each) for each in (True, False)]
    params, buffers = nets[1].init(torch.Generator().manual_seed(0))
    x = torch.rand(2, 3, 84, 84, generator=torch.Generator().manual_seed(1))
    averaged, whole = (net.features(params, buffers, x, "batch")[0] for net in nets)
    assert whole.shape == (2, 4 * 25)
    torch.testing.assert_close(whole.view(2, 4, 25).mean(-1), averaged)
    assert nets[1].head(params, whole).shape == (2, 5)
