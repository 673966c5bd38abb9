"""Heads under many settings in one pass, and the mean of their probabilities: against a loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.data.glyphs import glyphs
from innerloop.evaluation import Protocol, evaluate_features
from innerloop.evaluation.grid import GridPoint, fit_grid, grid_of, judge_grid
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.testing.closeness import ROUNDED, SOLVED, SOLVED_ROUGHLY
from oracles.frozen_loop import estimator
from oracles.head_grid import grid_by_hand

GRID = (0.1, 1.0, 30.0)


def problems(episodes: int = 5, ways: int = 3) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    means = torch.randn(episodes, ways, 1, 6, generator=draw, dtype=torch.float64)

    def rows(n: int) -> torch.Tensor:
        noise = torch.randn(episodes, ways, n, 6, generator=draw, dtype=torch.float64)
        return (means + 1.5 * noise).flatten(1, 2)

    labels = [torch.arange(ways).repeat_interleave(n).expand(episodes, -1) for n in (3, 8)]
    return rows(3), labels[0], rows(8), labels[1]


@pytest.mark.parametrize("head", ["logistic", "ridge", "svm", "centroid"])
def test_all_settings_are_those_of_a_loop(head: str) -> None:
    z, y, q, truth = problems()
    settings = grid_of(Protocol(head=head, grid=GRID))
    assert len(settings) == (2 if head == "centroid" else 6)
    grid = judge_grid(z, y, q, truth, 3, head, settings)
    table, ensemble = grid_by_hand(z, y, q, truth, head, settings)
    np.testing.assert_allclose(grid.accuracy.numpy(), table, atol=ROUNDED)
    np.testing.assert_allclose(grid.ensemble.numpy(), ensemble, atol=ROUNDED)
    assert grid.unconverged == 0
    assert grid.accuracy.unique().numel() > 2


def test_stacked_problems_have_the_weights_of_single_ones() -> None:
    z, y, *_ = problems()
    settings = [GridPoint(0.2, False), GridPoint(50.0, False)]
    for (C, _), fitted in zip(settings, fit_grid(z, y, 3, "logistic", settings), strict=True):
        for weights, bias, x, labels in zip(fitted.weights, fitted.bias, z, y, strict=True):
            alone = estimator("logistic", C).fit(x.numpy(), labels.numpy())
            np.testing.assert_allclose(weights.numpy(), alone.coef_, rtol=SOLVED_ROUGHLY, atol=SOLVED)
            shift = alone.intercept_ - alone.intercept_.mean()
            np.testing.assert_allclose((bias - bias.mean()).numpy(), shift, rtol=SOLVED_ROUGHLY, atol=SOLVED)


def pixels(rows: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(glyphs().images[rows].reshape(len(rows), -1) / 255.0)


def test_the_score_is_that_of_the_own_setting_or_of_the_ensemble() -> None:
    plain = Protocol(ways=3, shots=2, queries=4, episodes=7, C=1.0)
    own = evaluate_features(pixels, glyphs(), plain)
    beside = evaluate_features(pixels, glyphs(), plain._replace(grid=GRID))
    mean = evaluate_features(pixels, glyphs(), plain._replace(grid=GRID, ensemble=True))
    assert own.scores == beside.scores
    assert own.grid == ()
    assert [(row.C, row.normalise) for row in beside.grid] == [
        *grid_of(plain._replace(grid=GRID)),
        (None, None),
    ]
    assert beside.grid[1].accuracy == own.interval  # C=1, unit length
    assert mean.interval == mean.grid[-1].accuracy == beside.grid[-1].accuracy
    one = plain._replace(C=1.0, grid=(1.0,), head="cosine")
    assert evaluate_features(pixels, glyphs(), one).grid[0].accuracy.n == 7


def test_wrong_grids_are_told() -> None:
    with pytest.raises(UserError, match="give some"):
        evaluate_features(pixels, glyphs(), Protocol(ensemble=True))
    with pytest.raises(UserError, match="must be positive"):
        evaluate_features(pixels, glyphs(), Protocol(grid=(0.0,)))
    with pytest.raises(UserError, match=r"eval\.C_grid needs numbers above 0"):
        make_recipe({"tasks": {"family": "few-shot"}, "eval": {"head": "logistic"}}, ["eval.C_grid=[1, -1]"])


def test_the_command_tells_all_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [
        *("data.name=glyphs", "model.filters=2", "outer.steps=1", "outer.batch=1", "tasks.ways=3"),
        *(
            "tasks.queries=2",
            "eval.episodes=4",
            "eval.validation_episodes=2",
            "eval.ways=3",
            "eval.queries=2",
        ),
        *("eval.head=ridge", "eval.baselines=false", "run.execution=loop", "run.threads=1"),
    ]
    assert main(["train", "omniglot-protonet", *settings, f"run.folder={tmp_path}"]) == 0
    (run,) = (path.parent for path in tmp_path.glob("*/*/recipe.toml"))
    capsys.readouterr()
    assert main(["eval", str(run), "eval.C_grid=[0.1, 1]", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["C"], row["normalise"]) for row in told["grid"]] == [
        (0.1, True),
        (1, True),
        (0.1, False),
        (1, False),
    ]
    assert told["grid"][1]["accuracy"] == told["accuracy"]
    assert main(["eval", str(run), "eval.ensemble=true"]) == 0
    said = capsys.readouterr().out
    assert "ensemble of ridge heads" in said
    assert "C=100, as they come" in said
    assert "mean of probabilities" in said
