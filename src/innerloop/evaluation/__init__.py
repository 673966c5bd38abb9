"""Scoring learners and heads on held-out tasks, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.evaluation.comparison import Comparison as Comparison
    from innerloop.evaluation.comparison import compare as compare
    from innerloop.evaluation.comparison import over_seeds as over_seeds
    from innerloop.evaluation.episodes import Episodes as Episodes
    from innerloop.evaluation.frozen import evaluate_features as evaluate_features
    from innerloop.evaluation.frozen import evaluate_head as evaluate_head
    from innerloop.evaluation.heads import HEADS as HEADS
    from innerloop.evaluation.heads import fit_heads as fit_heads
    from innerloop.evaluation.heads import head_scores as head_scores
    from innerloop.evaluation.protocol import Protocol as Protocol
    from innerloop.evaluation.scores import ByOrder as ByOrder
    from innerloop.evaluation.scores import EpisodePredictions as EpisodePredictions
    from innerloop.evaluation.scores import Evaluation as Evaluation
    from innerloop.evaluation.scores import by_label_order as by_label_order
    from innerloop.evaluation.scores import evaluate as evaluate
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.evaluation.comparison": "Comparison compare over_seeds",
            "innerloop.evaluation.episodes": "Episodes",
            "innerloop.evaluation.frozen": "evaluate_features evaluate_head",
            "innerloop.evaluation.heads": "HEADS fit_heads head_scores",
            "innerloop.evaluation.scores": "ByOrder Evaluation EpisodePredictions by_label_order evaluate",
            "innerloop.evaluation.protocol": "Protocol",
        },
    )
