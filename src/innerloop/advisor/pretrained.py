"""A network that others trained, with a head, on the very tasks that the race was decided on."""

from __future__ import annotations

import time

import numpy as np

from innerloop.advisor.problem import Problem
from innerloop.advisor.result import Row
from innerloop.advisor.untrained import SPLIT, Ground
from innerloop.core.errors import UserError
from innerloop.data.source import ImageSource
from innerloop.evaluation.features import Rows
from innerloop.evaluation.pretrained import evaluate_backbone
from innerloop.experiment.heads import head_protocol
from innerloop.experiment.pictures import build_kinds
from innerloop.features.backbone import Backbone
from innerloop.features.extracting import extract
from innerloop.features.opening import open_backbone
from innerloop.features.overlap import overlap
from innerloop.nets.pretrained import PRETRAINED, is_installed
from innerloop.tasks.few_shot import FewShot, few_shot

HEAD = "logistic"
TIMED = 16
"""Pictures whose features are timed; they are kept, so that this costs nothing."""
LEAST = 20
"""Fewer tasks tell nothing."""


def installed_backbone() -> str | None:
    """A pretrained network whose weights are on this machine; the first of them, which is the fastest."""
    return next((name for name in PRETRAINED if is_installed(name)), None)


def pretrained_row(problem: Problem, ground: Ground, name: str, seconds: float) -> Row:
    """A pretrained network with a logistic head, on as many of the tasks as the time allows.

    Args:
        problem: what is raced on what.
        ground: the tasks.
        name: of the backbone.
        seconds: that its features may take: one pass for every picture that a task shows.

    Raises:
        UserError: there is no such backbone, or the time does not suffice.
    """
    started, backbone = time.perf_counter(), open_backbone(name)
    pictures, kinds = ground.data.pictures, tuple(build_kinds(ground.recipe, training=False))
    balanced = ground.recipe.tasks.balanced
    drawn = few_shot(pictures, SPLIT, ground.recipe.eval.seed, kinds, balanced)
    each = _seconds_a_picture(backbone, pictures, drawn, ground.plan.threads)
    episodes = affordable_tasks(drawn, ground.episodes, int(seconds / each))
    if episodes < LEAST:
        raise UserError(
            f"{name} was not judged: a picture takes it {each:.2g} s here, too long for {LEAST} tasks within "
            f"{seconds:.0f} s; a larger budget= would include it"
        )
    protocol = head_protocol(ground.recipe, backbone.network.norm, episodes)._replace(
        head=HEAD, C=1.0, normalise=True, copies=0, grid=(), ensemble=False
    )
    judged = evaluate_backbone(
        backbone, pictures, protocol, SPLIT, kinds=kinds, balanced=balanced, plan=ground.plan
    )
    return Row(
        name,
        f"{name} with a logistic head",
        "pretrained",
        judged.interval,
        episodes,
        fresh=True,
        seconds=time.perf_counter() - started,
        parameters=sum(value.numel() for value in backbone.params.values()),
        note=overlap(backbone.seen, problem.recipe.data.name) or "",
        scores=tuple(judged.scores),
    )


def affordable_tasks(drawn: FewShot, most: int, pictures: int) -> int:
    """How many of the first tasks show no more different pictures than these.

    Args:
        drawn: the sampler of the tasks.
        most: how many tasks there may be at most.
        pictures: how many different pictures there is time for.
    """
    seen: set[int] = set()
    for number in range(most):
        seen.update(_rows(drawn, number).tolist())
        if len(seen) > pictures:
            return number
    return most


def _rows(drawn: FewShot, number: int) -> Rows:
    index = np.array([number])
    rows = drawn.rows(index, int(drawn.kind_of(index)[0]))
    return np.unique(np.concatenate([rows.support.reshape(-1), rows.query.reshape(-1)]))


def _seconds_a_picture(backbone: Backbone, pictures: ImageSource, drawn: FewShot, threads: int) -> float:
    some = [pictures.images[row] for row in _rows(drawn, 0)[: 2 * TIMED]]
    extract(backbone, some[:TIMED], threads=threads)  # what a first call prepares
    started = time.perf_counter()
    extract(backbone, some[TIMED:] or some, threads=threads)
    return (time.perf_counter() - started) / max(1, len(some[TIMED:] or some))
