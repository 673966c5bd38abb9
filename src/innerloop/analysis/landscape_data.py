"""The landscape of a recipe's own tasks: predicted gain where closed forms apply, hardness as a ranking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from innerloop.analysis.landscape_features import all_samples, features_of, principal
from innerloop.core.errors import UserError
from innerloop.core.losses import rate_factor
from innerloop.core.random import generator
from innerloop.core.types import TaskBatch
from innerloop.experiment.data import build_data
from innerloop.experiment.model import build_network
from innerloop.experiment.targets import check_targets
from innerloop.experiment.words import recipe_words
from innerloop.recipes.schema import Recipe
from innerloop.theory import hardness, permuted
from innerloop.theory.landscape.data import (
    bootstrap,
    estimated_dimension,
    fit_tasks,
    left_after_step,
    solutions,
)
from innerloop.theory.landscape.geography import condition_of

if TYPE_CHECKING:
    from innerloop.analysis.landscape import Settings

STEPS = (1, 10)
LEAST = 2.0  # samples per feature below which predictions are mostly noise
GOOD = 10.0


@recipe_words()
def from_recipe(settings: Settings, recipe: Recipe, say: Callable[[str], None]) -> dict[str, Any]:
    """Estimates from the training tasks of a recipe."""
    labels = recipe.inner.loss.startswith("cross-entropy")
    if not labels:
        size = settings.samples or int(GOOD) * settings.components
        update = {"shots": max(1, size // 2), "queries": size - max(1, size // 2)}
        recipe_more = recipe.model_copy(update={"tasks": recipe.tasks.model_copy(update=update)})
    data = build_data(recipe if labels else recipe_more)
    sampler = data.train
    batch = sampler.episodes(range(settings.tasks))
    if not isinstance(batch, TaskBatch):
        raise UserError(
            "tasks of unequal shapes cannot be compared here: give every kind the same ways and shots."
        )
    check_targets(recipe, data.sizes.labels)
    network = build_network(recipe, data.sizes)
    say(f"{settings.tasks} tasks, {settings.features} features")
    x, y = all_samples(batch)
    z, kept = principal(features_of(x, settings.features, network, settings.seed), settings.components)
    about = {
        "source": "tasks",
        "tasks": batch.size,
        "samples": z.shape[1],
        "components": z.shape[2],
        "kept": kept,
    }
    if labels:
        ways = int(y.max()) + 1
        split = batch.x_support.shape[1]
        found = _classification(z, y, ways, settings, recipe)
        names = [_names(sampler.files(i)) for i in range(batch.size)]
        return {**about, **found, "hardness": _hardness(z, y, split, ways, names)}
    return {
        **about,
        **_regression(z, y.double(), settings, recipe),
        "hardness": _hardness(z, y.double(), None, None),
    }


def _shots(settings: Settings, recipe: Recipe) -> tuple[int, int]:
    shots = settings.shots if "shots" in settings.model_fields_set else recipe.tasks.shots
    return shots, settings.inner_shots or shots


def _regression(z: Tensor, y: Tensor, settings: Settings, recipe: Recipe) -> dict[str, Any]:
    shots, inner_shots = _shots(settings, recipe)
    if settings.inner_lr is not None:
        lr, whose = settings.inner_lr, "given"
    elif not isinstance(recipe.inner.lr, float):
        lr, whose = hardness.head_rate(z, classes=False), "1/λ_max of the features"
    else:
        lr = recipe.inner.lr * rate_factor(recipe.inner.loss, "half-mse", shots)
        whose = f"inner.lr={recipe.inner.lr:g} of the recipe, for ½ mean squared error"
    fits = fit_tasks(z, y)
    left = left_after_step(fits, lr)
    hard = left > left.median()
    draw = generator(settings.seed, "bootstrap")
    found = bootstrap(fits, hard, lr, shots, inner_shots, draw)
    both = solutions(fits, lr, inner_shots)
    out: dict[str, Any] = {}
    for name, solution in zip(("nal", "maml"), both, strict=True):
        keys = {"risk": f"{name}_risk", "risk_hard": f"{name}_hard", "risk_easy": f"{name}_easy"}
        out[name] = {"solution": solution.flatten().tolist()}
        out[name] |= {key: found[long][0] for key, long in keys.items()}
        out[name]["intervals"] = {key: list(found[long][1:]) for key, long in keys.items()}
    scales = torch.tensor([found["rho_hard"][0], found["rho_easy"][0], z.shape[2], shots]).double()
    side = condition_of(scales[0] / scales[1], scales[2], estimated_dimension(fits), scales[3])
    per_feature = z.shape[1] / z.shape[2]
    return {
        **out,
        "gain": found["gain"][0],
        "gain_interval": list(found["gain"][1:]),
        "condition": {key: float(value) for key, value in side._asdict().items()},
        "geography": {k: list(found[k]) for k in ("R", "r_hard", "r_easy", "rho_hard", "rho_easy")},
        "applies": per_feature >= LEAST,
        "reason": _why(per_feature, settings.features),
        "inner_lr": lr,
        "rate": whose,
        "shots": shots,
        "inner_shots": inner_shots,
        "left_after_step": left.tolist(),
        "noise": float(fits.noise.mean().sqrt()),
    }


def _why(per_feature: float, features: str) -> str:
    if per_feature < LEAST:
        return f"{per_feature:.1f} samples per feature are too few, these numbers are mostly noise: give more"
    few = f"; {per_feature:.1f} samples per feature are few, 10 give a firmer number"
    where = "the inputs" if features == "raw" else f"{features} features of the untrained network"
    told = (
        f"squared loss and a model linear in {where}: what training does to features is not in these numbers"
    )
    return told + ("" if per_feature >= GOOD else few)


def _classification(z: Tensor, y: Tensor, ways: int, settings: Settings, recipe: Recipe) -> dict[str, Any]:
    shots, inner_shots = _shots(settings, recipe)
    out: dict[str, Any] = {"gain": 1.0, "applies": False, "reason": permuted.REASON}
    if z.shape[1] <= z.shape[2] + 1:
        return out
    scale = float(torch.linalg.eigvalsh(torch.einsum("tni,tnj->ij", z, z) / (len(z) * z.shape[1]))[-1])
    lr = settings.inner_lr or 1 / (1 + scale)
    found = permuted.permuted_landscape(z, y, ways, lr, shots * ways, inner_shots * ways)
    return {
        **out,
        "checked": {
            "gain": float(found.gain),
            "distance": float((found.nal - found.maml).norm()),
            "inner_lr": lr,
        },
    }


def _names(files: dict[str, Any]) -> str:
    return str(files.get("kind") or "") if files else ""


def _hardness(
    z: Tensor, y: Tensor, split: int | None, ways: int | None, kinds: list[str] | None = None
) -> dict[str, Any]:
    cut = split if split is not None else z.shape[1] // 2
    parts = z[:, :cut], y[:, :cut], z[:, cut:], y[:, cut:]
    lr = hardness.head_rate(z, ways is not None)
    losses = hardness.losses_after_steps(*parts, lr, STEPS, ways)
    measures = {
        "loss after 1 step": losses[:, 0],
        "loss after 10 steps": losses[:, 1],
        "nearest-neighbour error": hardness.nearest_neighbour_error(*parts),
        "smallest eigenvalue": hardness.smallest_eigenvalue(z),
    }
    judge = measures["loss after 10 steps"]
    out: dict[str, Any] = {
        "ranking": judge.argsort(descending=True).tolist(),
        "measures": {name: value.tolist() for name, value in measures.items()},
        "agreement": {name: hardness.rank_correlation(value, judge) for name, value in measures.items()},
        "head_rate": lr,
    }
    if kinds and len(set(kinds)) > 1:
        which = torch.tensor([sorted(set(kinds)).index(k) for k in kinds])
        out["by_kind"] = {
            kind: {name: float(value[which == i].mean()) for name, value in measures.items()}
            for i, kind in enumerate(sorted(set(kinds)))
        }
    return out


def render_estimates(result: dict[str, Any]) -> list[str]:
    """For people."""
    lines = [
        f"{result['tasks']} tasks, {result['samples']} samples each, {result['components']} directions "
        f"({100 * result['kept']:.1f} % of the features' second moment)"
    ]
    if result["applies"] or "nal" in result:
        low, high = result["gain_interval"]
        lines.append(f"predicted gain {result['gain']:.3f} (95 % over tasks: {low:.3f} to {high:.3f})")
        for name in ("nal", "maml"):
            part = result[name]
            lines.append(
                f"{name.upper():5} risk {part['risk']:.4g}, on hard tasks {part['risk_hard']:.4g}, "
                f"on easy tasks {part['risk_easy']:.4g}"
            )
        place = result["geography"]
        lines.append(
            "geography " + ", ".join(f"{k} {v[0]:.3g} ({v[1]:.3g}–{v[2]:.3g})" for k, v in place.items())
        )
        lines.append(f"one step of {result['inner_lr']:.4g} ({result['rate']}) on {result['shots']} samples")
        side = result["condition"]
        lines.append(
            f"ρ_H/ρ_E(1−ρ_H/ρ_E)² = {side['hardness']:.3g} against d/m = {side['dimension_per_shot']:.3g}; "
            f"effective dimension tr Σ/‖Σ‖ = {side['effective_dimension']:.3g} of {result['components']}, "
            f"over m {side['effective_per_shot']:.3g}"
        )
    else:
        lines.append("predicted gain 1, by symmetry")
    lines.append(f"because: {result['reason']}")
    hard = result["hardness"]
    lines.append(
        f"hardest tasks first (loss after 10 head steps): {', '.join(map(str, hard['ranking'][:8]))}, …"
    )
    shown = ", ".join(f"{name} {value:.2f}" for name, value in hard["agreement"].items() if "10" not in name)
    lines.append(f"rank correlation with that: {shown}")
    for kind, row in hard.get("by_kind", {}).items():
        lines.append(f"{kind}: " + ", ".join(f"{name} {value:.3g}" for name, value in row.items()))
    return lines
