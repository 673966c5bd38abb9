"""Variable ways and shots: a batch of unequal tasks is its tasks one at a time, in every execution mode."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.losses import get_loss, smoothed
from innerloop.core.types import RaggedBatch, Task
from innerloop.evaluation import evaluate
from innerloop.experiment.learner import build_learner
from innerloop.experiment.recipe.schema import InnerSettings
from innerloop.learners import LEARNERS, episodic
from innerloop.nets import mlp
from innerloop.tasks import Sampler
from innerloop.testing.closeness import CHAINED, CONDITIONED, DEEP, SUMMED
from innerloop.training import Plan, meta_gradient

WAYS = 5
FREE = [name for name, entry in LEARNERS.items() if entry.own_head]
LOSS = smoothed(get_loss("cross-entropy"), 0.1)  # unseen classes must get no share


def drawn(seed: int, ways: int, shots: int, queries: int) -> Task:
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(ways, 4, generator=draw, dtype=torch.float64)

    def side(each: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.arange(ways).repeat(each)
        return centres[y] + torch.randn(len(y), 4, generator=draw, dtype=torch.float64), y

    return Task(*side(shots), *side(queries), torch.arange(ways))


BATCH = RaggedBatch(
    tuple(drawn(i, *shape) for i, shape in enumerate([(2, 1, 3), (5, 3, 2), (3, 4, 1), (5, 3, 2), (2, 1, 3)]))
)


@pytest.mark.parametrize("name", FREE)
def test_a_ragged_batch_is_its_tasks_one_at_a_time(name: str) -> None:
    entry, net = LEARNERS[name], mlp(4, [8, 6], WAYS, activation="tanh")
    section = InnerSettings(method=name, loss="cross-entropy")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    start = {k: v.double() for k, v in params.items()}
    losses, scores, grads = [], [], []
    for task in BATCH.tasks():
        # a learner that knows of no more classes than this task has: the obvious twin
        learner = build_learner(section, net, 1, len(task.id))
        loss = episodic(learner, LOSS).loss
        one = meta_gradient(loss, Plan("loop"))(learner.init(start), buffers, RaggedBatch((task,)))
        losses.append(one.losses)
        grads.append(one.grads)
        alone = Sampler(lambda _, task=task: RaggedBatch((task,)), name="one")
        scores += evaluate(learner, learner.init(start), buffers, alone, LOSS, 1).scores
    learner = build_learner(section, net, 1, WAYS)
    together = Sampler(lambda _: BATCH, name="ragged")
    for mode in ("loop", "threads", *(("vmap",) if entry.vmap else ())):
        plan = Plan(mode, 2)
        gradient = meta_gradient(episodic(learner, LOSS).loss, plan)(learner.init(start), buffers, BATCH)
        torch.testing.assert_close(gradient.losses, torch.cat(losses), rtol=DEEP, atol=SUMMED)
        for key, grad in gradient.grads.items():
            mean = torch.stack([each[key] for each in grads]).mean(0)
            torch.testing.assert_close(grad, mean, rtol=CONDITIONED, atol=CHAINED)
        assert evaluate(learner, learner.init(start), buffers, together, LOSS, 5, plan).scores == scores
