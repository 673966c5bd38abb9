"""Kernels through the command: analyze, with the keys that are promised."""

from __future__ import annotations

import json
import math

import pytest
import torch

from innerloop.cli.main import main
from innerloop.kernels.meta.predict import mean_error
from innerloop.testing.closeness import CHAINED

SMALL = ["dim=5", "scale=sphere", "depth=4", "n_tasks=4", "shots=3", "test_tasks=3", "repeats=3", "seed=0"]


def answer(words, capsys, code=0):
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_analyze_kernels_has_its_keys_and_can_be_repeated(capsys):
    words = ["analyze", "kernels", "tasks=bridge-quadratic", *SMALL]
    told = answer(words, capsys)
    assert told["mtl_anil_gap"] > 0
    assert told["mtl_anil_gap_se"] > 0
    assert len(told["eigenvalues"]) == 12
    assert told["condition"] == pytest.approx(told["eigenvalues"][0] / told["eigenvalues"][-1])
    assert told["condition"] == told["conditions"]["mtl"]
    assert answer(words, capsys)["mtl_anil_gap"] == told["mtl_anil_gap"]
    mean = sum(told["gap_by_repeat"]) / 3
    assert told["mtl_anil_gap"] == pytest.approx(mean)


def test_inner_time_cancels_in_the_command_too(capsys):
    gaps = [
        answer(["analyze", "kernels", *SMALL, f"inner_time={time}"], capsys)["mtl_anil_gap"]
        for time in (0, 0.5)
    ]
    assert gaps[0] == pytest.approx(gaps[1], rel=CHAINED)
    finite = answer(["analyze", "kernels", *SMALL, "inner_time=0.5", "train_time=0.1"], capsys)
    start = answer(["analyze", "kernels", *SMALL, "inner_time=0", "train_time=0.1"], capsys)
    assert finite["mtl_anil_gap"] != pytest.approx(start["mtl_anil_gap"], rel=1e-3)


def test_a_finite_width_uses_a_drawn_network(capsys):
    words = ["analyze", "kernels", "depth=2", *(word for word in SMALL if not word.startswith("depth"))]
    wide, limit = answer([*words, "width=64"], capsys), answer(words, capsys)
    assert wide["mtl_anil_gap"] != limit["mtl_anil_gap"]
    assert wide["conditions"]["ntk"] == pytest.approx(limit["conditions"]["ntk"], rel=2.0)


def test_analyze_kernels_with_a_split_has_mamls_kernel(capsys):
    words = ["analyze", "kernels", *SMALL, "split=true", "queries=3", "kernel=maml", "inner_time=0.1"]
    told = answer(words, capsys)
    assert len(told["eigenvalues"]) == 12
    assert set(told["conditions"]) == {"ntk", "nngp", "mtl", "anil", "maml"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["kernels", "kernel=maml"], "split=true"),
        (["kernels", "split=true"], "queries=10"),
        (["kernels", "width=2.5"], "whole number"),
        (["kernels", "tasks=bridge-quadratics"], "did you mean"),
        (["kernels", "sine-maml"], "is about a family of tasks: name one"),
        (["convergence", "inner_time=inf"], "inner_time must be finite"),
        (["convergence", "widht=3"], "did you mean 'width'"),
        (["convergence", "method=mtl", "inner_time=0.1"], "method=maml or method=anil"),
        (["convergence", "heads=independent"], "method=mtl"),
        (["kernels", "network=residual", "depth=1"], "depth=2"),
    ],
)
def test_mistakes_are_answered_with_the_fix(words, text, capsys):
    assert text in answer(["analyze", *words], capsys, code=2)["error"]


@pytest.mark.parametrize("method", ["maml", "anil", "mtl"])
def test_analyze_convergence_trains_under_its_bound(method, capsys):
    words = [
        "analyze",
        "convergence",
        f"method={method}",
        "width=128",
        "n_tasks=2",
        "shots=3",
        "queries=3",
        "steps=20",
    ]
    told = answer(words, capsys)
    assert told["holds"]
    assert len(told["loss"]) == len(told["bound"]) == 21
    assert told["loss"][-1] < told["bound"][-1] < told["loss"][0]
    assert told["eta0"] == pytest.approx(2 / (told["sigma_min"] + told["sigma_max"]))
    assert 0 < told["kernel_drift_relative"] < 1
    limit = answer([*words[:3], "width=inf", *words[4:]], capsys)
    assert limit["sigma_min"] == pytest.approx(told["sigma_min"])
    assert "movement" not in limit


def test_anil_without_a_split_is_judged_on_all_samples(capsys):
    words = ["analyze", "convergence", "method=anil", "n_tasks=2", "shots=3", "queries=4", "steps=5"]
    limit = answer([*words, "split=false", "width=inf"], capsys)
    assert len(limit["eigenvalues"]) == 14
    trained = answer([*words, "split=false", "width=256"], capsys)
    assert trained["kernel_error"] < 0.5
    assert trained["distance"] == pytest.approx(limit["linear_distance"], rel=1.0)


@pytest.mark.parametrize("network", ["residual", "residual-norm", "residual-prenorm"])
def test_residual_networks_in_the_command(network, capsys):
    words = ["analyze", "kernels", f"network={network}", *SMALL]
    limit, wide = answer(words, capsys), answer([*words, "width=256"], capsys)
    mlp = answer(["analyze", "kernels", *SMALL], capsys)
    assert limit["mtl_anil_gap"] != mlp["mtl_anil_gap"]
    assert wide["mtl_anil_gap"] == pytest.approx(limit["mtl_anil_gap"], rel=0.5)
    assert wide["conditions"]["ntk"] == pytest.approx(limit["conditions"]["ntk"], rel=0.7)


def test_what_people_see(capsys):
    assert main(["analyze", "kernels", *SMALL]) == 0
    assert "‖F_ANIL − F_MTL‖" in capsys.readouterr().out
    assert main(["analyze", "convergence", "width=inf", "steps=5"]) == 0
    assert "holds at every step" in capsys.readouterr().out


def test_standard_errors_are_over_draws():
    draws = [torch.tensor([1.0, 1.2]), torch.tensor([3.0, 2.8])]
    assert mean_error(draws).error == pytest.approx(0.9)
    assert mean_error(draws[:1]).error == pytest.approx(0.1)
    assert math.isnan(mean_error([torch.tensor([1.0])]).error)
