"""What to choose before training: one race between recipes, behind `advise`, `search` and `inner.lr=auto`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.choose import scores as scores
    from innerloop.choose.advice import Advice as Advice
    from innerloop.choose.advice import Recommendation as Recommendation
    from innerloop.choose.advice import Row as Row
    from innerloop.choose.advisor import advise as advise
    from innerloop.choose.architectures.draws import Draw as Draw
    from innerloop.choose.architectures.draws import Draws as Draws
    from innerloop.choose.architectures.draws import PictureDraws as PictureDraws
    from innerloop.choose.architectures.findings import EdgeDecision as EdgeDecision
    from innerloop.choose.architectures.findings import PruningReliability as PruningReliability
    from innerloop.choose.architectures.findings import RankedCandidate as RankedCandidate
    from innerloop.choose.architectures.findings import Round as Round
    from innerloop.choose.architectures.findings import SearchOutcome as SearchOutcome
    from innerloop.choose.architectures.findings import ShortlistReliability as ShortlistReliability
    from innerloop.choose.architectures.ranking import Scores as Scores
    from innerloop.choose.architectures.ranking import score_candidates as score_candidates
    from innerloop.choose.architectures.search import METHODS as METHODS
    from innerloop.choose.architectures.search import search as search
    from innerloop.choose.architectures.space import SPACES as SPACES
    from innerloop.choose.architectures.space import ConvVariant as ConvVariant
    from innerloop.choose.architectures.space import Space as Space
    from innerloop.choose.architectures.space import candidates as candidates
    from innerloop.choose.architectures.space import cell_space as cell_space
    from innerloop.choose.architectures.space import conv_space as conv_space
    from innerloop.choose.architectures.space import get_space as get_space
    from innerloop.choose.architectures.space import random_candidate as random_candidate
    from innerloop.choose.architectures.space import random_of_size as random_of_size
    from innerloop.choose.architectures.space import size_of as size_of
    from innerloop.choose.estimates import HardGroup as HardGroup
    from innerloop.choose.estimates import HardnessPart as HardnessPart
    from innerloop.choose.estimates import LandscapePart as LandscapePart
    from innerloop.choose.estimates import RatePart as RatePart
    from innerloop.choose.rate_advice import RateAdvice as RateAdvice
    from innerloop.choose.rate_advice import RateCheck as RateCheck
    from innerloop.choose.rate_advice import advise_rate as advise_rate
    from innerloop.choose.rate_advice import judge_rate as judge_rate
    from innerloop.choose.rate_advice import warning_for as warning_for
    from innerloop.choose.scores.patterns import RegionCount as RegionCount
    from innerloop.choose.scores.patterns import count_regions as count_regions
    from innerloop.choose.scores.patterns import different_inputs as different_inputs
    from innerloop.choose.scores.sizes import Size as Size
    from innerloop.choose.scores.sizes import count_parameters as count_parameters
    from innerloop.choose.scores.sizes import network_size as network_size
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.choose.advice": "Advice Recommendation Row",
            "innerloop.choose.advisor": "advise",
            "innerloop.choose.architectures.draws": "Draw Draws PictureDraws",
            "innerloop.choose.architectures.findings": (
                "EdgeDecision PruningReliability RankedCandidate Round SearchOutcome ShortlistReliability"
            ),
            "innerloop.choose.architectures.search": "METHODS search",
            "innerloop.choose.architectures.ranking": "Scores score_candidates",
            "innerloop.choose.architectures.space": (
                "ConvVariant SPACES Space candidates cell_space conv_space get_space random_candidate "
                "random_of_size size_of"
            ),
            "innerloop.choose.estimates": "HardGroup HardnessPart LandscapePart RatePart",
            "innerloop.choose.rate_advice": "RateAdvice RateCheck advise_rate judge_rate warning_for",
            "innerloop.choose.scores.sizes": "Size count_parameters network_size",
            "innerloop.choose.scores.patterns": "RegionCount count_regions different_inputs",
        },
        rooms="scores",
    )
