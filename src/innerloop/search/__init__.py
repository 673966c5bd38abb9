"""Architectures for few-shot problems: spaces, sizes, scores before training, and searches by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.search import scores as scores
    from innerloop.search.draws import Draw as Draw
    from innerloop.search.draws import Draws as Draws
    from innerloop.search.draws import PictureDraws as PictureDraws
    from innerloop.search.found import EdgeDecision as EdgeDecision
    from innerloop.search.found import Found as Found
    from innerloop.search.found import PruningReliability as PruningReliability
    from innerloop.search.found import Ranked as Ranked
    from innerloop.search.found import Round as Round
    from innerloop.search.found import ShortlistReliability as ShortlistReliability
    from innerloop.search.methods import METHODS as METHODS
    from innerloop.search.methods import search as search
    from innerloop.search.scoring import Scores as Scores
    from innerloop.search.scoring import score_candidates as score_candidates
    from innerloop.search.size import Size as Size
    from innerloop.search.size import count_parameters as count_parameters
    from innerloop.search.size import network_size as network_size
    from innerloop.search.space import Space as Space
    from innerloop.search.space import candidates as candidates
    from innerloop.search.space import random_candidate as random_candidate
    from innerloop.search.space import random_of_size as random_of_size
    from innerloop.search.space import size_of as size_of
    from innerloop.search.spaces import SPACES as SPACES
    from innerloop.search.spaces import ConvVariant as ConvVariant
    from innerloop.search.spaces import cell_space as cell_space
    from innerloop.search.spaces import conv_space as conv_space
    from innerloop.search.spaces import get_space as get_space
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.search.draws": "Draw Draws PictureDraws",
            "innerloop.search.found": (
                "EdgeDecision Found PruningReliability Ranked Round ShortlistReliability"
            ),
            "innerloop.search.methods": "METHODS search",
            "innerloop.search.scoring": "Scores score_candidates",
            "innerloop.search.size": "Size count_parameters network_size",
            "innerloop.search.space": "Space candidates random_candidate random_of_size size_of",
            "innerloop.search.spaces": "SPACES ConvVariant cell_space conv_space get_space",
        },
        rooms="scores",
    )
