"""How sure a head may be: against loops in the open, simulations, and numbers on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from innerloop.classify import (
    calibration_error,
    copies_of,
    expected_accuracy,
    fitted_temperature,
    hold_out,
    learning_curve,
    sureness_of,
)
from innerloop.classify.cross_validation import HeldOut, class_means, divisions, nearest
from innerloop.classify.heads import HeadSettings
from innerloop.classify.sureness import share_of
from innerloop.evaluation.heads import fit_heads, head_scores
from innerloop.testing.closeness import ROUNDED, SOLVED


def drawn(ways=4, shots=5, size=12, noise=1.0, seed=0, more=0):
    """Examples of Gaussian classes, and more of the same classes."""
    draw = torch.Generator().manual_seed(seed)
    means = torch.randn(ways, size, generator=draw, dtype=torch.float64)
    y = torch.arange(ways).repeat_interleave(shots + more)
    z = means[y] + noise * torch.randn(len(y), size, generator=draw, dtype=torch.float64)
    first = torch.arange(len(y)) % (shots + more) < shots
    return z[first], y[first], z[~first], y[~first]


def test_every_example_is_left_out_once_in_each_repeat_with_one_of_each_class():
    y = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    made = divisions(y, seed=3, repeats=4)
    assert len(made) == 12
    for repeat in range(4):
        out = [d.left_out for d in made[3 * repeat : 3 * repeat + 3]]
        assert sorted(np.concatenate(out).tolist()) == list(range(9))
        assert all(sorted(y[left].tolist()) == [0, 1, 2] for left in out)
    assert all(set(d.kept) | set(d.left_out) == set(range(9)) and len(d.kept) == 6 for d in made)


def test_uneven_classes_always_keep_an_example_to_learn_from():
    y = np.array([0, 1, 1, 2, 2, 2, 2, 2])
    for division in divisions(y, seed=0):
        assert set(y[division.kept]) == {0, 1, 2}
        assert 0 not in y[division.left_out]
    assert divisions(np.arange(4), seed=0) == []


@pytest.mark.parametrize("shots", [2, 5])
def test_held_out_scores_are_those_of_a_loop_with_scikit_learn(shots):
    z, y, _, _ = drawn(shots=shots)
    held_out = hold_out(z, y, 4, HeadSettings("logistic", 0.8, True), seed=1)
    x, row = (z / z.norm(dim=1, keepdim=True)).numpy(), 0
    for division in divisions(y.numpy(), 1):
        model = LogisticRegression(C=0.8, tol=1e-12, solver="newton-cholesky")
        model.fit(x[division.kept], y[division.kept].numpy())
        rows = slice(row, row + len(division.left_out))
        expected = model.predict_proba(x[division.left_out])
        np.testing.assert_allclose(held_out.scores[rows].softmax(-1).numpy(), expected, atol=SOLVED)
        assert held_out.places[rows].tolist() == division.left_out.tolist()
        row = rows.stop
    assert row == len(held_out.scores)


def test_leaving_out_one_alone_would_be_unfair():
    """Left out alone, examples that tell nothing are wrong far more often than by chance."""
    ways, shots, hits = 2, 4, []
    for seed in range(30):
        z = torch.randn(ways * shots, 20, generator=torch.Generator().manual_seed(seed))
        y = np.repeat(np.arange(ways), shots)
        x = (z / z.norm(dim=1, keepdim=True)).numpy()
        for out in range(len(y)):
            kept = np.arange(len(y)) != out
            hits.append(LogisticRegression(C=0.1).fit(x[kept], y[kept]).predict(x[[out]])[0] == y[out])
    assert np.mean(hits) < 0.2
    fair = [
        expected_accuracy(hold_out(*_noise(seed), ways, HeadSettings("logistic", 0.1)), "ab").accuracy.value
        for seed in range(30)
    ]
    assert abs(np.mean(fair) - 0.5) < 0.12


def _noise(seed):
    z = torch.randn(8, 20, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z, torch.arange(2).repeat_interleave(4)


def test_the_expected_accuracy_is_what_new_examples_see():
    """Over many problems: unbiased within a few points, and the interval holds as often as it says."""
    errors, inside = [], []
    for seed in range(60):
        z, y, new, truth = drawn(ways=3, shots=8, noise=2.0, seed=seed, more=60)
        told = expected_accuracy(hold_out(z, y, 3, seed=seed), list("abc")).accuracy
        x = [v / v.norm(dim=1, keepdim=True) for v in (z, new)]
        reached = LogisticRegression(C=1.0).fit(x[0].numpy(), y.numpy()).score(x[1].numpy(), truth.numpy())
        errors.append(told.value - reached)
        inside.append(told.low <= reached <= told.high)
    assert -0.06 < np.mean(errors) < 0.03  # heads that were judged had an example fewer
    assert np.mean(inside) > 0.85


def test_classes_and_confused_pairs_are_named():
    scores = torch.tensor([[2.0, 1, 0], [0, 2, 1], [0, 2, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]])
    labels, places = torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(6)
    told = expected_accuracy(HeldOut(scores, labels, places, torch.zeros(6), 6), ["a", "b", "c"])
    assert told.accuracy.value == pytest.approx(4 / 6)
    assert [told.by_class[name].value for name in "abc"] == [0.5, 0.5, 1.0]
    assert told.confused == [("a", "b", 0.5), ("b", "c", 0.5)]


def test_wilsons_interval_as_printed():
    """Numbers of Wilson's interval for 8 of 10 (Agresti and Coull 1998, Newcombe 1998)."""
    interval = share_of([1.0] * 8 + [0.0] * 2)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.4902, 0.9433)


def test_the_temperature_is_found_again():
    """Scores that are four times too large, of labels drawn from the right ones."""
    draw = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(4000, 5, generator=draw, dtype=torch.float64)
    labels = torch.multinomial(scores.softmax(-1), 1, generator=draw)[:, 0]
    assert fitted_temperature(4 * scores, labels, 4000) == pytest.approx(4, rel=0.08)
    before, after = (calibration_error((4 * scores / t).softmax(-1), labels) for t in (1.0, 4.0))
    assert after < 0.03 < 0.1 < before


def test_a_temperature_stays_finite_where_all_is_right():
    scores = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    T = fitted_temperature(scores, torch.tensor([0, 1]), 2)
    grid = np.exp(np.linspace(-4, 4, 20001))
    cost = [2 * math.log1p(math.exp(-3 / t)) + math.log(t) ** 2 / (2 * 1.5**2) for t in grid]
    assert pytest.approx(grid[int(np.argmin(cost))], rel=1e-3) == T


def test_the_calibration_error_of_a_loop():
    draw = torch.Generator().manual_seed(1)
    probabilities = torch.randn(300, 4, generator=draw).softmax(-1)
    labels = torch.randint(4, (300,), generator=draw)
    total = 0.0
    for b in range(15):
        confidence, said = probabilities.double().max(1)
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            gap = (said[inside] == labels[inside]).double().mean() - confidence[inside].mean()
            total += float(inside.sum() * gap.abs()) / 300
    assert calibration_error(probabilities, labels) == pytest.approx(total, abs=ROUNDED)


def test_distances_of_a_loop():
    z, y, new, _ = drawn(more=3)
    distances = nearest(class_means(z, y, 4), new)
    x, q = (v / v.norm(dim=1, keepdim=True) for v in (z, new))
    means = [x[y == c].mean(0) for c in range(4)]
    assert distances.tolist() == pytest.approx([min(float((row - m).norm()) for m in means) for row in q])


@pytest.mark.parametrize(("shots", "alpha"), [(10, 0.05), (2, 0.1)])
def test_false_alarms_are_as_rare_as_promised(shots, alpha):
    """Over many problems, of new examples of the classes at most the promised share is called far."""
    rates, promised, strangers = [], [], []
    for seed in range(40):
        z, y, new, _ = drawn(ways=4, shots=shots, seed=seed, more=30, noise=0.5)
        sure = sureness_of(z, y, "abcd", seed=seed, false_alarms=alpha)
        rates.append(float(sure.far(new).double().mean()))
        promised.append(sure.novelty.false_alarms)
        strange = drawn(ways=4, shots=10, seed=1000 + seed, noise=0.5)[0]
        strangers.append(float(sure.far(strange).double().mean()))
    assert np.mean(rates) < np.mean(promised) + 0.01
    assert np.mean(strangers) > 0.9


def test_a_learning_curve_rises_and_ends_below_all():
    z, y, _, _ = drawn(ways=4, shots=6, noise=1.5, size=30)
    points = learning_curve(z, y, 4, seed=0)
    assert [point.shots for point in points] == [1, 2, 4, 5]
    assert points[-1].accuracy > points[0].accuracy
    again = learning_curve(z, y, 4, seed=0)
    assert again == points


def test_a_class_of_one_example_weighs_as_much_as_others():
    """Scikit-learn's ``class_weight="balanced"``; where classes are alike, nothing changes to the bit."""
    z, y, _, _ = drawn(ways=3, shots=6)
    kept = torch.tensor([0, *range(6, 18)])
    fitted = fit_heads(z[kept][None], y[kept][None], 3, normalise=False, balanced=True)
    model = LogisticRegression(C=1.0, class_weight="balanced", tol=1e-12, solver="newton-cholesky")
    expected = model.fit(z[kept].numpy(), y[kept].numpy()).predict_proba(z.numpy())
    made = head_scores(fitted, z[None], normalise=False)[0].softmax(-1)
    np.testing.assert_allclose(made.numpy(), expected, atol=SOLVED)
    alike = (fit_heads(z[None], y[None], 3, balanced=balanced).weights for balanced in (True, False))
    assert torch.equal(*alike)


def test_a_class_of_one_example_has_a_chance():
    """One example against twenty of each other class: it was never named, whatever the picture."""
    z, y, new, truth = drawn(ways=4, shots=20, size=40, noise=0.5, more=10)
    kept = torch.tensor([0, *range(20, 80)])
    recall = [
        head_scores(fit_heads(z[kept][None], y[kept][None], 4, balanced=b), new[truth == 0][None])[0]
        .argmax(1)
        .eq(0)
        .double()
        .mean()
        for b in (False, True)
    ]
    assert recall[0] < 0.2 < 0.8 < recall[1]


def test_classes_that_were_not_tested_are_named():
    z, y, _, _ = drawn(ways=3, shots=4)
    kept = torch.tensor([0, *range(4, 12)])
    told = sureness_of(z[kept], y[kept], ["ant", "bee", "cow"]).expected
    assert told.untested == ["ant"]
    assert set(told.by_class) == {"bee", "cow"}
    assert told.accuracy.n == 8
    assert "not tested, for want of a second picture: ant" in str(told)
    assert len(str(told).splitlines()) <= 4


def test_copies_are_left_out_together_and_count_once():
    """Noise has no classes, yet copies of noise are always recognised while one of them is kept."""
    noise, y = torch.randn(8, 20, generator=torch.Generator().manual_seed(0)), torch.arange(2).repeat(4)
    z, y = noise.repeat_interleave(3, 0), y.repeat_interleave(3)
    copies = copies_of(z, y)
    assert copies.tolist() == [3 * (i // 3) for i in range(24)]
    for division in divisions(y.numpy(), 0, copies=copies.numpy()):
        assert not set(copies[division.kept].tolist()) & set(copies[division.left_out].tolist())
    fooled, honest = (sureness_of(z, y, "ab", copies=c).expected.accuracy for c in (None, copies))
    assert fooled.value == 1.0
    assert honest.value < 0.8
    assert (fooled.n, honest.n) == (24, 8)
    assert [point.shots for point in learning_curve(z, y, 2, copies=copies)] == [1, 2, 3]


def test_a_class_of_copies_alone_is_not_tested():
    z, y, _, _ = drawn(ways=3, shots=3)
    z[:3] = z[0]
    told = sureness_of(z, y, "abc", copies=copies_of(z, y)).expected
    assert told.untested == ["a"]


def test_pictures_closer_than_chance_explains_are_copies():
    """Directions of different pictures are far apart; small changes of one are not."""
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(12, 200, generator=draw)
    y = torch.arange(3).repeat_interleave(4)
    assert copies_of(z, y, pictures=True).tolist() == list(range(12))
    z[1:3] = z[0] + 0.2 * torch.randn(2, 200, generator=draw)
    assert copies_of(z, y, pictures=True).tolist() == [0, 0, 0, *range(3, 12)]
    assert copies_of(z, y).tolist() == list(range(12))  # of other features nobody knows


def test_a_class_of_small_crops_is_one_picture():
    """No two are close enough to be copies by themselves, but most are closer than different pictures are."""
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(15, 200, generator=draw)
    y = torch.arange(3).repeat_interleave(5)
    z[:5] = z[0] + 0.6 * torch.randn(5, 200, generator=draw)
    assert copies_of(z, y, pictures=True).tolist() == [0] * 5 + list(range(5, 15))
    z[2:5] = torch.randn(3, 200, generator=draw)  # a close pair alone is chance
    assert copies_of(z, y, pictures=True).tolist() == list(range(15))
