"""The adaptation learning rate (AdaptLR): estimates from features, closed forms, and their bracket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.theory.rate.bracket import Bracket as Bracket
    from innerloop.theory.rate.bracket import bracket as bracket
    from innerloop.theory.rate.bracket import gradient_moments as gradient_moments
    from innerloop.theory.rate.bracket import step_divisor as step_divisor
    from innerloop.theory.rate.estimate import Bounds as Bounds
    from innerloop.theory.rate.estimate import RateRange as RateRange
    from innerloop.theory.rate.estimate import bounds as bounds
    from innerloop.theory.rate.estimate import limit_moments as limit_moments
    from innerloop.theory.rate.estimate import loss_constant as loss_constant
    from innerloop.theory.rate.estimate import merged_range as merged_range
    from innerloop.theory.rate.estimate import merged_rate as merged_rate
    from innerloop.theory.rate.estimate import split_moments as split_moments
    from innerloop.theory.rate.estimate import stacked_rate as stacked_rate
    from innerloop.theory.rate.estimate import variance_rate as variance_rate
    from innerloop.theory.rate.forms import StepRates as StepRates
    from innerloop.theory.rate.forms import Sums as Sums
    from innerloop.theory.rate.forms import adapted_distance as adapted_distance
    from innerloop.theory.rate.forms import adapted_loss as adapted_loss
    from innerloop.theory.rate.forms import add_sums as add_sums
    from innerloop.theory.rate.forms import best_rate as best_rate
    from innerloop.theory.rate.forms import erm_solution as erm_solution
    from innerloop.theory.rate.forms import labelled_sums as labelled_sums
    from innerloop.theory.rate.forms import maml_solution as maml_solution
    from innerloop.theory.rate.forms import risk as risk
    from innerloop.theory.rate.forms import risk_curve as risk_curve
    from innerloop.theory.rate.forms import step_rates as step_rates
    from innerloop.theory.rate.forms import task_sums as task_sums
    from innerloop.theory.rate.forms import trajectory as trajectory
    from innerloop.theory.rate.moments import Moments as Moments
    from innerloop.theory.rate.moments import interval_of as interval_of
    from innerloop.theory.rate.moments import stream as stream
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.theory.rate.bracket": "Bracket bracket gradient_moments step_divisor",
            "innerloop.theory.rate.estimate": (
                "Bounds RateRange bounds limit_moments loss_constant merged_range merged_rate "
                "split_moments stacked_rate variance_rate"
            ),
            "innerloop.theory.rate.forms": (
                "StepRates Sums adapted_distance adapted_loss add_sums best_rate erm_solution "
                "labelled_sums maml_solution risk risk_curve step_rates task_sums trajectory"
            ),
            "innerloop.theory.rate.moments": "Moments interval_of stream",
        },
    )
