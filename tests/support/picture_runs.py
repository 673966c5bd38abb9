"""Noise in folders, backbones of random weights, and short runs on pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from innerloop.classify import Backbone, open_backbone
from innerloop.core.preprocessing import Preprocessing
from innerloop.experiment import pictures, run_data
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.training import train
from innerloop.nets.convolutional import conv4

SHORT: dict[str, Any] = {
    "tasks": {"family": "few-shot", "ways": 5, "shots": 1, "queries": 3},
    "model": {"kind": "conv4", "filters": 4, "norm": "group"},
    "inner": {"method": "protonet", "loss": "cross-entropy"},
    "outer": {"steps": 2, "batch": 2},
    "eval": {"episodes": 4, "validation_episodes": 2},
    "run": {"execution": "loop", "compile": "off", "threads": 1},
}
"""Two steps of the smallest learner on few-shot tasks of pictures."""


def short_run(folder: Path, *layers: Mapping[str, Any]) -> Path:
    """Trains :data:`SHORT` with further settings, of which later ones win; gives the run directory."""
    settings: dict[str, Any] = {**SHORT, "run": {**SHORT["run"], "folder": str(folder)}}
    for layer in layers:
        for name, given in layer.items():
            settings[name] = {**settings.get(name, {}), **given} if isinstance(given, Mapping) else given
    return train(make_recipe(settings), progress=False).run


def run_on_folder(folder: Path, ways: int, **sections: Any) -> Path:
    """A short run on the class folders of ``folder``, kept beside it."""
    base = {
        "name": folder.name,
        "data": {"name": str(folder), "standardise": True},
        "tasks": {"ways": ways, "queries": 2},
        "model": {"filters": 2},
        "eval": {"episodes": 8},
    }
    return short_run(folder.parent / "runs", base, sections)


def draw_noise(folder: Path, name: str, count: int = 6, side: int = 16) -> None:
    """A class folder of grey noise, other noise for every name."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(name.encode()[:4], "little")
    for i in range(count):
        noise = np.random.default_rng([seed, i]).integers(0, 255, (side, side), dtype=np.uint8)
        Image.fromarray(noise).save(folder / name / f"{i}.png")


def draw_splits(folder: Path, sizes: Sequence[tuple[int, int]]) -> Path:
    """Colour noise in ``train``, ``val`` and ``test``, two classes each, with pictures of these sizes."""
    draw = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        for name in ("a", "b"):
            place = folder / split / f"{split}-{name}"
            place.mkdir(parents=True)
            for i, size in enumerate(sizes):
                values = draw.integers(0, 256, (*size, 3), dtype=np.uint8)
                Image.fromarray(values).save(place / f"{i}.png")
    return folder


def forget_pictures() -> None:
    """As in a new process, pictures are looked at again."""
    for cached in (pictures._opened, pictures.plain_source, pictures._source, run_data.test_digest):
        cached.cache_clear()


def random_backbone(folder: Path, how: Preprocessing, channels: int = 1, filters: int = 8) -> Backbone:
    """A Conv4 of random weights, as if somebody had trained it; the weights are a file in ``folder``."""
    net = conv4(channels, 28, 4, filters=filters, norm="running")
    params, buffers = net.init(torch.Generator().manual_seed(0))
    save_file({**params, **buffers}, folder / "weights.safetensors")
    return open_backbone(
        "conv4", weights=folder / "weights.safetensors", preprocessing=how, settings={"filters": filters}
    )
