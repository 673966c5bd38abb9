"""``innerloop analyze landscape``: is MAML worth it? In closed form, or from a recipe's tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from innerloop.core.errors import UserError
from innerloop.plots.landscape_page import GEOGRAPHY, landscape_page
from innerloop.recipes.flat import FlatSettings
from innerloop.recipes.reading import Readers, When
from innerloop.recipes.rules import Rules
from innerloop.recipes.schema import Recipe

CLEAR = 10.0
"""How many times the left side of Corollary 2's condition must exceed the right one to count as "≫"."""

_ENVIRONMENT = When("an environment, and a recipe is one already", lambda _, recipe: recipe is None)
_RECIPE = When("the tasks of a recipe, and none is named", lambda _, recipe: recipe is not None)
_SQUARED = When(
    "recipes with a squared error", lambda _, recipe: not recipe.inner.loss.startswith("cross-entropy")
)


def _small_is_hard(s: Settings) -> str | None:
    if s.rho_hard <= s.rho_easy:
        return None
    return f"rho_hard={s.rho_hard} exceeds rho_easy={s.rho_easy}: small is hard, exchange them"


class Settings(FlatSettings):
    """Keys of ``analyze landscape``: first those of the closed form, then those for a recipe's tasks."""

    RULES: ClassVar[Rules] = (_small_is_hard,)
    READERS: ClassVar[Readers] = {
        **{key: (_ENVIRONMENT,) for key in GEOGRAPHY if key != "inner_shots"},
        **dict.fromkeys(("tasks", "features", "components", "seed"), (_RECIPE,)),
        "samples": (_RECIPE, _SQUARED),
    }
    OF_RECIPES: ClassVar[Mapping[str, str]] = {
        "noise": "tasks.noise",
        **{key: f"tasks.settings.{key}" for key in GEOGRAPHY if key not in ("inner_shots", "noise")},
    }

    dim: int = Field(10, ge=1, description="d, how many inputs a linear task has")
    inner_lr: float | None = Field(None, gt=0, description="α for ½ mean squared error; none is 1/rho_easy")
    shots: int = Field(500, ge=1, description="m, samples of the adaptation step at test")
    inner_shots: int | None = Field(None, ge=1, description="n₂, samples of it in training; none is shots")
    rho_hard: float = Field(0.1, gt=0, description="ρ_H: inputs of hard tasks have covariance ρ_H·I")
    rho_easy: float = Field(0.9, gt=0, description="ρ_E: the same for easy tasks")
    R: float = Field(2.0, ge=0, description="distance of the groups' centres, per coordinate")
    r_hard: float = Field(0.5, gt=0, description="r_H: variance of the hard tasks' optima, per coordinate")
    r_easy: float = Field(0.5, ge=0, description="r_E: the same for easy tasks")
    noise: float = Field(0.1, ge=0, description="ν, standard deviation of the targets' noise")
    hard_share: float = Field(0.5, gt=0, lt=1, description="how often a task is hard")
    tasks: int = Field(200, ge=8, description="with a recipe: how many tasks to look at")
    samples: int | None = Field(None, ge=2, description="with a recipe: per task; none is 10 per feature")
    features: Literal["raw", "network", "tangent"] = Field(
        "raw", description="with a recipe: inputs, features of the untrained network, or its tangent features"
    )
    components: int = Field(16, ge=1, description="with a recipe: directions features are reduced to")
    seed: int = Field(0, ge=0, description="with a recipe: of the network, the directions and the bootstrap")


def run(settings: Settings, recipe: Recipe | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The closed forms of a geography; or, with a recipe, estimates from its tasks."""
    if recipe is None:
        return closed_form(settings)
    from innerloop.analysis.landscape_data import from_recipe

    return from_recipe(settings, recipe, say)


def closed_form(settings: Settings) -> dict[str, Any]:
    """Eqs. 8, 10 and 11 for one environment, as plain numbers."""
    import torch

    from innerloop.theory.landscape.forms import irreducible
    from innerloop.theory.landscape.geography import Geography, condition, geography, limiting_gain

    s = settings
    rate, shots, inner = s.inner_lr or 1 / s.rho_easy, s.shots, s.inner_shots or s.shots
    env = Geography(s.dim, s.rho_hard, s.rho_easy, s.R, s.r_hard, s.r_easy, s.hard_share)
    found, side = geography(env, rate, shots, inner), condition(env, shots)
    eye = torch.eye(s.dim, dtype=torch.float64)
    weights = torch.tensor([s.hard_share, 1 - s.hard_share], dtype=torch.float64)
    parts = irreducible(torch.stack([s.rho_hard * eye, s.rho_easy * eye]), rate, shots, s.noise, weights)
    out: dict[str, Any] = {
        name: {
            "solution": [float(part.coordinate)] * s.dim,
            **{key: float(value) for key, value in part._asdict().items()},
        }
        for name, part in (("nal", found.nal), ("maml", found.maml))
    }
    return {
        "source": "closed form",
        **out,
        "gain": float(found.gain),
        "condition": {
            **{key: float(value) for key, value in side._asdict().items()},
            "holds": float(side.ratio) >= CLEAR,
        },
        "limiting_gain": float(limiting_gain(env)),
        "irreducible": {key: float(value) for key, value in parts._asdict().items()},
        "inner_lr": rate,
        "inner_shots": inner,
    }


def render(result: dict[str, Any]) -> list[str]:
    """For people."""
    if result["source"] != "closed form":
        from innerloop.analysis.landscape_data import render_estimates

        return render_estimates(result)
    lines = [f"{'':6}{'coordinate':>12}{'risk':>12}{'on hard':>12}{'on easy':>12}"]
    for name in ("nal", "maml"):
        part = result[name]
        numbers = "".join(f"{part[k]:>12.4g}" for k in ("coordinate", "risk", "risk_hard", "risk_easy"))
        lines.append(f"{name.upper():6}{numbers}")
    side = result["condition"]
    size = "≫" if side["holds"] else ">" if side["ratio"] > 1 else "<"
    lines += [
        f"gain {result['gain']:.3f}: NAL's excess risk over MAML's, after a step of {result['inner_lr']:.4g}",
        f"ρ_H/ρ_E(1−ρ_H/ρ_E)² = {side['hardness']:.4g} {size} d/m = {side['dimension_per_shot']:.4g} "
        f"(effective dimension tr Σ/‖Σ‖ = {side['effective_dimension']:g}: inputs are isotropic); "
        f"where ≫ and α = 1/ρ_E the gain tends to {result['limiting_gain']:.3f}",
        f"irreducible, in neither risk: noise {result['irreducible']['noise']:.3g}, "
        f"through the step {result['irreducible']['step']:.3g}",
    ]
    return lines


def page(result: dict[str, Any]) -> str:
    """The interactive page, started at these settings; it computes the closed forms itself."""
    if result["source"] != "closed form":
        raise UserError("--page shows the closed form: leave the recipe away.")
    return landscape_page(result)
