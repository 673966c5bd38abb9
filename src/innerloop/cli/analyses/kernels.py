"""What people read of ``analyze kernels``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from innerloop.choose.analysis.kernels import Settings
    from innerloop.theory.estimates.kernels import KernelComparison


def words(result: KernelComparison, settings: Settings) -> list[str]:
    """The gap, the spectrum that was asked for, and all condition numbers."""
    s, values = settings, result.eigenvalues
    lines = [
        f"{s.tasks}, {s.network}, L = {s.depth}, width {s.width:g}, {s.heads} heads, "
        f"{s.n_tasks} tasks × {s.shots + s.queries} samples",
        f"‖F_ANIL − F_MTL‖ = {result.mtl_anil_gap:.4g} ± {result.mtl_anil_gap_se:.2g} (standard error, "
        f"{s.repeats} repeats × {s.test_tasks} test tasks)",
        f"{result.kernel} kernel: eigenvalues {values[0]:.4g}, {values[min(1, len(values) - 1)]:.4g} … "
        f"{values[-1]:.4g}",
    ]
    return lines + [f"condition number of {name}: {value:.4g}" for name, value in result.conditions.items()]
