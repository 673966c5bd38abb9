"""Which reproduction of a batch comes next, and where a finished one lies: alone, or beside others.

Processes that share a folder leave finished reproductions there for each other. Each first does those that no
other has begun, then helps with what is left: long ones have parts, which are shared, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from innerloop.core.errors import UserError
from innerloop.core.files import read_json
from innerloop.runs.claims import Claims
from innerloop.runs.directory import list_runs
from innerloop.runs.manifest import read_manifest
from innerloop_studies.reproduce import module_name
from innerloop_studies.reproduce.results import Result
from innerloop_studies.reproduce.sources import library_versions, source_hash

MADE_BY = "made_by"
"""Entry of a manifest: what the numbers of a reproduction depend on beside its scale."""


def made_by(name: str) -> dict[str, str | None]:
    """What a member's numbers depend on beside its scale."""
    return {"source": source_hash(module_name(name)), **library_versions()}


def finished_before(folder: Path, name: str, scale: str) -> tuple[Path, Result] | None:
    """The run of a reproduction that the same source has finished in a shared folder, and its result."""
    wanted = {"status": "finished", "scale": scale, MADE_BY: made_by(name)}
    for run in reversed(list_runs(folder)):
        if run.parent.name == f"reproduce-{name}":
            with contextlib.suppress(UserError, OSError, ValueError):
                manifest = read_manifest(run)
                if all(manifest.get(key) == value for key, value in wanted.items()):
                    return run, cast(Result, dict(read_json(run / "result.json")))
    return None


def in_turn(names: Sequence[str], scale: str, claims: Claims | None) -> Iterator[str]:
    """Names in the order in which this process does them: those that others have begun come last."""
    begun = []
    for name in names:
        claim = claims.take(f"{name}.{scale}") if claims else None
        if claims is None:
            yield name
        elif claim is None:
            begun.append(name)
        else:
            with claim:
                yield name
    yield from begun
