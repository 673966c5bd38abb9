"""What people read of ``analyze convergence``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from innerloop.choose.analysis.convergence import Settings
    from innerloop.training.convergence import Convergence


def words(result: Convergence, settings: Settings) -> list[str]:
    """The constants, the course, and the network beside its limit if one was trained."""
    loss, bound, trained = result.loss, result.bound, result.trained
    lines = [
        f"{settings.method} on {settings.tasks}, L = {settings.depth}, width {settings.width:g}: "
        f"σ_min {result.sigma_min:.4g}, σ_max {result.sigma_max:.4g}, condition {result.condition:.4g}",
        f"η₀ = {result.eta0:.4g}, trained with η = {result.eta:.4g}",
        f"loss {loss[0]:.4g} → {loss[-1]:.4g} after {result.steps} steps; bound {bound[-1]:.4g}: "
        f"{'holds at every step' if result.holds else 'does NOT hold at every step'}",
    ]
    if trained is not None:
        lines.append(
            f"parameters moved {trained.movement:.3g} (way/√width); distance {trained.distance:.3g}, "
            f"of a linear network that starts at zero {result.linear_distance:.3g}; kernel drifted "
            f"{100 * trained.kernel_drift_relative:.2g} %; Φ̂₀ differs from Φ by "
            f"{100 * trained.kernel_error:.2g} %"
        )
    return lines
