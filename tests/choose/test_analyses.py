"""Every kind of analysis is a named tuple and answers mistakes before torch is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from innerloop.cli.analyses import ANALYSES, Analysis, find
from innerloop.cli.analyze import read_request
from innerloop.cli.main import main
from innerloop.experiment.recipe.flat import FlatSettings


def test_every_kind_has_its_parts() -> None:
    for kind in ANALYSES:
        analysis = find(kind)
        assert isinstance(analysis, Analysis)
        assert issubclass(analysis.settings, FlatSettings)
    assert [kind for kind in ANALYSES if find(kind).page] == ["landscape"]
    none = Analysis._field_defaults["figures"]
    assert [kind for kind in ANALYSES if find(kind).figures is not none] == ["convergence", "kernels"]


def test_settings_do_not_import_torch() -> None:
    code = (
        "import sys, innerloop.cli.analyze\n"
        "from innerloop.cli.analyses import ANALYSES, find\n"
        "assert all(find(kind).settings.model_fields for kind in ANALYSES)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("landscape", "NAL "),
        ("landscape linear-maml tasks=8 samples=20 components=4", "predicted gain "),
        ("landscape glyphs tasks=8", "predicted gain 1, by symmetry"),
        ("convergence width=inf steps=2", "maml on bridge-quadratic, L = 3, width inf: σ_min "),
        ("kernels depth=2 n_tasks=2 repeats=2 test_tasks=2", "bridge-quadratic, mlp, L = 2, width inf, "),
        ("regions sine-maml inputs=20 repeats=2", "80 ReLUs; by initialisation: "),
        ("rate n_tasks=20", "Corollary 1's lower bound "),
        ("rate sine n_tasks=4", "inner.lr = "),
    ],
)
def test_every_estimate_prints_itself(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *words.split()]) == 0
    assert any(each.startswith(line) for each in capsys.readouterr().out.splitlines())


# ---- refused before anything is computed ----


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder; no analysis may be computed, and no data opened."""
    monkeypatch.chdir(tmp_path)
    for kind in ANALYSES:
        analysis = find(kind)

        def refuse(*_: Any, kind: str = kind) -> Any:
            pytest.fail(f"analyze {kind} was computed before it was refused")

        monkeypatch.setattr(f"innerloop.cli.analyses.{kind}.ANALYSIS", analysis._replace(run=refuse))


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("landscape linear-maml --page page.html", "--page shows the closed form"),
        ("landscape linear-maml --page away/page.html", "no folder away"),
        ("landscape omniglot-maml features=tangent", "needs a network with one output"),
        ("rate omniglot-protonet", "inner.method=protonet has no inner learning rate"),
        ("rate --page page.html", "analyze rate has no page"),
        ("regions", "name a recipe"),
        ("kernels glyphs", "is about a family of tasks"),
        ("convergence sine-maml", "is about a family of tasks"),
        ("kernels nofamily", "called 'nofamily'"),
        *((f"{kind} --save", "cannot write to runs") for kind in ("landscape", "convergence", "kernels")),
        ("rate sine --save", "cannot write to runs"),
    ],
)
def test_what_can_be_refused_is_refused_first(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs").touch()  # a file where the folder of runs would be
    assert main(["analyze", *words.split()]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["rate", "regions", "landscape"])
def test_a_family_and_a_dataset_stand_for_a_recipe(kind: str) -> None:
    analysis = find(kind)
    family = read_request(kind, analysis.settings, ["sine", "tasks.shots=5"]).recipe
    assert family is not None
    assert (family.tasks.family, family.tasks.shots, family.inner.method) == ("sine", 5, "maml")
    pictures = read_request(kind, analysis.settings, ["glyphs", "inner.method=anil"]).recipe
    assert pictures is not None
    assert (pictures.data.name, pictures.inner.method, pictures.tasks.ways) == ("glyphs", "anil", 5)


@pytest.mark.parametrize("kind", ["kernels", "convergence"])
def test_kernels_take_a_family_first(kind: str) -> None:
    settings = read_request(kind, find(kind).settings, ["sine", "shots=3"]).settings
    assert (settings.tasks, settings.shots) == ("sine", 3)  # type: ignore[attr-defined]
