"""The raw-pixel floor: cosine nearest neighbour on the pixels themselves, 5-way, 15 queries, test classes.

The reference numbers come without their number of episodes; 600, the field's habit, is assumed for them,
which gives them an interval. Eight numbers are compared at once, so each may lie 2.73 standard errors off:
by chance, one of the eight would then be refused one time in twenty. Quick Draw has no published split; its
classes are divided by name, as for any file of one's own.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from test_data_official import cifar_pixels

from innerloop.data import ImageSource, from_arrays, open_source
from innerloop.data.catalogue import catalogue, class_list

EPISODES, ASSUMED = 4000, 600  # ours, and the reference's
ERRORS = 2.73  # two-sided, 5 % over eight comparisons
QUERIES = 15
FLOOR = {
    "omniglot": (46.5, 70.7),
    "cifar-fs": (29.4, 35.8),
    "fc100": (27.9, 32.3),
    "quickdraw": (39.2, 52.3),
}


def nearest(source: ImageSource, shots: int, seed: int) -> NDArray[np.float64]:
    """Accuracy of every episode, in per cent."""
    random = np.random.default_rng(seed)
    classes = source.splits["test"]
    each = int(source.counts[classes[0]])
    assert (source.counts[classes] == each).all()
    rows = (source.starts[classes][:, None] + np.arange(each)).ravel()
    pixels = source.images[rows].reshape(len(rows), -1).astype(np.float32)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    answer, truth = np.repeat(np.arange(5), shots), np.repeat(np.arange(5), QUERIES)
    scores = np.empty(EPISODES)
    for episode in range(EPISODES):
        chosen = random.choice(len(classes), 5, replace=False)
        picked = np.argsort(random.random((5, each)), axis=1)[:, : shots + QUERIES] + each * chosen[:, None]
        support, query = pixels[picked[:, :shots].ravel()], pixels[picked[:, shots:].ravel()]
        scores[episode] = 100 * np.mean(answer[(query @ support.T).argmax(1)] == truth)
    return scores


def published(name: str, pixels: NDArray[np.uint8]) -> ImageSource:
    """A dataset of the catalogue from its pixels, which must be the catalogue's."""
    entry = catalogue()[name]
    classes = class_list(entry.class_list)
    numbers = np.repeat(np.arange(entry.classes), entry.images // entry.classes)
    splits = classes.splits[entry.split or ""]
    source = from_arrays(pixels, numbers, class_names=classes.names, splits=splits, name=name)
    assert source.content_sha256 == entry.content_sha256
    return source


def load(name: str, shared_data: Path) -> ImageSource:
    if name == "quickdraw":
        return open_source(shared_data / "quickdraw_28.npz")
    if name == "omniglot":
        return published(name, np.load(shared_data / "omniglot_28.npz")["images"].reshape(-1, 28, 28))
    return published(name, cifar_pixels(shared_data))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("cifar-fs", "fc100")]


@pytest.mark.parametrize("name", ["omniglot", "quickdraw", *SLOW])
def test_the_raw_pixel_floor(
    name: str, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNERLOOP_DATA", str(tmp_path))
    source = load(name, shared_data)
    for shots, reference in zip((1, 5), FLOOR[name], strict=True):
        scores = nearest(source, shots, seed=shots)
        error = scores.std(ddof=1) * math.sqrt(1 / EPISODES + 1 / ASSUMED)
        gap = scores.mean() - reference
        assert abs(gap) < ERRORS * error, f"{shots}-shot: {scores.mean():.1f} against {reference}"
