"""How well a score predicts: against scipy and scikit-learn, ties included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import ndcg_score

from innerloop.choose.validation import agreement, better_half, split_half
from innerloop.testing.closeness import LAST_BITS, ROUNDED


def _drawn(seed: int, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    score = random.normal(size=17)
    accuracy = 0.3 + 0.1 * random.random(17) + 0.02 * score
    return (np.round(score), np.round(accuracy, 2)) if ties else (score, accuracy)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_measures_agree_with_scipy_and_scikit_learn(seed: int, ties: bool) -> None:
    score, accuracy = _drawn(seed, ties)
    agreed = agreement(score.tolist(), accuracy.tolist(), resamples=10)
    assert agreed.spearman.value == pytest.approx(spearmanr(score, accuracy).statistic, abs=ROUNDED)
    assert agreed.kendall.value == pytest.approx(kendalltau(score, accuracy).statistic, abs=ROUNDED)
    gain = (accuracy - accuracy.min()) / (accuracy.max() - accuracy.min())
    assert agreed.ndcg.value == pytest.approx(ndcg_score(gain[None], score[None]), abs=ROUNDED)
    top = accuracy[score == score.max()].mean()
    assert agreed.regret.value == pytest.approx(accuracy.max() - top, abs=LAST_BITS)


def test_intervals_are_those_of_a_bootstrap_that_loops() -> None:
    score, accuracy = _drawn(3, ties=False)
    agreed = agreement(score.tolist(), accuracy.tolist(), seed=5, resamples=200)
    drawn = np.random.default_rng(5).integers(0, 17, (200, 17))
    again = [spearmanr(score[rows], accuracy[rows]).statistic for rows in drawn]
    low, high = np.percentile(again, [2.5, 97.5])
    assert (agreed.spearman.low, agreed.spearman.high) == pytest.approx((low, high), abs=ROUNDED)
    regret = [accuracy[rows].max() - accuracy[rows][score[rows].argmax()] for rows in drawn]
    assert agreed.regret.high == pytest.approx(np.percentile(regret, 97.5), abs=ROUNDED)


def test_what_is_not_a_number_comes_last_and_constants_tell_nothing() -> None:
    accuracy = [0.5, 0.4, 0.3, 0.2]
    last = agreement([3.0, 2.0, 1.0, math.nan], accuracy, resamples=10)
    assert last.spearman.value == 1.0
    infinite = agreement([-math.inf, -2.0, -1.0, -math.inf], accuracy, resamples=10)
    assert math.isfinite(infinite.kendall.value)
    constant = agreement([1.0] * 4, accuracy, resamples=10)
    assert (constant.spearman.value, constant.kendall.value) == (0.0, 0.0)
    assert constant.regret.value == pytest.approx(0.5 - 0.35)


def test_the_better_half_and_split_halves() -> None:
    assert better_half([0.1, 0.4, 0.2, 0.3]) == [1, 3]
    random = np.random.default_rng(0)
    skill = np.linspace(0, 1, 30)
    noise = random.normal(size=(30, 400))
    assert split_half((10 * skill[:, None] + noise).tolist()) > 0.99
    assert abs(split_half(noise.tolist())) < 0.5
