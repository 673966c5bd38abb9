"""Which tasks were drawn and judged, as a value: two of them are equal if the episodes are the same.

Imports no torch, so that pages and tables can be made from files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

FEW_SHOT = "few-shot"
"""The family of all tasks that are drawn from pictures, however the network was trained."""

_ABSENT = object()


@dataclass(frozen=True)
class TaskKind:
    """One kind of task."""

    shots: int
    queries: int
    ways: int | None = None
    choice: str = "any"
    groups: tuple[str, ...] = ()
    share: float = 1.0

    @property
    def grouped(self) -> bool:
        """Whether it matters which class is in which group."""
        return self.choice != "any" or bool(self.groups)


@dataclass(frozen=True)
class Episodes:
    """Everything that decides which tasks are drawn and judged, and nothing else.

    How a network was trained and how it is used on a task (method, head, inner steps, norm policy) are no
    part of it. Neither is how samples are shown to a network: the size and colour that pictures are converted
    to, standardisation, floating point type, device. Runs that differ in those see the same tasks, and their
    scores are compared task by task. Pictures are the same wherever they lie on disk. A family of one's own
    is known by its name: whether its code has changed is not seen.

    Shares count relative to each other, settings are in order of their names, and one shot per class leaves
    nothing to be balanced, so that values which draw the same tasks are equal.

    Attributes:
        family: of tasks; ``few-shot`` for all that are drawn from pictures.
        kinds: of tasks, in order; several for a mixture.
        count: how many are judged, from episode 0 on.
        seed: of their stream.
        split: ``test`` or ``validation``.
        pictures: stands for the classes and pictures of the split; None without pictures.
        grouping: stands for which class is in which group, where a kind draws by groups.
        rotations: whether turned pictures are classes of their own.
        balanced: whether classes have equally many shots.
        noise: standard deviation of noise on the targets.
        settings: the family's, with its defaults filled in.

    >>> a = Episodes("sine", (TaskKind(10, 10),), count=600, seed=0)
    >>> a == Episodes.from_dict(a.as_dict()), a == replace(a, seed=1)
    (True, False)
    """

    family: str
    kinds: tuple[TaskKind, ...]
    count: int
    seed: int
    split: str = "test"
    pictures: str | None = None
    grouping: str | None = None
    rotations: bool = False
    balanced: bool = True
    noise: float = 0.0
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Gives every set of episodes one form."""
        unit = self.kinds[0].share
        # by the first one, whose own is then exactly 1: doing it again changes nothing
        kinds = tuple(
            replace(kind, share=kind.share / unit, groups=tuple(kind.groups)) for kind in self.kinds
        )
        settings = tuple(sorted((str(name), _plain(value)) for name, value in self.settings))
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "balanced", self.balanced or all(kind.shots == 1 for kind in kinds))

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {**asdict(self), "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Episodes:
        """From :meth:`as_dict`, also after a round trip through JSON.

        Raises:
            ValueError: these are no episodes, or those of a later version.
        """
        try:
            kinds = tuple(TaskKind(**kind) for kind in told["kinds"])
            return cls(**{**told, "kinds": kinds, "settings": tuple(told["settings"].items())})
        except (TypeError, KeyError, IndexError, AttributeError, ZeroDivisionError) as error:
            raise ValueError(f"this does not describe episodes: {error}") from None


def differences(first: Episodes, second: Episodes) -> list[str]:
    """What is not the same, in words; empty if they are equal."""
    words = []
    if first.family != second.family:
        words.append(_both("tasks", first.family, second.family))
    words += _of_kinds(first.kinds, second.kinds)
    if first.pictures != second.pictures:
        words.append(f"{second.split} classes or their pictures")
    elif first.grouping != second.grouping and not words:
        words.append("classes in other groups")
    for name in ("count", "seed", "split", "rotations", "balanced", "noise"):
        a, b = getattr(first, name), getattr(second, name)
        if a != b:
            words.append(_both("number of tasks" if name == "count" else name, a, b))
    ours, theirs = dict(first.settings), dict(second.settings)
    if first.family == second.family:  # else the settings are those of other tasks
        names = [n for n in sorted({**ours, **theirs}) if ours.get(n, _ABSENT) != theirs.get(n, _ABSENT)]
        words += [_both(f"settings.{name}", ours.get(name), theirs.get(name)) for name in names]
    return words


def drawn_episodes(evaluation: Mapping[str, Any]) -> Episodes | None:
    """The episodes that an evaluation's file says it saw; None where the file is damaged."""
    try:
        return Episodes.from_dict(evaluation["drawn"])
    except (KeyError, TypeError, ValueError):
        return None


def other_episodes(
    first: Episodes | None, second: Episodes | None, names: tuple[str, str] = ("the first", "the second")
) -> str:
    """Why two evaluations cannot be compared task by task; empty if they saw the same episodes."""
    for each, name in zip((first, second), names, strict=True):
        if each is None:
            return (
                f"the evaluation of {name} does not say which episodes it saw: "
                "`innerloop eval RUN` judges it again"
            )
    assert first is not None
    assert second is not None
    if first == second:
        return ""
    return f"other episodes ({', '.join(differences(first, second))})"


def _of_kinds(first: Sequence[TaskKind], second: Sequence[TaskKind]) -> list[str]:
    if len(first) != len(second):
        return [_both("kinds of tasks", len(first), len(second))]
    words = []
    for place, (a, b) in enumerate(zip(first, second, strict=True)):
        of = f"mixture[{place}]." if len(first) > 1 else ""
        names = [field.name for field in fields(TaskKind) if getattr(a, field.name) != getattr(b, field.name)]
        words += [_both(of + name, getattr(a, name), getattr(b, name)) for name in names]
    return words


def _both(name: str, first: Any, second: Any) -> str:
    return f"{name} {_word(first)} and {_word(second)}"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_word, value))}]"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """A setting as JSON keeps it, with tuples for lists, so that it can be compared and never changes."""
    if isinstance(value, Mapping):
        return tuple((str(key), _plain(inner)) for key, inner in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(_plain(inner) for inner in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(getattr(value, "__qualname__", value))  # a default such as a function: known by its name
