"""What people read of ``analyze landscape``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from innerloop.choose.analysis.landscape import Landscape, Settings
    from innerloop.theory.estimates.hardness import Hardness
    from innerloop.theory.estimates.landscape import ClosedLandscape
    from innerloop.theory.estimates.landscape_features import View
    from innerloop.theory.estimates.landscape_tasks import TaskLandscape


def words(result: Landscape, _settings: Settings) -> list[str]:
    """The gain, where both solutions lie, and how hard the tasks are."""
    from innerloop.theory.estimates.landscape import ClosedLandscape
    from innerloop.theory.estimates.landscape_tasks import TaskLandscape

    if isinstance(result, ClosedLandscape):
        return _closed(result)
    symmetric = ["predicted gain 1, by symmetry"]
    predicted = _predicted(result) if isinstance(result, TaskLandscape) else symmetric
    if isinstance(result, TaskLandscape) and result.applies:
        return [_seen(result.view), *predicted, f"because: {result.reason}", *_ranked(result.hardness)]
    return [
        "whether MAML is worth it here cannot be told before training; `innerloop advise` measures it",
        f"because: {result.reason}",
        f"{_seen(result.view)}; of a linear model alone:",
        *predicted,
        *_ranked(result.hardness),
    ]


def _closed(result: ClosedLandscape) -> list[str]:
    lines = [f"{'':6}{'coordinate':>12}{'risk':>12}{'on hard':>12}{'on easy':>12}"]
    for name, place in (("NAL", result.nal), ("MAML", result.maml)):
        numbers = (place.coordinate, place.risk, place.risk_hard, place.risk_easy)
        lines.append(f"{name:6}" + "".join(f"{number:>12.4g}" for number in numbers))
    sides = result.condition
    size = "≫" if result.holds else ">" if sides.ratio > 1 else "<"
    return [
        *lines,
        f"gain {result.gain:.3f}: NAL's excess risk over MAML's, after a step of {result.inner_lr:.4g}",
        f"ρ_H/ρ_E(1−ρ_H/ρ_E)² = {sides.hardness:.4g} {size} d/m = {sides.dimension_per_shot:.4g} "
        f"(effective dimension tr Σ/‖Σ‖ = {sides.effective_dimension:g}: inputs are isotropic); "
        f"where ≫ and α = 1/ρ_E the gain tends to {result.limiting_gain:.3f}",
        f"irreducible, in neither risk: noise {result.irreducible.noise:.3g}, "
        f"through the step {result.irreducible.step:.3g}",
    ]


def _seen(view: View) -> str:
    tasks, samples, components = view.z.shape
    share = f"{100 * view.kept:.1f} % of the features' second moment"
    return f"{tasks} tasks, {samples} samples each, {components} directions ({share})"


def _predicted(result: TaskLandscape) -> list[str]:
    gain, sides = result.gain, result.condition
    places = (("NAL", result.nal), ("MAML", result.maml))
    named = ", ".join(f"{k} {v.value:.3g} ({v.low:.3g}–{v.high:.3g})" for k, v in result.geography.items())
    return [
        f"predicted gain {gain.value:.3f} (95 % over tasks: {gain.low:.3f} to {gain.high:.3f})",
        *(
            f"{name:5} risk {place.risk.value:.4g}, on hard tasks {place.risk_hard.value:.4g}, "
            f"on easy tasks {place.risk_easy.value:.4g}"
            for name, place in places
        ),
        f"geography {named}",
        f"one step of {result.inner_lr:.4g} ({result.rate}) on {result.shots} samples",
        f"ρ_H/ρ_E(1−ρ_H/ρ_E)² = {sides.hardness:.3g} against d/m = {sides.dimension_per_shot:.3g}; "
        f"effective dimension tr Σ/‖Σ‖ = {sides.effective_dimension:.3g} of {result.view.z.shape[2]}, "
        f"over m {sides.effective_per_shot:.3g}",
    ]


def _ranked(hardness: Hardness) -> list[str]:
    first = ", ".join(map(str, hardness.ranking[:8]))
    shown = ", ".join(f"{name} {value:.2f}" for name, value in hardness.agreement.items() if "10" not in name)
    kinds = (hardness.by_kind or {}).items()
    return [
        f"hardest tasks first (loss after 10 head steps): {first}, …",
        f"rank correlation with that: {shown}",
        *(
            f"{kind}: " + ", ".join(f"{name} {value:.3g}" for name, value in row.items())
            for kind, row in kinds
        ),
    ]
