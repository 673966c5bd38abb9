"""A classifier in one ``.safetensors`` file: tensors in groups, and all else as JSON. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from innerloop.core.errors import UserError

FORMAT = "innerloop-few-shot-classifier-2"
OLDER = ("innerloop-few-shot-classifier-1",)  # labels as text

Groups = dict[str, dict[str, Tensor]]


def write_model(path: Path, groups: Mapping[str, Mapping[str, Tensor]], about: dict[str, Any]) -> Path:
    """Writes groups of tensors and ``about``; gives the path with its suffix."""
    from safetensors.torch import save_file

    path = path.with_suffix(".safetensors")
    tensors = {
        f"{group}/{name}": value.contiguous().clone()
        for group, members in groups.items()
        for name, value in members.items()
    }
    save_file(tensors, path, {"innerloop": json.dumps({"format": FORMAT, **about})})
    return path


def read_model(path: Path) -> tuple[dict[str, Any], Groups]:
    """What :func:`write_model` wrote.

    Raises:
        UserError: there is no such file, or it holds something else.
    """
    from safetensors import SafetensorError, safe_open

    path = path.with_suffix(".safetensors")
    groups: Groups = {}
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {}).get("innerloop", "{}"))
            for name in file.keys():  # noqa: SIM118
                group, _, member = name.partition("/")
                groups.setdefault(group, {})[member] = file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}.") from None
    if about.get("format") not in (FORMAT, *OLDER):
        raise UserError(f"{path} is not a saved FewShotClassifier.")
    return about, groups
