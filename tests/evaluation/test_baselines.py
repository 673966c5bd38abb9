"""What needs no training: against loops with scikit-learn and numpy, and beside every result on pictures."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid

from innerloop.cli.main import main
from innerloop.core.statistics import mean_interval
from innerloop.data.glyphs import glyphs
from innerloop.evaluation.baselines import EPISODES, InitialNetwork, colours, pixels, trivial_baselines
from innerloop.evaluation.frozen import evaluate_head
from innerloop.evaluation.protocol import Protocol
from innerloop.evaluation.scores import Evaluation
from innerloop.experiment.recipe.protocols import baselines_line
from innerloop.nets.convolutional import conv4
from innerloop.tasks.few_shot import few_shot
from innerloop.testing.closeness import SINGLE

PROTOCOL = Protocol(ways=4, shots=2, queries=3, episodes=12, norm="group", seed=5)


def result(count: int = 12) -> Evaluation:
    scores = [0.5 + 0.02 * (n % 7) for n in range(count)]
    return Evaluation(scores, mean_interval(scores), "accuracy", 0)


def test_pixels_and_gains_are_those_of_a_loop_with_scikit_learn() -> None:
    source, network = glyphs(), conv4(1, 28, 4, filters=4, norm="group")
    first = network.init(torch.Generator().manual_seed(0))
    judged = partial(evaluate_head, source=source)
    told = trivial_baselines(judged, PROTOCOL, result(), InitialNetwork("untrained", network, *first))
    baselines = {b.name: b for b in told}
    assert list(baselines) == ["pixels", "colours", "untrained"]
    drawn = few_shot(source, "test", 5, PROTOCOL.kinds(), True)
    rows, scores = drawn.rows(np.arange(12), 0), {"pixels": [], "colours": []}
    for support, query in zip(rows.support, rows.query, strict=True):
        for name, features in (("pixels", pixels), ("colours", colours)):
            made = [
                features(torch.tensor(source.images[r.reshape(-1)] / 255.0).permute(0, 3, 1, 2).float())
                for r in (support, query)
            ]
            y = [np.repeat(np.arange(4), n) for n in (2, 3)]
            scores[name].append(NearestCentroid().fit(made[0].numpy(), y[0]).score(made[1].numpy(), y[1]))
    for name, expected in scores.items():
        assert baselines[name].accuracy.mean == pytest.approx(np.mean(expected))
        gain = np.array(result().scores) - np.array(expected)
        assert baselines[name].gain.mean == pytest.approx(gain.mean())
        assert baselines[name].gain.ci95 == pytest.approx(mean_interval(gain).ci95)


@pytest.mark.parametrize("channels", [1, 3])
def test_histograms_are_numpys(channels: int) -> None:
    x = torch.rand(3, channels, 6, 5, generator=torch.Generator().manual_seed(channels))
    bins = {1: 16, 3: 4}[channels]
    for picture, histogram in zip(x, colours(x), strict=True):
        sample = picture.reshape(channels, -1).T.numpy()
        counts, _ = np.histogramdd(sample, bins=[np.linspace(0, 1, bins + 1)] * channels)
        assert histogram.tolist() == pytest.approx(np.sqrt(counts.reshape(-1) / 30).tolist(), abs=SINGLE)


def test_large_pictures_are_averaged_and_few_tasks_are_enough() -> None:
    x = torch.arange(64.0 * 64).view(1, 1, 64, 64)
    assert pixels(x)[0, 0] == x[0, 0, :2, :2].mean()
    assert EPISODES == 200


SETTINGS = [
    *("data.name=glyphs", "model.filters=2", "model.pooling=stride", "outer.steps=1", "outer.batch=1"),
    *("tasks.ways=3", "tasks.queries=2", "eval.episodes=6", "eval.validation_episodes=2", "eval.ways=3"),
    *("eval.queries=2", "run.execution=loop", "run.threads=1"),
]


def test_they_stand_beside_every_result_on_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = f"run.folder={tmp_path}"
    assert main(["train", "omniglot-protonet", *SETTINGS, folder]) == 0
    said = capsys.readouterr().out
    assert "without training, on the first 6 of these tasks: nearest mean of pixels " in said
    (run,) = (path.parent for path in tmp_path.glob("*/*/recipe.toml"))
    (file,) = (run / "eval").iterdir()
    told = json.loads(file.read_text(encoding="utf-8"))
    assert [row["name"] for row in told["baselines"]] == ["pixels", "colours", "untrained"]
    assert main(["report", str(run)]) == 0
    assert "nearest mean of colour histograms" in (run / "report.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert main(["eval", str(run), "eval.baselines=false", "--json"]) == 0
    assert "baselines" not in json.loads(capsys.readouterr().out)


def test_a_baseline_that_is_not_beaten_is_said_so() -> None:
    def row(gain: float) -> dict[str, object]:
        return {"words": "nearest mean of pixels", "mean": 0.9, "ci95": 0.01, "episodes": 200} | {
            "gain": gain,
            "gain_ci95": 0.02,
        }

    assert "is better than the trained network" in baselines_line({"baselines": [row(-0.05)]})
    assert "is as good as the trained network" in baselines_line({"baselines": [row(0.01)]})
    assert "trained network" not in baselines_line({"baselines": [row(0.05)]})
    assert baselines_line({}) == ""
