"""Published accuracies beside those of the recipes that are to reach them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from innerloop_studies.recorded import duration, read, table
from innerloop_studies.recorded.scores import one_score

CLOSE = 1.0
"""Points below the published accuracy that still count as reached."""


class Published(NamedTuple):
    """An accuracy of a paper in per cent, with its interval; 0 where none is stated."""

    tasks: str
    accuracy: float
    ci95: float = 0.0


PUBLISHED: dict[str, tuple[str, dict[str, Published]]] = {
    "omniglot-protonet-published": (
        "Omniglot: ProtoNet, Conv4-64",
        {"": Published("5-way 1-shot", 98.8), "20-way": Published("20-way 1-shot", 96.0)},
    ),
    "omniglot-protonet-published-5shot": (
        "Omniglot: ProtoNet, Conv4-64",
        {"": Published("5-way 5-shot", 99.7), "20-way": Published("20-way 5-shot", 98.9)},
    ),
    "omniglot-maml-published": ("Omniglot: MAML, Conv4-64", {"": Published("5-way 1-shot", 98.7, 0.4)}),
    "omniglot-maml-published-5shot": ("Omniglot: MAML, Conv4-64", {"": Published("5-way 5-shot", 99.9, 0.1)}),
    "cifar-fs-protonet-published": (
        "CIFAR-FS: ProtoNet, Conv4-64",
        {"": Published("5-way 1-shot", 55.5, 0.7)},
    ),
    "cifar-fs-protonet-published-5shot": (
        "CIFAR-FS: ProtoNet, Conv4-64",
        {"": Published("5-way 5-shot", 72.0, 0.6)},
    ),
    "cifar-fs-maml-published": ("CIFAR-FS: MAML, Conv4-32", {"": Published("5-way 1-shot", 58.9, 1.9)}),
    "cifar-fs-maml-published-5shot": ("CIFAR-FS: MAML, Conv4-32", {"": Published("5-way 5-shot", 71.5, 1.0)}),
    "cifar-fs-r2d2-published": (
        "CIFAR-FS: R2D2, its own network",
        {"1-shot": Published("5-way 1-shot", 65.3, 0.2), "": Published("5-way 5-shot", 79.4, 0.1)},
    ),
    "cifar-fs-supervised-published": (
        "CIFAR-FS: RFS, ResNet-12",
        {"1-shot": Published("5-way 1-shot", 71.5, 0.8), "": Published("5-way 5-shot", 86.0, 0.5)},
    ),
    "mini-imagenet-protonet-published": (
        "mini-ImageNet: ProtoNet, Conv4-64",
        {"": Published("5-way 1-shot", 49.42, 0.78)},
    ),
    "mini-imagenet-protonet-published-5shot": (
        "mini-ImageNet: ProtoNet, Conv4-64",
        {"": Published("5-way 5-shot", 68.20, 0.66)},
    ),
    "mini-imagenet-supervised-published": (
        "mini-ImageNet: RFS beside Baseline++, Conv4-64",
        {"1-shot": Published("5-way 1-shot", 48.2, 0.8), "": Published("5-way 5-shot", 66.4, 0.6)},
    ),
}
"""By evaluation: what is trained, and its accuracies, by further evaluation where it is one."""


def published() -> str:
    """A line for every published accuracy: ours, whether it is reached, and what it cost."""
    lines: list[Sequence[str]] = []
    for what, paper, file, found in _found():
        said = f"{paper.accuracy:g}{f' ± {paper.ci95:g}' * bool(paper.ci95)} %"
        told = ("not run", "", "")
        if found:
            cost = ", ".join(duration(run["seconds"]) for run in file["runs"] if run["seconds"])
            told = (f"**{one_score(found)}**", "yes" if is_reached(paper, found["mean"]) else "no", cost)
        lines.append((what, paper.tasks, said, *told))
    return table(("data: method, network", "tasks", "published", "ours", "reached", "trained for"), lines)


def reached() -> str:
    """How many of them are reached, for a line of text."""
    verdicts = [bool(found) and is_reached(paper, found["mean"]) for _, paper, _, found in _found()]
    return f"{sum(verdicts)} of {len(verdicts)}"


def is_reached(paper: Published, mean: float) -> bool:
    """Whether an accuracy lies within the published interval, above it, or less than a point below."""
    return 100 * mean > paper.accuracy - max(CLOSE, paper.ci95)


def _found() -> Iterator[tuple[str, Published, dict[str, Any], dict[str, Any]]]:
    """Every published accuracy, the file of its evaluation, and ours; both empty where it was not run."""
    for name, (what, numbers) in PUBLISHED.items():
        file = read("evaluations", name) or {}
        for which, paper in numbers.items():
            yield what, paper, file, (file["also"][which] if which else file["runs"][0]) if file else {}
