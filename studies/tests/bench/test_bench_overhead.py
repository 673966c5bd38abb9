"""The benchmark of whole runs: it reads what a run says of its own time, and makes runs long enough."""

from __future__ import annotations

from typing import Any

import pytest

from innerloop_studies.bench import overhead

TINY = ("sine-maml", "outer.steps=20", "outer.batch=2", "eval.episodes=2", "eval.validation_episodes=2")


@pytest.mark.slow  # a process that imports torch
def test_the_parts_of_a_run_make_the_whole(tmp_path: Any) -> None:
    told = overhead.one_run([*TINY, "run.compile=off", f"run.folder={tmp_path}"], None)
    parts = ("start", "plan", "training", "validation", "checkpoints", "logging", "test", "end")
    assert all(told[part] > 0 for part in parts)
    assert sum(told[part] for part in parts) == pytest.approx(told["total"])
    assert told["first_step"] == told["start"] + told["plan"]
    assert told["steps"] == 20


def test_a_run_is_made_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred steps in a second; longer runs are compiled, first in ten seconds, to twice that speed."""
    asked: list[int] = []

    def one_run(words: list[str], environment: Any) -> dict[str, Any]:
        steps = int(next(word for word in words if word.startswith("outer.steps=")).partition("=")[2])
        asked.append(steps)
        fixed = {
            "start": 3.0,
            "checkpoints": 1.0,
            "logging": 0.5,
            "validation": 20.0,
            "test": 5.0,
            "end": 0.5,
        }
        fixed["plan"] = {1: 1.0, 2: 10.0, 3: 4.0}[len(asked)]
        training = steps / (200 if len(asked) == 1 else 400)
        total = training + sum(fixed.values())
        return {
            **fixed,
            "training": training,
            "total": total,
            "first_step": 3.0 + fixed["plan"],
            "steps": steps,
            "way": "vmap",
        }

    monkeypatch.setattr(overhead, "one_run", one_run)
    whole, first = overhead.rows_of("case", ("recipe",), 300.0, lambda _: None)
    assert asked == [200, 60_000, 120_000]
    # what the recipe asks for besides, validation and the test, counts on neither side
    assert (whole["ours_ms"], whole["peer_ms"]) == (309_000, 300_000)
    assert whole["ratio"] == pytest.approx(300 / 309)
    assert whole["at_least"] == 0.95
    assert "plan with compiling 10 s" in whole["notes"]
    assert "validation 20 s and the test 5 s" in whole["notes"]
    assert first["ours_ms"] == 7_000
