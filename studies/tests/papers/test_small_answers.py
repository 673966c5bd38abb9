"""Small functions of the studies, with answers that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from innerloop.core.statistics import Interval
from innerloop.kernels.types import Kernels
from innerloop_studies.measurements import proximal, sureness
from innerloop_studies.papers.adaptlr import examples, shared
from innerloop_studies.papers.bridge import corollary, fig1, pictures, table3
from innerloop_studies.papers.bridge.pictures import PictureRun
from innerloop_studies.papers.further.head_starts import PermutedRun
from innerloop_studies.papers.further.maml_permutations import spreads
from innerloop_studies.papers.further.rates import RateEntry, RateProblem
from innerloop_studies.papers.landscape import finite, linear

NAN = math.nan
ONE = torch.ones(1, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ours", "known"),
    [
        ([examples.printed_g1(3, i) for i in range(5)], examples.counts((1, 1), 3)),
        (examples.normal_moments(7, 2), [1, 0, 2, 0, 12, 0, 120]),
        (examples.polynomial_traces(1, 5, 1).rate, 0.5),  # S = K
        (examples.independent_traces([1, 0, 1, 0, 3, 0, 15], 1, 1), (3, 15, 1)),  # E Y⁴, E Y⁶
        (float(examples.adapted(torch.ones(1, 4, 1), 0.25)), 1.0),  # S = 4: (1 − ½)² · 4
        (examples.Eigenvalues(1.0, 1.0).proved(2), (1.0, 1.0)),
        (examples.epsilon(examples.Eigenvalues(2.0, 3.0), 0.0, 10), 0.75),  # λ_S/λ_I²
        (shared.errors_of([{"mean": 0.5}, {"mean": NAN}, {"mean": None}]), [0.5, math.inf, math.inf]),
        ([fig1.grows(means) for means in ([1, 2, 3], [2, 1, 3, 4], [2, 1, 1.5, 1.8])], [True, True, False]),
        (
            corollary.structure(Kernels(2 * torch.eye(2), 4 * torch.eye(2)), 2),
            {"scale": 2.0, "off": 0.0, "inverse_gap": 0.0},
        ),
        (pictures.percent(Interval(0.7, 0.011, 3)), "70.0 ± 1.1 %"),
        (pictures.percent(Interval(0.7, NAN, 1)), "70.0 %"),
        (pictures.middle_share([0.5, None, 0.7]), 0.7),
        (pictures.shares_in_words([0.5, None]), "0.50, never"),
        ([table3._side(points) for points in (0.4, -3.0)], ["comparable with", "worse than"]),
        (finite.chunks(5, 2**20), [2, 2, 1]),
        (float(linear.expected_ends(ONE, 20 * ONE, "nal", 500, 2)), 0.75),  # the rate is 1/40
        (spreads([PermutedRun([[0.25, 0.75, 0.5], [0.5, 0.5, 0.5]], [], [])]), [0.5, 0.0]),
    ],
)
def test_known_answers(ours: Any, known: Any) -> None:
    assert ours == known


def test_our_share_of_their_time() -> None:
    def run(*points: tuple[float, float]) -> PictureRun:
        curve = [{"validation": v, "seconds": s} for v, s in points]
        return PictureRun(curve, 9.0, 2, 2, curve[-1]["seconds"], {}, {})

    assert pictures.shares_of_time([run((0.5, 2.0), (0.7, 4.0))], [run((0.6, 4.0), (0.7, 8.0))]) == [0.5]


def test_regret_between_rates_and_the_factor_to_a_good_one() -> None:
    case = RateProblem("glyphs", 5, "none", 1)
    entry = RateEntry(case, [0.1, 0.1, 0.2, 0.3, 0.5, 0.4, 0.3, 0.2], 0.5, 0.3)
    assert [entry.between(0.3), entry.between(math.sqrt(0.3))] == pytest.approx([0.0, 0.05])
    assert RateEntry(case, [0.1] * 4 + [0.495, 0.5, 0.3, 0.2], 0.48, 0.1).factor == pytest.approx(3.0)


def test_tables_of_measurements() -> None:
    row = {"penalty": 2.0, "steps": 16, "lr": 0.1, "accuracy": 0.28}
    said = proximal.table([row | {key: [0.5, -2.0] for key in proximal.HEADING}]).splitlines()[2]
    assert said == "| 2 | 16 of 0.1 | 0.5 … −2 | 0.5 … −2 | 0.5 … −2 | 0.5 … −2 | 28 % |"
    half = {key: {"mean": 0.5, "ci95": 0.01} for key in sureness.HEADING}
    assert sureness.table({"drawings": half}).splitlines()[2].startswith("| drawings | 50.0 ± 1.0")
