"""Embedded pictures: handwriting-like alphabets drawn by our own strokes, so that nothing need be downloaded.

An *alphabet* puts a few strokes of its own together on a common grid; its characters share strokes, so they
are harder to tell apart than those of different alphabets, as in Omniglot. A *drawing* wobbles the strokes.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innerloop.data.source import ImageSource

ALPHABETS, CHARACTERS, DRAWINGS, SIZE = 30, 20, 20, 28
TRAIN_ALPHABETS, VALIDATION_ALPHABETS = 20, 4
POINTS = 48  # points along a stroke: closer than a pixel
_VOCABULARY = 7  # strokes an alphabet is made of
_BLOCK = 400  # drawings at a time: what they need then stays in the cache
_GRID = np.array([(x, y) for y in (0.3, 0.5, 0.7) for x in (0.33, 0.5, 0.67)])  # where strokes are centred


class Alphabet(NamedTuple):
    """Control points of its strokes around their centre, ``(strokes, 4, 2)``, and where it puts them."""

    strokes: NDArray[np.float64]
    stems: NDArray[np.float64]
    places: NDArray[np.float64]


def _alphabet(random: np.random.Generator) -> Alphabet:
    slant, roundness = random.uniform(-0.5, 0.5), random.uniform(0.1, 0.6)
    angle = random.uniform(0, np.pi, _VOCABULARY) + slant
    length = random.uniform(0.25, 0.55, _VOCABULARY)
    along = np.stack([np.cos(angle), np.sin(angle)], -1) * length[:, None]
    across = np.stack([-along[:, 1], along[:, 0]], -1)
    bend = random.uniform(-1, 1, (_VOCABULARY, 2, 1)) * roundness * 2
    ends = np.stack([-along / 2, -along / 6, along / 6, along / 2], 1)
    ends[:, 1:3] += bend * across[:, None]
    places = _GRID[random.choice(len(_GRID), 6, replace=False)]
    return Alphabet(ends, places[:2], places[2:])


def _character(alphabet: Alphabet, random: np.random.Generator) -> NDArray[np.float64]:
    """Control points of three strokes, ``(3, 4, 2)``: one of the alphabet's two stems, and two more."""
    stem = random.integers(2)
    others = 2 + random.choice(len(alphabet.strokes) - 2, 2, replace=False)
    where = alphabet.places[random.choice(len(alphabet.places), 2, replace=False)]
    centres = np.concatenate([alphabet.stems[stem][None], where])
    return alphabet.strokes[[stem, *others]] + centres[:, None]


def _bezier(control: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points along cubic curves: ``(…, 4, 2) -> (…, POINTS, 2)``."""
    t = np.linspace(0, 1, POINTS)[:, None]
    basis = np.concatenate([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
    return np.moveaxis(np.tensordot(control, basis, axes=([-2], [1])), -1, -2)


class Motion(NamedTuple):
    """How whole drawings are turned, sheared, scaled and shifted: a row for each."""

    turn: NDArray[np.float64]
    shear: NDArray[np.float64]
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]


def _wobble(
    characters: NDArray[np.float64], random: np.random.Generator
) -> tuple[NDArray[np.float64], Motion]:
    """Drawings of every character: ``(n, 3, 4, 2) -> (n·DRAWINGS, 3·POINTS, 2)``, and how each is moved."""
    n = len(characters)
    control = np.repeat(characters[:, None], DRAWINGS, 1)
    control = control + random.uniform(-0.06, 0.06, control.shape)
    control = control + random.uniform(-0.05, 0.05, (n, DRAWINGS, 3, 1, 2))
    turn = random.uniform(-0.3, 0.3, n * DRAWINGS)
    shear = random.uniform(-0.3, 0.3, n * DRAWINGS)
    scale = random.uniform(0.75, 1.2, (n * DRAWINGS, 2))
    shift = random.uniform(-0.1, 0.1, (n * DRAWINGS, 2)) + 0.5
    return _bezier(control).reshape(n * DRAWINGS, -1, 2), Motion(turn, shear, scale, shift)


def _moved(points: NDArray[np.float64], motion: Motion) -> NDArray[np.float64]:
    """Points of drawings after the motion of each."""
    turn, shear, scale, shift = (part[:, None] for part in motion)
    cos, sin = np.cos(turn), np.sin(turn)
    x, y = (points[..., axis] - 0.5 for axis in (0, 1))
    x, y = x * scale[..., 0], y * scale[..., 1]
    turned = cos * x + (shear - sin) * y + shift[..., 0], sin * x + cos * y + shift[..., 1]
    return np.stack(turned, -1)


def _rasterise(points: NDArray[np.float64], size: int) -> NDArray[np.uint8]:
    """Ink on paper: ``(n, points, 2) -> (n, size, size)``, 255 where there is ink."""
    n = len(points)
    ink = np.zeros(n * size * size)
    at = np.clip(points * (size - 1), 1, size - 2.001)  # a free margin: the blur below wraps around
    low = at.astype(np.int64)
    part = at - low
    first = np.arange(n)[:, None] * size * size
    for dx in (0, 1):
        for dy in (0, 1):
            weight = np.abs(1 - dx - part[..., 0]) * np.abs(1 - dy - part[..., 1])
            place = first + (low[..., 1] + dy) * size + low[..., 0] + dx
            ink += np.bincount(place.ravel(), weight.ravel(), minlength=ink.size)
    picture = np.minimum(ink.reshape(n, size, size), 1.0)
    for axis in (1, 2):  # a pen has a width
        picture = 0.5 * picture + 0.25 * (np.roll(picture, 1, axis) + np.roll(picture, -1, axis))
    return np.clip(np.round(picture * 2.2 * 255), 0, 255).astype(np.uint8)


@cache
def glyphs(seed: int = 0, size: int = SIZE) -> ImageSource:
    """30 alphabets × 20 characters × 20 drawings, ink 255 on paper 0; the same for the same seed.

    Alphabets are split 20 / 4 / 6 into train, validation and test; they are the groups of the source.

    >>> source = glyphs()
    >>> source.images.shape, len(source.class_names), len(source.group_names)
    ((12000, 28, 28, 1), 600, 30)
    """
    random = np.random.Generator(np.random.PCG64(seed))
    characters = []
    for _ in range(ALPHABETS):
        alphabet = _alphabet(random)
        characters += [_character(alphabet, random) for _ in range(CHARACTERS)]
    points, motion = _wobble(np.stack(characters), random)
    blocks = [slice(first, first + _BLOCK) for first in range(0, len(points), _BLOCK)]
    drawn = [
        _rasterise(_moved(points[some], Motion(*(part[some] for part in motion))), size) for some in blocks
    ]
    images = np.concatenate(drawn)[..., None]
    images.setflags(write=False)
    groups = np.repeat(np.arange(ALPHABETS), CHARACTERS)
    limits = (0, TRAIN_ALPHABETS, TRAIN_ALPHABETS + VALIDATION_ALPHABETS, ALPHABETS)
    splits = {
        name: np.flatnonzero((groups >= limits[i]) & (groups < limits[i + 1]))
        for i, name in enumerate(("train", "validation", "test"))
    }
    return ImageSource(
        name="glyphs",
        images=images,
        starts=np.arange(ALPHABETS * CHARACTERS + 1) * DRAWINGS,
        class_names=tuple(
            f"alphabet{g:02d}/character{c:02d}" for g in range(ALPHABETS) for c in range(CHARACTERS)
        ),
        splits=splits,
        groups=groups,
        group_names=tuple(f"alphabet{g:02d}" for g in range(ALPHABETS)),
        files=_file_name,
        content_sha256=hashlib.sha256(images.tobytes()).hexdigest(),
    )


def _file_name(row: int) -> str:
    character, drawing = divmod(row, DRAWINGS)
    alphabet, letter = divmod(character, CHARACTERS)
    return f"alphabet{alphabet:02d}/character{letter:02d}/{drawing:02d}"
