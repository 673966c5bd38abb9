"""The table of learners as the tables of the documentation. Imports no torch.

``docs/taxonomy.md`` and ``docs/concepts.md`` hold what these functions give; a test says where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from innerloop.learners.entry import KINDS, Adapts, Entry, HeldBy
from innerloop.learners.table import LEARNERS

ADAPTS: dict[Adapts, str] = {
    "head": "last layer",
    "all": "all layers",
    "body": "all but the last layer",
    "nothing": "nothing",
}
HELD_BY: dict[HeldBy, str] = {
    "steps": "early stopping (τ steps)",
    "l2": "explicit ℓ₂ penalty",
    "nothing": "–",
}


def cells() -> str:
    """Bridge's Table 1: learners by what the inner problem adapts and by what keeps it from going too far."""

    def cell(adapts: Adapts, held_by: HeldBy) -> str:
        """The titles of the learners in one cell."""
        inside = [e.title for e in LEARNERS.values() if (e.adapts, e.held_by) == (adapts, held_by)]
        return ", ".join(inside) or "–"

    held: tuple[HeldBy, ...] = ("steps", "l2")
    moving: tuple[Adapts, ...] = ("head", "all", "body")
    rows = [[ADAPTS[adapts], *(cell(adapts, each) for each in held)] for adapts in moving]
    return _table(["inner loop adapts", *(HELD_BY[each] for each in held)], rows)


def learners() -> str:
    """Every learner by its name in ``inner.method``."""
    heading = ("`inner.method`", "learner", "inner loop adapts", "on the loss", "held back by")
    rows = [
        (
            f"`{name}`",
            entry.title,
            ADAPTS[entry.adapts],
            entry.inner_loss or ("`inner.loss`" if "loss" in entry.reads else "–"),
            HELD_BY[entry.held_by],
            _differentiated(entry),
            _settings(entry),
            entry.paper or "–",
        )
        for name, entry in LEARNERS.items()
    ]
    return _table([*heading, "differentiated", "own settings (`inner.settings`)", "paper"], rows)


def factories() -> str:
    """Every learner as it is made in Python."""
    rows = [(f"`{_call(entry)}`", _moves(entry), _rate(entry)) for entry in LEARNERS.values()]
    return _table(("learner", "what moves in the inner loop", "inner rate"), rows)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _differentiated(entry: Entry) -> str:
    if entry.differentiated == "through":
        return "through the steps" if "steps" in entry.reads else "through"
    return {
        "first order": "first order",
        "implicit": "implicitly",
        "envelope": "by its envelope (first order)",
        "nothing": "–",
    }[entry.differentiated]


def _settings(entry: Entry) -> str:
    told = [f"`{name}` ({KINDS[s.kind]}): {s.meaning}" for name, s in entry.settings.items()]
    return "; ".join(told) or "–"


def _call(entry: Entry) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in entry.fixed.items())
    return entry.factory.partition(":")[2] + (f"({arguments})" if arguments else "")


def _moves(entry: Entry) -> str:
    constant = "; inner gradients count as constants" if entry.differentiated == "first order" else ""
    return ADAPTS[entry.adapts] + constant


def _rate(entry: Entry) -> str:
    if "lr" not in entry.reads:
        return "–"
    return f"learned, {entry.learns_rates}" if entry.learns_rates else "fixed"
