"""Closed forms and estimators on arrays only: what can be said before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.theory import landscape as landscape
    from innerloop.theory import rate as rate
    from innerloop.theory.convergence import Rates as Rates
    from innerloop.theory.convergence import common_rate as common_rate
    from innerloop.theory.convergence import linear_distance as linear_distance
    from innerloop.theory.convergence import linear_loss as linear_loss
    from innerloop.theory.convergence import loss_bound as loss_bound
    from innerloop.theory.convergence import rates as rates
    from innerloop.theory.hardness import Hardness as Hardness
    from innerloop.theory.hardness import head_rate as head_rate
    from innerloop.theory.hardness import losses_after_steps as losses_after_steps
    from innerloop.theory.hardness import nearest_neighbour_error as nearest_neighbour_error
    from innerloop.theory.hardness import rank_correlation as rank_correlation
    from innerloop.theory.hardness import rank_tasks as rank_tasks
    from innerloop.theory.kernels import DepthStructure as DepthStructure
    from innerloop.theory.kernels import KernelComparison as KernelComparison
    from innerloop.theory.kernels import KernelRepeat as KernelRepeat
    from innerloop.theory.kernels import Learning as Learning
    from innerloop.theory.kernels import compare_kernels as compare_kernels
    from innerloop.theory.kernels import condition as condition
    from innerloop.theory.kernels import depth_structure as depth_structure
    from innerloop.theory.kernels import inverse_gap as inverse_gap
    from innerloop.theory.kernels import spectrum as spectrum
    from innerloop.theory.landscape.features import Step as Step
    from innerloop.theory.landscape.features import View as View
    from innerloop.theory.landscape.features import look_at as look_at
    from innerloop.theory.landscape.geography import ClosedLandscape as ClosedLandscape
    from innerloop.theory.landscape.geography import LandscapeSolution as LandscapeSolution
    from innerloop.theory.landscape.geography import Sides as Sides
    from innerloop.theory.landscape.geography import Unavoidable as Unavoidable
    from innerloop.theory.landscape.geography import closed_landscape as closed_landscape
    from innerloop.theory.landscape.permuted import PermutedGain as PermutedGain
    from innerloop.theory.landscape.permuted import PermutedLandscape as PermutedLandscape
    from innerloop.theory.landscape.permuted import PermutedSolutions as PermutedSolutions
    from innerloop.theory.landscape.permuted import permuted_landscape as permuted_landscape
    from innerloop.theory.landscape.permuted import (
        permuted_task_landscape as permuted_task_landscape,
    )
    from innerloop.theory.landscape.tasks import Estimate as Estimate
    from innerloop.theory.landscape.tasks import EstimatedSolution as EstimatedSolution
    from innerloop.theory.landscape.tasks import TaskLandscape as TaskLandscape
    from innerloop.theory.landscape.tasks import task_landscape as task_landscape
    from innerloop.theory.rate.linear import FormRate as FormRate
    from innerloop.theory.rate.linear import LinearTasks as LinearTasks
    from innerloop.theory.rate.linear import gaussian_basis as gaussian_basis
    from innerloop.theory.rate.linear import polynomial_basis as polynomial_basis
    from innerloop.theory.rate.linear import random_matrix as random_matrix
    from innerloop.theory.rate.linear import rate_by as rate_by
    from innerloop.theory.rate.linear import spread_centres as spread_centres
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.theory.convergence": "Rates common_rate linear_distance linear_loss loss_bound rates",
            "innerloop.theory.hardness": (
                "Hardness head_rate losses_after_steps nearest_neighbour_error rank_correlation rank_tasks"
            ),
            "innerloop.theory.kernels": (
                "DepthStructure KernelComparison KernelRepeat Learning compare_kernels condition "
                "depth_structure inverse_gap spectrum"
            ),
            "innerloop.theory.landscape.features": "Step View look_at",
            "innerloop.theory.landscape.geography": (
                "ClosedLandscape LandscapeSolution Sides Unavoidable closed_landscape"
            ),
            "innerloop.theory.landscape.permuted": (
                "PermutedGain PermutedLandscape PermutedSolutions permuted_landscape permuted_task_landscape"
            ),
            "innerloop.theory.landscape.tasks": "Estimate EstimatedSolution TaskLandscape task_landscape",
            "innerloop.theory.rate.linear": (
                "FormRate LinearTasks gaussian_basis polynomial_basis random_matrix rate_by spread_centres"
            ),
        },
        rooms="landscape rate",
    )
