"""Tasks from a table: groups stay apart, episodes are addressable, and mistakes are told at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from innerloop.core.errors import UserError
from innerloop.tasks.table import Table, read_table, split_groups, table_sampler
from innerloop.testing import check_tasks


def written(path: Path, groups: int = 10, each: int = 9) -> Path:
    """y = a_g u + b_g with one line per group; the number of a row is its second input."""
    draw, lines = np.random.default_rng(0), ["who,u,row,y"]
    for g in range(groups):
        a, b = draw.normal(size=2)
        for _ in range(each):
            u = draw.normal()
            lines.append(f"g{g},{u},{len(lines) - 1},{a * u + b}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "t.csv"), "who", "y")
    assert (table.x.shape, table.y.shape, table.columns) == ((90, 2), (90, 1), ("u", "row"))
    assert table.x[:, 1].tolist() == list(range(90))
    assert [table.names[g] for g in table.group[::9]] == [f"g{g}" for g in range(10)]
    assert read_table(tmp_path / "t.csv", "who", "y", ["u"]).columns == ("u",)


def test_no_row_of_a_test_group_is_seen_in_training(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "t.csv"), "who", "y")
    seen = {}
    for split in ("train", "validation", "test"):
        tasks = table_sampler(table, split, shots=3, queries=4, standardise=False)
        batch = tasks.batch(0, 40)
        rows = torch.cat([batch.x_support, batch.x_query], 1)[..., 1].long()
        assert all(len(set(task.tolist())) == 7 for task in rows)  # no row is in support and query
        groups = table.group[rows.numpy()]
        assert (groups == groups[:, :1]).all()  # all of one group, which the id names
        assert batch.id.tolist() == groups[:, 0].tolist()
        seen[split] = set(groups[:, 0].tolist())
    assert [len(groups) for groups in seen.values()] == [6, 2, 2]
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]


def test_episodes_are_addressable(tmp_path: Path) -> None:
    check_tasks(table_sampler(read_table(written(tmp_path / "t.csv"), "who", "y"), shots=3, queries=4))


def test_only_training_groups_decide_the_scale(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "t.csv"), "who", "y", ["u"])
    splits = {"train": ["g0", "g1", "g2"], "test": ["g9"]}
    batch = table_sampler(table, "test", shots=4, queries=5, splits=splits, dtype=torch.float64).batch(0, 1)
    known, mine = table.group < 3, table.group == 9
    for values, served in (
        (table.x, torch.cat([batch.x_support, batch.x_query], 1)),
        (table.y, torch.cat([batch.y_support, batch.y_query], 1)),
    ):
        scaled = (values[mine] - values[known].mean(0)) / values[known].std(0)
        assert sorted(served.flatten().tolist()) == pytest.approx(sorted(scaled.flatten().tolist()))


def test_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = written(tmp_path / "t.csv")
    with pytest.raises(UserError) as told:
        read_table(file, "wo", "yy", ["v"])
    assert len(str(told.value).splitlines()) == 3
    assert "did you mean 'who'" in str(told.value)
    text = file.read_text(encoding="utf-8").splitlines()
    (tmp_path / "bad.csv").write_text("\n".join([text[0], "g0,1,2,", "g0,nan,1,2", "g0,1"]), encoding="utf-8")
    with pytest.raises(UserError, match="line 4: 2 cells under 4 names"):
        read_table(tmp_path / "bad.csv", "who", "y")
    (tmp_path / "bad.csv").write_text("\n".join([text[0], "g0,1,2,", "g0,nan,1,2"]), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: y='' is not a number\.\n.*line 3: u='nan' is not a number"):
        read_table(tmp_path / "bad.csv", "who", "y")
    for content in ("who,u,row,y\n", "\xff\xfe"):
        (tmp_path / "bad.csv").write_bytes(content.encode("latin-1"))
        with pytest.raises(UserError, match=r"bad\.csv"):
            read_table(tmp_path / "bad.csv", "who", "y")


def test_groups_that_are_not_apart_or_too_small_are_refused() -> None:
    table = Table(np.zeros((7, 1)), np.zeros((7, 1)), np.array([0, 0, 0, 0, 1, 1, 1]), ("a", "b"), ("x",))
    with pytest.raises(UserError, match="group 'a' is in train and in test"):
        split_groups(table, {"train": ["a"], "test": ["a", "b"]})
    with pytest.raises(UserError, match="no group 'c'"):
        split_groups(table, {"train": ["c"]})
    with pytest.raises(UserError, match=r"shots and queries ask for 4 rows .* b \(3\)"):
        table_sampler(table, "test", shots=2, queries=2, splits={"train": ["a"], "test": ["b"]})
    with pytest.raises(UserError, match="no group belongs to the split 'validation'"):
        table_sampler(table, "validation", shots=1, queries=1, splits={"train": ["a"]})
