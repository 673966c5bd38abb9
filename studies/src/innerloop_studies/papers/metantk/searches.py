"""The searches behind MetaNTK-NAS' tables: a cell, what it cost, and how reliable it is, as plain data.

They stand apart from trainings and from rows, so that finished searches outlive a change of either. A search
that is interrupted goes on at the measurement where it was.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from innerloop.choose.architectures.draws import PictureDraws
from innerloop.choose.architectures.measure import read_kept
from innerloop.choose.architectures.methods import search
from innerloop.choose.architectures.space import cell_space, network_size
from innerloop.data.opening import open_source
from innerloop.data.source import ImageSource
from innerloop.nets.cells.genotype import EDGES, KINDS, Choices, to_table
from innerloop_studies.papers.metantk.outcomes import Searched
from innerloop_studies.papers.metantk.pictures import TINY, photographs
from innerloop_studies.reproduce.parts import FOLDER
from innerloop_studies.reproduce.sources import library_versions, source_hash

WAYS = 5


def found_cell(
    data: str,
    side: int,
    cells: int,
    channels: int,
    crops: int,
    method: str,
    settings: Mapping[str, Any],
    seed: int,
) -> dict[str, Any]:
    """One search."""
    source = pictures(data)
    space = cell_space(source.images.shape[-1], side, WAYS, cells=cells, channels=channels)
    draws = PictureDraws(source, seed=seed, side=side, crops=crops)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    operators = given.pop("operators", None)
    if operators is not None:
        given["start"] = Choices(*((operators, *((operators[:1],) * (len(EDGES) - 1))) for _ in KINDS))
    asked = {"data": data, "side": side, "cells": cells, "channels": channels, "crops": crops}
    keep = _kept_at({**asked, "method": method, "settings": dict(settings), "seed": seed})
    fresh, begun = not keep.exists(), time.process_time()
    result = search(method, space, draws, settings=given, seed=seed, workers=1, keep=keep)
    seconds = time.process_time() - begun
    best = result.ranked[0]
    cell = Searched(
        to_table(best.candidate),
        best.scores,
        {} if result.reliability is None else result.reliability.as_dict(),
        result.measured,
        seconds=seconds if fresh else sum(each.seconds for each in read_kept(keep).values()),
        parameters=network_size(space.build(best.candidate, "transductive"), space.shape).body,
    )
    return cell._asdict()


def pictures(data: str) -> ImageSource:
    """The catalogue's, the embedded ones, or the photographs that stand in at ``smoke``."""
    return photographs() if data == TINY else open_source(data)


def _kept_at(settings: Mapping[str, Any]) -> Path:
    """A file of single measurements for these settings, this source and these libraries."""
    key = {"source": source_hash(__name__), **library_versions(), **settings}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return FOLDER / "metantk-nas-measurements" / f"{name}.jsonl"
