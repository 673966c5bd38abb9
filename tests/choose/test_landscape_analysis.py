"""``analyze landscape``: numbers, words, a recipe's own tasks, and the page in a browser."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.analyses import landscape
from innerloop.cli.main import main
from innerloop.core.errors import UserError
from innerloop.experiment.recipe.flat import read_flat
from innerloop.report.landscape_page import landscape_page
from innerloop.testing.closeness import CHAINED, ROUNDED
from innerloop.theory.landscape.geography import ClosedLandscape
from oracles.browser import opened
from oracles.landscape import equations_10_and_11


def analyse(*settings: str) -> dict[str, Any]:
    chosen = read_flat(landscape.LandscapeSettings, settings, "analyze landscape")
    return {**landscape.run(chosen, None, lambda _: None).as_dict(), "settings": chosen.model_dump()}


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["analyze", "landscape", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_json_has_the_keys_and_the_papers_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    told = command(
        capsys,
        "dim=7",
        "inner_lr=0.8",
        "shots=30",
        "rho_hard=0.2",
        "rho_easy=1.1",
        "R=1.7",
        "r_hard=0.4",
        "r_easy=0.9",
    )
    nal, maml = equations_10_and_11(7, 0.2, 1.1, 1.7, 0.4, 0.9, 0.8, 30)
    assert told["nal"]["risk"] == pytest.approx(nal, rel=ROUNDED)
    assert told["maml"]["risk"] == pytest.approx(maml, rel=ROUNDED)
    assert told["gain"] == pytest.approx(nal / maml, rel=ROUNDED)
    assert len(told["maml"]["solution"]) == 7
    for part in ("nal", "maml"):
        assert told[part]["risk"] == pytest.approx((told[part]["risk_hard"] + told[part]["risk_easy"]) / 2)
    q = 0.2 / 1.1
    assert told["condition"]["hardness"] == pytest.approx(q * (1 - q) ** 2)
    assert told["condition"]["dimension_per_shot"] == pytest.approx(7 / 30)
    assert told["condition"]["effective_dimension"] == 7
    assert told["condition"]["effective_per_shot"] == pytest.approx(7 / 30)
    assert told["irreducible"]["noise"] == pytest.approx(0.005)
    assert {"kind", "settings", "seconds"} <= set(told)


def test_table_3_from_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("rho_hard=0.1", "rho_easy=1", "R=2", "r_hard=1", "r_easy=1", "shots=2000")
    assert command(capsys, *settings, "inner_shots=500")["maml"]["coordinate"] == pytest.approx(
        1.573, abs=1e-3
    )
    assert command(capsys, *settings, "inner_shots=25")["maml"]["coordinate"] < 0.44


def test_words_say_the_same_as_the_numbers() -> None:
    chosen = read_flat(landscape.LandscapeSettings, ["shots=500"], "analyze landscape")
    result = landscape.run(chosen, None, lambda _: None)
    lines = str(result)
    assert isinstance(result, ClosedLandscape)
    assert f"gain {result.gain:.3f}" in lines
    assert "NAL" in lines
    assert "irreducible" in lines


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rho_hard=2", "exchange them"),
        ("r_hard=0", "r_hard must be"),
        ("shots=0", "shots must be"),
        ("rho_hrd=1", "did you mean 'rho_hard'"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        analyse(setting)


# ---- a recipe's own tasks ----


def kept_words(told: dict[str, Any]) -> str:
    """What the terminal said of a saved result."""
    kept = json.loads((Path(told["run"]) / "result.json").read_text(encoding="utf-8"))
    return "\n".join(kept["words"])


def test_linear_tasks_give_their_geography_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [
        "tasks.settings={dim=5, rho_hard=0.1, rho_easy=1.0, R=2.0, r_hard=0.5, r_easy=0.5}",
        "tasks.noise=0.1",
    ]
    told = command(
        capsys, "linear-maml", *settings, "tasks=400", "components=5", "shots=100", "inner_lr=1.0", "--save"
    )
    exact = analyse("dim=5", "rho_hard=0.1", "rho_easy=1", "R=2", "r_hard=0.5", "r_easy=0.5", "shots=100")
    low, high = told["gain_interval"]
    assert low <= exact["gain"] <= high
    assert told["gain"] == pytest.approx(exact["gain"], rel=0.2)
    place = {key: value[0] for key, value in told["geography"].items()}
    assert place["R"] == pytest.approx(2, rel=0.1)
    assert place["rho_hard"] == pytest.approx(0.1, rel=0.05)
    assert place["rho_easy"] == pytest.approx(1.0, rel=0.05)
    assert told["condition"]["dimension_per_shot"] == pytest.approx(5 / 100)
    assert told["condition"]["effective_dimension"] == pytest.approx(5, rel=0.05)  # inputs are isotropic
    assert "effective dimension" in kept_words(told)
    assert told["applies"]
    assert set(told["hardness"]["measures"]) == {
        "loss after 1 step",
        "loss after 10 steps",
        "nearest-neighbour error",
        "smallest eigenvalue",
    }
    assert sorted(told["hardness"]["ranking"]) == list(range(400))


@pytest.mark.parametrize("features", ["network", "tangent"])
def test_sinusoids_in_feature_spaces(features: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = command(
        capsys,
        "sine-maml",
        "model.hidden=[12,12]",
        f"features={features}",
        "tasks=24",
        "components=4",
        "inner_lr=0.1",
    )
    assert told["gain"] > 0
    assert len(told["nal"]["solution"]) == told["components"] <= 4
    assert "untrained network" in told["reason"]


def test_permuted_classes_are_predicted_to_gain_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = command(
        capsys,
        "omniglot-maml",
        "data.name=glyphs",
        "data.rotations=false",
        "tasks=12",
        "components=4",
        "tasks.ways=3",
        "tasks.shots=3",
        "tasks.queries=5",
        "--save",
    )
    assert told["gain"] == 1
    assert not told["applies"]
    assert "permuted" in told["reason"]
    assert told["checked"]["gain"] == pytest.approx(1, abs=CHAINED)
    assert "by symmetry" in kept_words(told)


def test_a_recipe_and_an_environment_do_not_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "landscape", "linear-maml", "rho_hard=0.2"]) == 2
    assert "leave it out, or give tasks.settings.rho_hard=0.2" in capsys.readouterr().err
    assert main(["analyze", "landscape", "sine-maml", "tasks=8", "samples=3", "features=network"]) == 2
    assert "more samples" in capsys.readouterr().err


# ---- the page ----


def in_browser(page: Path, fragment: str = "") -> dict[str, Any]:
    """What the page computed, out of its document after its script has run without a complaint."""
    seen = opened(page, fragment)
    assert seen.console == []
    values = re.search(r'<pre id="values"[^>]*>(.*?)</pre>', seen.document, re.DOTALL)
    assert values, seen.document[-500:]
    return dict(json.loads(html.unescape(values[1])))


@pytest.mark.parametrize(
    "settings",
    [
        (),
        (
            "dim=3",
            "shots=17",
            "inner_shots=5",
            "rho_hard=0.03",
            "rho_easy=1.4",
            "R=3.3",
            "r_hard=2.5",
            "noise=0.7",
        ),
        ("inner_lr=0.37", "hard_share=0.2", "r_easy=0", "R=0.1"),
    ],
)
@pytest.mark.one_in(3)
def test_the_page_computes_what_python_computes(settings: tuple[str, ...], tmp_path: Path) -> None:
    result = analyse(*settings)
    page = tmp_path / "landscape.html"
    page.write_text(landscape_page(result), encoding="utf-8")
    assert differing(in_browser(page), result) == []


def test_moving_the_sliders_moves_the_numbers(tmp_path: Path) -> None:
    """By the address, which sets what the sliders set."""
    page = tmp_path / "landscape.html"
    page.write_text(landscape_page(analyse()), encoding="utf-8")
    told = in_browser(page, "rho_hard=0.4&R=1.25&shots=60&r_easy=3")
    assert differing(told, analyse("rho_hard=0.4", "R=1.25", "shots=60", "r_easy=3")) == []
    assert differing(told, analyse()) != []


def test_the_report_of_a_saved_run_is_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ("rho_hard=0.07", "R=1.3", "shots=41", "inner_shots=19", "noise=0.3", "dim=6")
    told = command(capsys, *settings, "--save")
    for _ in range(2):  # ours, so it may be made again
        assert main(["report", told["run"], "--json"]) == 0
    report = Path(json.loads(capsys.readouterr().out.splitlines()[-1])["report"])
    assert report == Path(told["run"]) / "report.html"
    assert differing(in_browser(report), told) == []
    moved = in_browser(report, "rho_hard=0.4&R=1.25&shots=60")
    expected = analyse("rho_hard=0.4", "R=1.25", "shots=60", "inner_shots=19", "noise=0.3", "dim=6")
    assert differing(moved, expected) == []
    text = report.read_text(encoding="utf-8")
    assert f"gain {told['gain']:.3f}: NAL&#39;s excess risk" in text  # the words of the terminal
    assert not re.search(r'(src|href)\s*=\s*"', text)


def test_the_report_of_a_recipes_tasks_has_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = command(capsys, "linear-maml", "tasks=24", "components=3", "--save")
    assert main(["report", told["run"]]) == 0
    text = (Path(told["run"]) / "report.html").read_text(encoding="utf-8")
    assert f"predicted gain {told['gain']:.3f}" in text
    assert "rank correlation with that" in text
    assert "linear-maml" in text


def differing(told: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Numbers of the page that are not Python's, to nine digits."""
    pairs = {
        f"{p} {k}": (v, expected[p][k])
        for p in ("nal", "maml", "condition", "irreducible")
        for k, v in told[p].items()
    }
    pairs |= {key: (told[key], expected[key]) for key in ("gain", "limiting_gain")}
    assert len(pairs) == 15
    return [name for name, (a, b) in pairs.items() if a != pytest.approx(b, rel=CHAINED, abs=0)]


def test_the_page_stands_alone(tmp_path: Path) -> None:
    text = landscape_page(analyse())
    assert not re.search(r'(src|href)\s*=\s*"', text)  # nothing is fetched
    for slider in ("rho_hard", "rho_easy", "R", "r_hard", "r_easy", "shots", "inner_lr"):
        assert f'["{slider}"' in text
    with pytest.raises(ValueError, match="closed form"):
        landscape_page({"source": "tasks"})
