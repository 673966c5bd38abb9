"""What can be said before training: estimates for a network on its tasks, as typed results.

The inner rate (:func:`advise_rate`, :func:`rate_by`), whether MAML is worth it (:func:`closed_landscape`,
:func:`task_landscape`, :func:`permuted_landscape`), kernels of meta-learners (:func:`compare_kernels`), the
bound on a training loss (:func:`follow_bound`) and linear regions (:func:`count_regions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.advice.convergence import Convergence as Convergence
    from innerloop.advice.convergence import MetaMethod as MetaMethod
    from innerloop.advice.convergence import Trained as Trained
    from innerloop.advice.convergence import Wide as Wide
    from innerloop.advice.convergence import follow_bound as follow_bound
    from innerloop.advice.hardness import Hardness as Hardness
    from innerloop.advice.hardness import rank_tasks as rank_tasks
    from innerloop.advice.kernels import Drawn as Drawn
    from innerloop.advice.kernels import KernelComparison as KernelComparison
    from innerloop.advice.kernels import Learning as Learning
    from innerloop.advice.kernels import compare_kernels as compare_kernels
    from innerloop.advice.landscape import ClosedLandscape as ClosedLandscape
    from innerloop.advice.landscape import Place as Place
    from innerloop.advice.landscape import Sides as Sides
    from innerloop.advice.landscape import Unavoidable as Unavoidable
    from innerloop.advice.landscape import closed_landscape as closed_landscape
    from innerloop.advice.landscape_features import Step as Step
    from innerloop.advice.landscape_features import View as View
    from innerloop.advice.landscape_features import look_at as look_at
    from innerloop.advice.landscape_permuted import Checked as Checked
    from innerloop.advice.landscape_permuted import PermutedLandscape as PermutedLandscape
    from innerloop.advice.landscape_permuted import permuted_landscape as permuted_landscape
    from innerloop.advice.landscape_tasks import Estimate as Estimate
    from innerloop.advice.landscape_tasks import EstimatedPlace as EstimatedPlace
    from innerloop.advice.landscape_tasks import TaskLandscape as TaskLandscape
    from innerloop.advice.landscape_tasks import task_landscape as task_landscape
    from innerloop.advice.rate import advise_rate as advise_rate
    from innerloop.advice.rate_forms import FormRate as FormRate
    from innerloop.advice.rate_forms import LinearTasks as LinearTasks
    from innerloop.advice.rate_forms import rate_by as rate_by
    from innerloop.advice.rate_judged import JudgedRate as JudgedRate
    from innerloop.advice.rate_judged import judge_rate as judge_rate
    from innerloop.advice.rate_record import RateAdvice as RateAdvice
    from innerloop.advice.rate_record import warning_for as warning_for
    from innerloop.advice.regions import RegionCount as RegionCount
    from innerloop.advice.regions import count_regions as count_regions
    from innerloop.advice.regions import different_inputs as different_inputs
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.advice.convergence": "Convergence MetaMethod Trained Wide follow_bound",
            "innerloop.advice.hardness": "Hardness rank_tasks",
            "innerloop.advice.kernels": "Drawn KernelComparison Learning compare_kernels",
            "innerloop.advice.landscape": "ClosedLandscape Place Sides Unavoidable closed_landscape",
            "innerloop.advice.landscape_features": "Step View look_at",
            "innerloop.advice.landscape_permuted": "Checked PermutedLandscape permuted_landscape",
            "innerloop.advice.landscape_tasks": "Estimate EstimatedPlace TaskLandscape task_landscape",
            "innerloop.advice.rate": "advise_rate",
            "innerloop.advice.rate_forms": "FormRate LinearTasks rate_by",
            "innerloop.advice.rate_judged": "JudgedRate judge_rate",
            "innerloop.advice.rate_record": "RateAdvice warning_for",
            "innerloop.advice.regions": "RegionCount count_regions different_inputs",
        },
    )
