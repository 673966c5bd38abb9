"""Tasks from a table: rows with the same value in one column are a task (a patient, a shop, a sensor)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from innerloop.core.errors import UserError, did_you_mean
from innerloop.core.paths import user_path
from innerloop.core.random import derive_seed, hashed_uniform
from innerloop.core.types import TaskBatch
from innerloop.tasks.sampler import Sampler, task_order

SHARES = {"train": 0.6, "validation": 0.2, "test": 0.2}
"""Of the groups, where nobody says which belong where."""


class Table(NamedTuple):
    """Rows of numbers in groups.

    Attributes:
        x: inputs ``(n, d)``.
        y: targets ``(n, 1)``.
        group: of every row, its place in ``names``.
        names: of the groups, sorted.
        columns: of the inputs.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    group: NDArray[np.int64]
    names: tuple[str, ...]
    columns: tuple[str, ...]


def read_table(path: str | Path, group: str, target: str, inputs: Sequence[str] | None = None) -> Table:
    """A CSV file whose first line names its columns.

    Args:
        path: the file.
        group: the column whose values are the tasks.
        target: the column that is to be predicted.
        inputs: columns of numbers to predict it from; all others if omitted.

    Raises:
        UserError: with a line for every column that is not there and every cell that is no number.
    """
    path = user_path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot read the table {path}: {error}.") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise UserError(f"{path} has no rows below its first line, which names the columns.")
    header, body = [name.strip() for name in rows[0]], rows[1:]
    wanted = [name for name in header if name not in (group, target)] if inputs is None else list(inputs)
    problems = [
        f"{path} has no column '{name}'{did_you_mean(name, header)}; it has {', '.join(header)}."
        for name in (group, target, *wanted)
        if name not in header
    ]
    problems += [
        f"{path}, line {line}: {len(row)} cells under {len(header)} names."
        for line, row in enumerate(body, start=2)
        if len(row) != len(header)
    ]
    if problems:
        raise UserError("\n".join(problems[:20]))
    places = {name: header.index(name) for name in header}
    numbers = _numbers(path, body, {name: places[name] for name in (*wanted, target)})
    names, member = np.unique([row[places[group]].strip() for row in body], return_inverse=True)
    x = np.stack([numbers[name] for name in wanted], 1) if wanted else np.empty((len(body), 0))
    return Table(x, numbers[target][:, None], member, tuple(map(str, names)), tuple(wanted))


def _numbers(path: Path, body: list[list[str]], places: Mapping[str, int]) -> dict[str, NDArray[np.float64]]:
    columns, problems = {name: np.empty(len(body)) for name in places}, []
    for row, cells in enumerate(body):
        for name, place in places.items():
            try:
                columns[name][row] = float(cells[place])
            except ValueError:
                columns[name][row] = np.nan
            if not np.isfinite(columns[name][row]):
                problems.append(f"{path}, line {row + 2}: {name}={cells[place]!r} is not a number.")
    if problems:
        more = f"\nand {len(problems) - 10} more." if len(problems) > 10 else ""
        raise UserError("\n".join(problems[:10]) + more)
    return columns


def split_groups(
    table: Table, splits: Mapping[str, Sequence[str]] | None = None, seed: int = 0
) -> dict[str, list[int]]:
    """Which groups belong to which split; no group belongs to two."""
    if splits is None:
        order = np.argsort(hashed_uniform(derive_seed(seed, "groups"), np.arange(len(table.names)), 1)[:, 0])
        ends = np.round(np.cumsum([0.0, *SHARES.values()]) * len(order)).astype(int)
        return {name: sorted(order[a:b].tolist()) for name, a, b in zip(SHARES, ends, ends[1:], strict=False)}
    place, seen, problems = {name: i for i, name in enumerate(table.names)}, dict[str, str](), []
    for split, names in splits.items():
        for name in names:
            if name not in place:
                problems.append(f"there is no group '{name}'{did_you_mean(name, table.names)} for {split}.")
            elif name in seen:
                problems.append(f"group '{name}' is in {seen[name]} and in {split}: leave it in one of them.")
            seen.setdefault(name, split)
    if problems:
        raise UserError("\n".join(problems))
    return {split: sorted(place[name] for name in names) for split, names in splits.items()}


def table_sampler(
    table: Table,
    split: str = "train",
    *,
    shots: int,
    queries: int,
    splits: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    standardise: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Sampler:
    r"""Tasks of the groups of one split: some rows to learn from, others of the same group to be judged on.

    Args:
        table: the rows.
        split: which groups.
        shots: rows of a task to learn from.
        queries: rows to be judged on; a group needs both together.
        splits: names of groups by split; by chance if omitted (:func:`split_groups`).
        seed: of splits and episodes.
        standardise: inputs and target to mean 0 and deviation 1 *of the training groups*, so that nothing is
            known of others.
        dtype: of the tensors.

    Raises:
        UserError: a group has too few rows, or a split has no groups.

    >>> draw = np.random.default_rng(0)
    >>> x, y, member = draw.normal(size=(80, 2)), draw.normal(size=(80, 1)), np.repeat(np.arange(10), 8)
    >>> rows = Table(x, y, member, tuple("abcdefghij"), ("u", "v"))
    >>> tasks = table_sampler(rows, "train", shots=3, queries=5)
    >>> tasks.n_tasks, tasks.batch(0, 4).x_support.shape
    (6, torch.Size([4, 3, 2]))
    """
    parts = split_groups(table, splits, seed)
    if not parts.get(split):
        raise UserError(f"no group belongs to the split '{split}': there are {', '.join(parts)}.")
    rows = _rows_of(table, parts[split], shots + queries)
    x, y = _scaled(table, parts.get("train") or parts[split]) if standardise else (table.x, table.y)
    inputs, targets = (torch.from_numpy(values).to(dtype) for values in (x, y))
    stream, groups = derive_seed(seed, "table", split), np.array(parts[split])

    def episodes(indices: Sequence[int]) -> TaskBatch:
        """The episodes of these numbers, as one batch."""
        sample = np.asarray(indices, dtype=np.int64)
        shown = task_order(stream, len(rows), sample)
        chosen = np.stack(
            [_chosen(stream, int(i), rows[t], shots + queries) for i, t in zip(sample, shown, strict=True)]
        )
        support, query = chosen[:, :shots], chosen[:, shots:]
        ids = torch.from_numpy(groups[shown])
        return TaskBatch(inputs[support], targets[support], inputs[query], targets[query], ids)

    return Sampler(episodes, len(rows), "table")


def _chosen(stream: int, episode: int, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    keys = hashed_uniform(derive_seed(stream, "rows"), np.array([episode]), len(rows))[0]
    return rows[np.argsort(keys, kind="stable")[:count]]


def _rows_of(table: Table, groups: Sequence[int], needed: int) -> list[NDArray[np.int64]]:
    rows = [np.flatnonzero(table.group == group) for group in groups]
    small = [(table.names[g], len(mine)) for g, mine in zip(groups, rows, strict=True) if len(mine) < needed]
    if small:
        told = ", ".join(f"{name} ({count})" for name, count in small[:5])
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise UserError(
            f"{{shots}} and {{queries}} ask for {needed} rows of a group, and some have fewer, {told}{more}: "
            "lower them, or leave these groups out of splits.",
            names=("shots", "queries"),
        )
    return rows


def _scaled(table: Table, groups: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    known = np.isin(table.group, list(groups))
    scaled = []
    for values in (table.x, table.y):
        mean, std = values[known].mean(0), values[known].std(0)
        scaled.append((values - mean) / np.where(std > 0, std, 1.0))
    return scaled[0], scaled[1]
