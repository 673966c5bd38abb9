"""Scores of untrained networks, by name in :data:`SCORES`.

A score is a pure function of a network, its parameters and a few tasks or inputs. It may make a shortlist;
published comparisons say that it cannot name a winner (see the documentation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.choose.scores.conditions import ConditionNumber as ConditionNumber
    from innerloop.choose.scores.conditions import fresh_head as fresh_head
    from innerloop.choose.scores.conditions import metantk as metantk
    from innerloop.choose.scores.conditions import metantk_condition as metantk_condition
    from innerloop.choose.scores.conditions import ntk_condition as ntk_condition
    from innerloop.choose.scores.gradients import gradient_norm as gradient_norm
    from innerloop.choose.scores.gradients import synflow as synflow
    from innerloop.choose.scores.gradients import zico as zico
    from innerloop.choose.scores.patterns import Regions as Regions
    from innerloop.choose.scores.patterns import linear_regions as linear_regions
    from innerloop.choose.scores.patterns import naswot as naswot
    from innerloop.choose.scores.score_table import SCORES as SCORES
    from innerloop.choose.scores.score_table import rank_sums as rank_sums
    from innerloop.choose.scores.scoring import Score as Score
    from innerloop.choose.scores.scoring import score as score
    from innerloop.choose.scores.sizes import flops as flops
    from innerloop.choose.scores.sizes import layers as layers
    from innerloop.choose.scores.sizes import parameters as parameters
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.choose.scores.conditions": (
                "ConditionNumber fresh_head metantk metantk_condition ntk_condition"
            ),
            "innerloop.choose.scores.gradients": "gradient_norm synflow zico",
            "innerloop.choose.scores.patterns": "Regions linear_regions naswot",
            "innerloop.choose.scores.scoring": "Score score",
            "innerloop.choose.scores.sizes": "flops layers parameters",
            "innerloop.choose.scores.score_table": "SCORES rank_sums",
        },
    )
