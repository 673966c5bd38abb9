"""``manifest.json``: what ran, with which versions, where, and how it ended. Imports no torch."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import Any

from innerloop._version import __version__
from innerloop.core.errors import UserError
from innerloop.core.files import DamagedFileError, json_line, read_object, write_json_atomic
from innerloop.core.resources import available_cores
from innerloop.runs.directory import MANIFEST
from innerloop.runs.process import alive, identity

ENDED = ("finished", "interrupted", "failed")
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("status", "reason", "started", "ended", "device", "platform", "recipe_sha256"), (str,)),
    **dict.fromkeys(("plan", "data", "versions", "sizes", "recipe", "rate", "asked", "tracked"), (dict,)),
    "argv": (list,),
}
"""What entries of a manifest are, where they are there at all; others may be anything."""


def version_of(package: str) -> str | None:
    """The installed version of ``package``, or None, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def start_manifest(
    run: Path, argv: list[str] | None, recipe_text: str, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write the manifest of a run that is about to start, and return it."""
    fields: dict[str, Any] = {
        "argv": argv,
        "versions": {
            "innerloop": __version__,
            "torch": version_of("torch"),
            "numpy": version_of("numpy"),
            "python": platform.python_version(),
        },
        "platform": platform.platform(),
        "device": "cpu",
        "cores": available_cores(),
        "recipe_sha256": hashlib.sha256(recipe_text.encode()).hexdigest(),
        "data": {},
        "plan": None,
        **identity(),
        "executable": sys.executable,
        "started": now(),
        "ended": None,
        "status": "running",
        "reason": None,
        **(extra or {}),
    }
    write_json_atomic(run / MANIFEST, fields)
    return fields


def update_manifest(run: Path, **fields: Any) -> dict[str, Any]:
    """Change some fields and return all; a final ``status`` also stamps ``ended``, ``running`` clears it."""
    manifest = read_manifest(run)
    status = fields.get("status")
    if status in ENDED:
        fields.setdefault("ended", now())
    elif status == "running":
        fields = {"ended": None, "reason": None, **fields, **identity()}
    manifest.update(fields)
    write_json_atomic(run / MANIFEST, manifest)
    return manifest


def read_manifest(run: Path) -> dict[str, Any]:
    """All fields of a run's manifest.

    Raises:
        UserError: the run has none, or it is damaged.
    """
    try:
        manifest = read_object(run / MANIFEST)
    except FileNotFoundError:
        raise UserError(
            f"{run} has no {MANIFEST}: it is not a run, or was killed before it started."
        ) from None
    except DamagedFileError as error:
        raise UserError(
            f"{error}. Was it edited by hand?" if str(error)[-1:] != "?" else str(error)
        ) from None
    for name, kinds in _KINDS.items():
        if not isinstance(manifest.get(name), (*kinds, NoneType)):
            raise UserError(
                f"{run / MANIFEST}: its '{name}' is {json_line(manifest[name])[:40]}, which no run writes. "
                "Was it edited by hand?"
            )
    return {"status": "unknown", **manifest}


def actual_status(manifest: Mapping[str, Any]) -> str:
    """The manifest's word, except that a run whose process is gone was killed, whatever it last wrote."""
    status = str(manifest.get("status") or "unknown")
    return "killed" if status == "running" and alive(manifest) is False else status


def now(timespec: str = "seconds") -> str:
    """The current time with its zone, to the second unless said otherwise."""
    return datetime.now().astimezone().isoformat(timespec=timespec)


def kind_of(run: Path) -> str | None:
    """The kind that a run's manifest names (``search``, ``advise`` …); None for training, or if damaged."""
    try:
        kind = read_manifest(run).get("kind")
    except UserError:
        return None
    return kind if isinstance(kind, str) else None
