"""What to choose before training: one race between recipes, behind `advise`, `search` and `inner.lr=auto`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.choose import scores as scores
    from innerloop.choose.advisor.in_python import advise as advise
    from innerloop.choose.advisor.result import Advice as Advice
    from innerloop.choose.advisor.result import HardGroup as HardGroup
    from innerloop.choose.advisor.result import HardnessPart as HardnessPart
    from innerloop.choose.advisor.result import LandscapePart as LandscapePart
    from innerloop.choose.advisor.result import RatePart as RatePart
    from innerloop.choose.advisor.result import Recommendation as Recommendation
    from innerloop.choose.advisor.result import Row as Row
    from innerloop.choose.architectures.draws import Draw as Draw
    from innerloop.choose.architectures.draws import Draws as Draws
    from innerloop.choose.architectures.draws import PictureDraws as PictureDraws
    from innerloop.choose.architectures.found import EdgeDecision as EdgeDecision
    from innerloop.choose.architectures.found import Found as Found
    from innerloop.choose.architectures.found import PruningReliability as PruningReliability
    from innerloop.choose.architectures.found import Ranked as Ranked
    from innerloop.choose.architectures.found import Round as Round
    from innerloop.choose.architectures.found import ShortlistReliability as ShortlistReliability
    from innerloop.choose.architectures.methods import METHODS as METHODS
    from innerloop.choose.architectures.methods import search as search
    from innerloop.choose.architectures.scoring import Scores as Scores
    from innerloop.choose.architectures.scoring import score_candidates as score_candidates
    from innerloop.choose.architectures.size import Size as Size
    from innerloop.choose.architectures.size import count_parameters as count_parameters
    from innerloop.choose.architectures.size import network_size as network_size
    from innerloop.choose.architectures.space import Space as Space
    from innerloop.choose.architectures.space import candidates as candidates
    from innerloop.choose.architectures.space import random_candidate as random_candidate
    from innerloop.choose.architectures.space import random_of_size as random_of_size
    from innerloop.choose.architectures.space import size_of as size_of
    from innerloop.choose.architectures.spaces import SPACES as SPACES
    from innerloop.choose.architectures.spaces import ConvVariant as ConvVariant
    from innerloop.choose.architectures.spaces import cell_space as cell_space
    from innerloop.choose.architectures.spaces import conv_space as conv_space
    from innerloop.choose.architectures.spaces import get_space as get_space
    from innerloop.choose.rate import advise_rate as advise_rate
    from innerloop.choose.rate_record import JudgedRate as JudgedRate
    from innerloop.choose.rate_record import RateAdvice as RateAdvice
    from innerloop.choose.rate_record import judge_rate as judge_rate
    from innerloop.choose.rate_record import warning_for as warning_for
    from innerloop.choose.regions import RegionCount as RegionCount
    from innerloop.choose.regions import count_regions as count_regions
    from innerloop.choose.regions import different_inputs as different_inputs
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.choose.advisor.in_python": "advise",
            "innerloop.choose.advisor.result": (
                "Advice HardGroup HardnessPart LandscapePart RatePart Recommendation Row"
            ),
            "innerloop.choose.architectures.draws": "Draw Draws PictureDraws",
            "innerloop.choose.architectures.found": (
                "EdgeDecision Found PruningReliability Ranked Round ShortlistReliability"
            ),
            "innerloop.choose.architectures.methods": "METHODS search",
            "innerloop.choose.architectures.scoring": "Scores score_candidates",
            "innerloop.choose.architectures.size": "Size count_parameters network_size",
            "innerloop.choose.architectures.space": (
                "Space candidates random_candidate random_of_size size_of"
            ),
            "innerloop.choose.architectures.spaces": "ConvVariant SPACES cell_space conv_space get_space",
            "innerloop.choose.rate": "advise_rate",
            "innerloop.choose.rate_record": "JudgedRate RateAdvice judge_rate warning_for",
            "innerloop.choose.regions": "RegionCount count_regions different_inputs",
        },
        rooms="scores",
    )
