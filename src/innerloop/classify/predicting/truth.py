"""Labels against the names of the pictures' folders: ``innerloop predict --truth``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError
from innerloop.evaluation.sureness.expected import PAIRS, Confused, Share, share_of
from innerloop.evaluation.sureness.words import listed


class Truth(NamedTuple):
    """How many labels are right."""

    accuracy: Share
    unknown: int
    by_class: dict[str, Share]
    confused: list[Confused]
    other: dict[str, tuple[int, int]]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            **_plain(self.accuracy),
            "unknown": self.unknown,
            "by_class": {name: _plain(share) for name, share in self.by_class.items()},
            "confused": [pair._asdict() for pair in self.confused],
            "other": {name: {"pictures": n, "unknown": m} for name, (n, m) in self.other.items()},
        }


def _plain(share: Share) -> dict[str, Any]:
    return {"accuracy": share.value, "low": share.low, "high": share.high, "pictures": share.n}


def check_truth(files: Sequence[Path], names: Sequence[Any]) -> None:
    """Refuses pictures none of whose folders names a class."""
    folders = dict.fromkeys(file.absolute().parent.name for file in files)
    if not {str(name) for name in names} & set(folders):
        shown = ", ".join(f"'{name}'" for name in list(folders)[:3])
        raise UserError(
            f"--truth takes the name of a picture's folder for its class, and no folder here ({shown}) has "
            f"the name of one ({listed(names)}): sort the pictures into such folders, or leave --truth out."
        )


def truth_of(
    files: Sequence[Path], labels: Sequence[Any], unknown: Sequence[bool], names: Sequence[Any]
) -> Truth:
    """Compares labels with the names of the pictures' folders.

    >>> files = [Path("new/cat/1.jpg"), Path("new/cat/2.jpg"), Path("new/owl/3.jpg")]
    >>> told = truth_of(files, ["cat", "dog", "dog"], [False, False, True], ["cat", "dog"])
    >>> told.accuracy.value, told.unknown, told.confused[0].said, told.other
    (0.5, 0, 'dog', {'owl': (1, 1)})
    """
    classes = [str(name) for name in names]
    folders = [file.absolute().parent.name for file in files]
    known = [(true, str(said)) for true, said in zip(folders, labels, strict=True) if true in classes]
    count = Counter(true for true, _ in known)
    wrong = Counter(pair for pair in known if pair[0] != pair[1])
    shares = [Confused(*pair, n / count[pair[0]]) for pair, n in wrong.items()]
    others = [(name, far) for name, far in zip(folders, unknown, strict=True) if name not in classes]
    return Truth(
        share_of([float(true == said) for true, said in known]),
        sum(unknown) - sum(far for _, far in others),
        {c: share_of([float(c == said) for true, said in known if true == c]) for c in classes if count[c]},
        sorted(shares, key=lambda pair: -pair.share)[:PAIRS],
        {
            name: (sum(name == one for one, _ in others), sum(far for one, far in others if one == name))
            for name in dict.fromkeys(name for name, _ in others)
        },
    )
