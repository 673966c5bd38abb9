"""The labels behind an accuracy: those that were scored, however episodes are run, and nothing else."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.losses import get_loss
from innerloop.data.glyphs import glyphs
from innerloop.evaluation import Protocol, evaluate, evaluate_head
from innerloop.evaluation.scores import EpisodePredictions, marks, read_marks
from innerloop.learners import protonet
from innerloop.nets import conv4
from innerloop.tasks.episodes import Kind
from innerloop.tasks.few_shot import few_shot_sampler
from innerloop.testing.closeness import SINGLE_CHAINED
from innerloop.training import Plan

MIXTURE = [Kind(3, 1, 2), Kind(4, 2, 3)]
NET = conv4(1, 28, 5, filters=2, norm="group")
PARAMS, BUFFERS = NET.init(torch.Generator().manual_seed(0))
LOSS = get_loss("cross-entropy")


def slowly(sampler, episode: int) -> EpisodePredictions:
    """One query at a time, in words of its own."""
    task, learner = sampler.episode(episode), protonet(NET, 4)
    adapted = learner.adapt(PARAMS, BUFFERS, task.x_support, task.y_support)
    said, sure = [], []
    for picture in task.x_query:
        p = torch.exp(learner.predict(adapted, picture[None])[0][0])
        said.append(int(p.argmax()))
        sure.append(float(p.max() / p.sum()))
    return EpisodePredictions(episode, task.y_query.tolist(), said, sure)


@pytest.mark.parametrize("plan", [Plan("loop"), Plan("vmap"), Plan("threads", 2)])
@pytest.mark.parametrize("kinds", [MIXTURE[:1], MIXTURE])
def test_labels_are_those_that_are_scored(plan: Plan, kinds: list[Kind]) -> None:
    sampler = few_shot_sampler(glyphs(), "test", seed=1, kinds=kinds)
    evaluation = evaluate(
        protonet(NET, 4), PARAMS, BUFFERS, sampler, LOSS, 7, plan, batch=3, keep=5, widest=12
    )
    assert [one.episode for one in evaluation.predicted] == list(range(5))
    for one, score in zip(evaluation.predicted, evaluation.scores, strict=False):
        expected = slowly(sampler, one.episode)
        assert one[:3] == expected[:3]
        assert one.accuracy == pytest.approx(score)
        assert one.probability == pytest.approx(expected.probability, abs=SINGLE_CHAINED)
    plain = evaluate(protonet(NET, 4), PARAMS, BUFFERS, sampler, LOSS, 7, plan, batch=3)
    assert plain.predicted == ()
    assert plain.scores == evaluation.scores


@pytest.mark.parametrize("head", ["logistic", "centroid", "finetune"])
def test_heads_tell_the_labels_that_they_are_scored_by(head: str) -> None:
    protocol = Protocol(episodes=6, seed=1, norm="group", head=head, steps=1)
    evaluation = evaluate_head(NET, PARAMS, BUFFERS, glyphs(), protocol, kinds=MIXTURE, keep=4)
    sampler = few_shot_sampler(glyphs(), "test", seed=1, kinds=MIXTURE)
    assert [one.episode for one in evaluation.predicted] == list(range(4))
    for one, score in zip(evaluation.predicted, evaluation.scores, strict=False):
        assert one.labels == sampler.episode(one.episode).y_query.tolist()
        assert one.accuracy == pytest.approx(score)
        assert all(0 < p <= 1 for p in one.probability)


def test_an_episode_without_numbers_is_left_out() -> None:
    outputs = torch.tensor([[[1.0, 2.0]], [[torch.nan, 0.0]], [[0.0, -torch.inf]]])
    tables = marks(outputs, torch.tensor([[0], [0], [0]]), widest=3)
    assert [one.episode for one in read_marks(tables, [4, 5, 6])] == [4, 6]
    assert read_marks(torch.full((1, 3, 2), torch.nan), [0]) == []
