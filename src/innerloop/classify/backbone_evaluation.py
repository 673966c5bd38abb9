"""Judging a pretrained backbone: features as its weights want pictures, heads on the tasks of any run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innerloop.classify.backbones import Backbone, open_backbone
from innerloop.classify.features import extract
from innerloop.data.pictures import Progress, silent
from innerloop.data.source import ImageSource
from innerloop.evaluation.features import Rows
from innerloop.evaluation.frozen import evaluate_features
from innerloop.evaluation.protocol import Protocol, check_protocol
from innerloop.evaluation.scores import Evaluation
from innerloop.tasks.episodes import Kind
from innerloop.training.execution.plan import Plan


def evaluate_backbone(
    backbone: Backbone | str,
    source: ImageSource,
    protocol: Protocol,
    split: str = "test",
    *,
    folder: Path | None = None,
    kinds: Sequence[Kind] | None = None,
    balanced: bool = True,
    cache: bool | str | Path = True,
    progress: Progress = silent,
    device: str = "cpu",
    plan: Plan | None = None,
    keep: int = 0,
) -> Evaluation:
    """Fits heads on a backbone's features, on the episodes that :func:`evaluate_head` has with that seed.

    Every picture that some episode shows is brought to what the backbone's weights were trained on, whatever
    the size and colour it is stored in, and goes through the network once: features are kept on disk.

    Args:
        backbone: from :func:`innerloop.classify.open_backbone`, or its name.
        source: the pictures.
        protocol: ways, shots, head and so on; its ``norm`` is the backbone's.
        split: which classes.
        folder: where the files of the source lie, to be read in the size that they have; without it, the
            pictures are those of the source.
        kinds: a mixture of kinds of tasks instead of the protocol's one.
        balanced: as in ``few_shot_sampler``.
        cache: whether features are kept, as in :func:`innerloop.classify.extract`.
        progress: told how many features are computed.
        device: where the network computes.
        plan: how many cores to use; all if omitted.
        keep: first episodes of which the labels that were given are kept.

    Raises:
        UserError: for an unknown backbone or head, or too few pictures.
    """
    opened = open_backbone(backbone) if isinstance(backbone, str) else backbone
    check_protocol(protocol, opened.network.norm)
    threads = None if plan is None else plan.threads
    compute = partial(extract, opened, cache=cache, progress=progress, threads=threads, device=device)

    def embed(rows: Rows) -> Tensor:
        """Features of some rows of the source."""
        given: list[Any] = [
            source.images[row] if folder is None else folder / source.files(row) for row in rows
        ]
        return torch.from_numpy(np.asarray(compute(given).values)).to(device)

    return evaluate_features(
        embed, source, protocol, split, kinds=kinds, balanced=balanced, plan=plan, keep=keep
    )
