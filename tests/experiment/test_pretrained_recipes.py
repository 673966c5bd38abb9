"""Recipes that start from published weights: trained, judged, loaded again, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from innerloop.classify import extract
from innerloop.classify.files import backbone_of, load_model, run_backbone
from innerloop.core.errors import UserError
from innerloop.core.files import read_json
from innerloop.experiment import weights
from innerloop.experiment.data import Sizes
from innerloop.experiment.model import build_network
from innerloop.experiment.pictures import own_scale
from innerloop.experiment.recipe.rules import unread
from innerloop.experiment.recipe.schema import Recipe
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.recipe.trust import foreign_code
from innerloop.experiment.run_data import seen_notes
from innerloop.experiment.run_evaluation import evaluate_run
from innerloop.experiment.training import train
from innerloop.nets import backbone, pretrained
from innerloop.runs.manifest import read_manifest
from innerloop.testing.closeness import SINGLE_CHAINED, SINGLE_SUMMED
from support.picture_runs import draw_splits

KIND = "efficientnet-lite0"


def recipe(folder: Path, **model: Any) -> Recipe:
    return make_recipe(
        {
            "data": {
                "name": str(draw_splits(folder / "pictures", [(32, 32)] * 2)),
                "size": 32,
                "colour": "rgb",
            },
            "tasks": {"family": "few-shot", "ways": 2, "shots": 1, "queries": 1},
            "model": {"kind": KIND, "norm": "running", "init": "pretrained", **model},
            "inner": {"method": "protonet", "loss": "cross-entropy"},
            "outer": {"steps": 1, "batch": 1, "lr": 1e-6},
            "eval": {"episodes": 2, "validation_episodes": 1, "head": "centroid"},
            "run": {"execution": "loop", "compile": "off", "threads": 1, "folder": str(folder / "runs")},
        }
    )


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Weights that stand for the published ones, which need not be installed."""
    params, buffers = backbone(KIND, 3, 32, 1000, norm="running").init(torch.Generator().manual_seed(7))
    given = {**params, **{name: value + 0.25 for name, value in buffers.items()}}
    monkeypatch.setattr(pretrained, "published_weights", lambda _: given)
    return given


def test_a_run_starts_from_published_weights_and_keeps_their_scale(
    published: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "overlap", lambda seen, name: f"{seen} has seen {name}.")
    asked = recipe(tmp_path)
    result = train(asked, progress=False)
    run = result.run
    assert result.notes == [f"ImageNet-1k has seen {tmp_path / 'pictures'}."]
    assert read_json(result.evaluation.file)["notes"] == result.evaluation.notes == result.notes
    assert read_manifest(run)["data"]["mean"] == [127 / 255] * 3
    monkeypatch.setattr(pretrained, "published_weights", lambda _: pytest.fail("they are needed again"))
    assert evaluate_run(run, []).notes == result.notes
    predictor = load_model(run)
    assert predictor.backbone.preprocessing.mean == (127 / 255,) * 3
    moved = (predictor.backbone.params["stem.weight"] - published["stem.weight"]).abs().max()
    assert 0 < float(moved) < 100 * asked.outer.lr  # one step away
    assert predictor.backbone.params["head.weight"].shape == (2, 1280)


def test_networks_with_a_scale_of_their_own() -> None:
    assert own_scale("conv4") is None
    assert own_scale(KIND) == ([127 / 255] * 3, [128 / 255] * 3)
    base = make_recipe(
        {"tasks": {"family": "few-shot"}, "model": {"kind": KIND}, "inner": {"loss": "cross-entropy"}}
    )
    told = unread(base, ["data.standardise"])
    assert told == ["data.standardise is not read: it is for networks without a scale of their own."]
    with pytest.raises(UserError, match=r"set data\.colour=rgb"):
        build_network(base, Sizes((1, 32, 32), 5, 5, 1, labels=True))


def test_what_has_been_seen_is_said() -> None:
    def notes(kind: str, init: str | None, data: str = "fc100") -> list[str]:
        return seen_notes(
            make_recipe(
                {
                    "tasks": {"family": "few-shot"},
                    "data": {"name": data},
                    "model": {"kind": kind, "init": init},
                    "inner": {"loss": "cross-entropy"},
                }
            )
        )

    assert "trained on ImageNet-1k" in notes(KIND, "pretrained")[0]
    assert "is not known here" in notes("hf:somebody/model", None)[0]
    assert notes(KIND, None) == notes("conv4", None) == notes(KIND, "pretrained", "omniglot") == []


def test_weights_that_there_are_not(published: dict[str, Tensor]) -> None:
    params = {"head.weight": torch.zeros(5, 1280), "head.bias": torch.zeros(5)}
    given = weights.pretrained_weights(KIND, params, ("head.weight", "head.bias"))
    assert given["head.weight"].shape == (5, 1280)
    assert torch.equal(given["stem.weight"], published["stem.weight"])
    with pytest.raises(UserError, match="brings its own weights"):
        weights.pretrained_weights("hf:somebody/model", {}, ())


def test_a_file_that_names_a_model_of_transformers_needs_trust() -> None:
    asked = make_recipe({"model": {"kind": "hf:somebody/model", "settings": {"pooling": "mean"}}})
    assert foreign_code(asked) == {"model.kind": "hf:somebody/model"}
    assert foreign_code(make_recipe({"model": {"kind": "hfx:model"}})) == {"model.kind": "hfx:model"}


def test_a_run_is_a_backbone_too(tmp_path: Path) -> None:
    """Its features of files are those that its predictor computes."""
    small = {"kind": "conv4", "filters": 4, "init": None}
    asked = recipe(tmp_path, **small).model_dump()
    asked["data"]["standardise"] = True
    run = train(make_recipe(asked), progress=False).run
    net = run_backbone(run)
    files = sorted((tmp_path / "pictures").rglob("*.png"))[:3]
    features = extract(net, files, cache=tmp_path / "cache")
    predictor = load_model(run)
    x = predictor.batch([str(file) for file in files])
    with torch.no_grad():
        z, _ = predictor.network.features(net.params, net.buffers, x, "stored")
    np.testing.assert_allclose(features.values, z.flatten(1).numpy(), rtol=SINGLE_CHAINED, atol=SINGLE_SUMMED)
    assert net.preprocessing.mean is not None
    together = predictor._replace(backbone=net._replace(network=net.network._replace(norm="transductive")))
    with pytest.raises(UserError, match="no features of its own"):
        backbone_of(together)
