"""Examples that are copies of one picture: each tells of the others, so they are left out together."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.evaluation.heads import unit

ROUNDING = 1e-5
"""How much features of the same picture may differ, relative to their length."""
COPY = 0.5
"""Two pictures of a class are copies if they are closer than this times the usual distance, see below."""
CHAIN = 0.6
"""A picture belongs to copies that were found if it is closer than this to one of them."""
CROPS = 0.75
"""The same where most pictures of a class are that close to another one, as chance hardly makes them."""


def copies_of(z: Tensor, y: Tensor, pictures: bool = False) -> Tensor:
    """For every example the place of the first one that is a copy of the same picture; else its own place.

    Rows that are equal are copies. So are pictures of one class whose features are closer than chance
    explains. What chance does is seen in pictures that are certainly different, those of different classes:
    the usual distance is the median, over examples, of that from the nearest example of another class.
    Photographs of one class are hardly ever half as far apart as that; crops of one photograph are. Small
    crops are farther apart, but there is hardly a class of photographs most of which have another one within
    0.6 of that distance.

    Args:
        z: features ``(n, d)``.
        y: their classes.
        pictures: whether these are features of a network that was trained on many classes of pictures. Others
            may hold the examples of a class together as closely as copies.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.7, 0.7], [0.0, 1.0], [0.0, 1.0]])
    >>> y = torch.tensor([0, 0, 0, 1, 1])
    >>> copies_of(z, y).tolist(), copies_of(z, y, pictures=True).tolist()
    ([0, 1, 2, 3, 3], [0, 0, 2, 3, 3])
    """
    z, first = z.double(), torch.arange(len(y))
    x, members = unit(z), [(y == c).nonzero().flatten() for c in y.unique()]
    usual = 0.0
    if pictures:
        others = [torch.cdist(x[rows], x[y != y[rows[0]]]).amin(1) for rows in members]
        usual = float(torch.cat(others).median())
    for rows in members:
        length = z[rows].norm(dim=1)
        same = _apart(z[rows]) <= ROUNDING * torch.maximum(length[:, None], length)
        apart = _apart(x[rows])
        close = int((apart < CHAIN * usual).fill_diagonal_(False).any(1).sum())
        pair, chain = (CHAIN, CROPS) if close > max(2, len(rows) / 2) else (COPY, CHAIN)
        linked = _first_linked(same | (apart < chain * usual))
        pairs = (same | (apart < pair * usual)).fill_diagonal_(False)
        found = torch.isin(linked, linked[pairs.any(1)])
        first[rows] = rows[torch.where(found, linked, torch.arange(len(rows)))]
    return first


def _apart(x: Tensor) -> Tensor:
    return torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")


def _first_linked(linked: Tensor) -> Tensor:
    """The first place that can be reached from each by links ``(n, n)``, which include those to itself."""
    first = torch.arange(len(linked))
    while True:
        lower = torch.where(linked, first, len(linked)).amin(1)
        if torch.equal(lower, first):
            return first
        first = lower


def groups_of(first: Tensor) -> list[list[int]]:
    """Copies of one picture together, by their places; pictures without copies are not there.

    >>> groups_of(torch.tensor([0, 1, 0, 3]))
    [[0, 2]]
    """
    counts = first.bincount()
    return [(first == place).nonzero().flatten().tolist() for place in (counts > 1).nonzero().flatten()]
