"""Scores of untrained networks, by name in :data:`SCORES`.

A score is a pure function of a network, its parameters and a few tasks or inputs. It may make a shortlist;
published comparisons say that it cannot name a winner (see the documentation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.search.scores.conditions import Condition as Condition
    from innerloop.search.scores.conditions import fresh_head as fresh_head
    from innerloop.search.scores.conditions import metantk as metantk
    from innerloop.search.scores.conditions import metantk_condition as metantk_condition
    from innerloop.search.scores.conditions import ntk_condition as ntk_condition
    from innerloop.search.scores.gradients import gradient_norm as gradient_norm
    from innerloop.search.scores.gradients import synflow as synflow
    from innerloop.search.scores.gradients import zico as zico
    from innerloop.search.scores.patterns import Regions as Regions
    from innerloop.search.scores.patterns import linear_regions as linear_regions
    from innerloop.search.scores.patterns import naswot as naswot
    from innerloop.search.scores.ranks import rank_sums as rank_sums
    from innerloop.search.scores.size import flops as flops
    from innerloop.search.scores.size import layers as layers
    from innerloop.search.scores.size import parameters as parameters
    from innerloop.search.scores.table import SCORES as SCORES
    from innerloop.search.scores.tell import Score as Score
    from innerloop.search.scores.tell import score as score
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.search.scores.conditions": (
                "Condition fresh_head metantk metantk_condition ntk_condition"
            ),
            "innerloop.search.scores.gradients": "gradient_norm synflow zico",
            "innerloop.search.scores.patterns": "Regions linear_regions naswot",
            "innerloop.search.scores.ranks": "rank_sums",
            "innerloop.search.scores.size": "flops layers parameters",
            "innerloop.search.scores.table": "SCORES",
            "innerloop.search.scores.tell": "Score score",
        },
    )
