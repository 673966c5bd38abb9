"""Heads on features: prototypes and matching, and how training normalises support and query."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss
from innerloop.core.types import Task
from innerloop.learners import episodic, matching, protonet
from innerloop.nets import conv4, mlp


def _task(ways: int = 3, shots: int = 2) -> Task:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(ways).repeat(shots)
    x = [torch.rand(ways * shots, 1, 16, 16, generator=draw, dtype=torch.float64) for _ in range(2)]
    return Task(x[0], y, x[1], y, torch.arange(ways))


def test_training_under_running_normalises_support_and_query_as_one_batch():
    net, task = conv4(1, 16, 3, filters=4, norm="running"), _task()
    params, buffers = net.init(torch.Generator().manual_seed(0))
    params, buffers = ({k: v.double() for k, v in part.items()} for part in (params, buffers))
    value, after = episodic(protonet(net, 3), get_loss("cross-entropy")).loss(params, buffers, task)
    z, seen = net.features(params, buffers, torch.cat([task.x_support, task.x_query]), "batch")
    means = torch.stack([z[:6][task.y_support == k].mean(0) for k in range(3)])
    expected = F.cross_entropy(-torch.cdist(z[6:], means).square(), task.y_query)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(after, seen)
    apart = protonet(net, 3)._replace(together=None)
    other, _ = episodic(apart, get_loss("cross-entropy")).loss(params, buffers, task)
    assert abs(float(other - value)) > 1e-6, "two batches of their own would give the same: nothing is tested"


@pytest.mark.parametrize("norm", ["transductive", "support", "group", "none"])
def test_other_norm_policies_keep_the_two_sets_apart(norm):
    assert protonet(conv4(1, 16, 3, filters=4, norm=norm), 3).together is None


def test_matching_is_attention_over_the_support_set():
    net, task = mlp(256, [8], 3), _task()
    params, buffers = net.init(torch.Generator().manual_seed(0))
    params = {k: v.double() for k, v in params.items()}
    learner = matching(net, 3, scale=4.0)
    out, _ = learner.predict(
        learner.adapt(params, buffers, task.x_support.flatten(1), task.y_support), task.x_query.flatten(1)
    )
    zs, zq = (net.features(params, buffers, x.flatten(1), "batch")[0] for x in (task.x_support, task.x_query))
    for q, said in zip(zq, out.exp(), strict=True):
        weights = torch.stack([torch.exp(4.0 * F.cosine_similarity(q, z, dim=0)) for z in zs])
        weights = weights / weights.sum()
        expected = [sum(w for w, y in zip(weights, task.y_support, strict=True) if y == k) for k in range(3)]
        torch.testing.assert_close(said, torch.stack(expected))


def test_matching_never_predicts_an_unseen_class_and_its_gradient_is_finite():
    net = mlp(4, [8], 3)
    params, buffers = net.init(torch.Generator().manual_seed(0))
    params = {k: v.requires_grad_() for k, v in params.items()}
    x = torch.rand(4, 4, generator=torch.Generator().manual_seed(1))
    learner = matching(net, 4)
    out, _ = learner.predict(learner.adapt(params, buffers, x, torch.tensor([0, 2, 2, 0])), x)
    assert out[:, [1, 3]].eq(-torch.inf).all()
    F.cross_entropy(out, torch.tensor([0, 2, 2, 0])).backward()
    assert all(torch.isfinite(p.grad).all() for n, p in params.items() if n not in net.head_names)


def test_a_scale_that_is_not_positive_is_refused():
    with pytest.raises(UserError, match="the learner's scale=0: it must be positive"):
        matching(mlp(4, [8], 3), 3, scale=0.0)
