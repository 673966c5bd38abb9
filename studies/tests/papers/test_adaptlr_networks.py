"""AdaptLR's figures of trained networks: what their rows read off, on numbers made for it."""

from __future__ import annotations

import pytest
import torch

from innerloop.core.losses import get_loss
from innerloop.learners import anil
from innerloop.learners.online import online_anil, online_buffers
from innerloop.nets import conv4
from innerloop.nets.network import with_last_layer
from innerloop.testing.closeness import assert_close
from innerloop.theory.rate.estimate import RateRange
from innerloop_studies.papers.adaptlr import fig3 as adaptlr_fig3
from innerloop_studies.papers.adaptlr import fig10 as adaptlr_fig10
from innerloop_studies.papers.adaptlr import fig12 as adaptlr_fig12
from innerloop_studies.papers.adaptlr.fig3 import (
    ENTRIES,
    OURS,
    PLAIN,
    PRINTED,
    PUBLISHED,
    WAYS_OF_CHOOSING,
)
from innerloop_studies.papers.adaptlr.fig3 import recipe_for as fig3_recipe
from innerloop_studies.papers.adaptlr.fig10 import CASES
from innerloop_studies.papers.adaptlr.fig10 import recipe_for as fig10_recipe
from innerloop_studies.papers.adaptlr.fig12 import RATES
from innerloop_studies.papers.adaptlr.fig12 import recipe_for as fig12_recipe


def scored(mean: float) -> dict[str, float]:
    return {"mean": mean, "ci95": 0.1, "n": 10}


def test_figure_12_reads_a_row_a_column_and_the_diagonal() -> None:
    """Errors least at a test rate of 0.003 and a training rate of −0.001: the three readings differ."""
    table = [
        [scored(1 + 100 * abs(test - 0.003) + 50 * abs(train + 0.001)) for test in RATES] for train in RATES
    ]
    caption, axis, same = adaptlr_fig12._rows(adaptlr_fig12._readings(table))
    assert [str(r.ours).split()[0] for r in (caption, axis, same)] == ["0.003", "-0.001", "0.003"]
    assert [r.holds for r in (caption, axis, same)] == [True, False, True]


def test_figures_10_and_12_have_one_set_of_settings() -> None:
    quadratic = next(iter(CASES))
    ten, twelve = fig10_recipe(quadratic, 0.01, 5, 6), fig12_recipe(0.01, 5, 6)
    assert (ten.tasks, ten.model, ten.eval) == (twelve.tasks, twelve.model, twelve.eval)
    assert (ten.outer.batch, ten.inner.loss) == (twelve.outer.batch, twelve.inner.loss) == (3, "half-mse")
    assert (ten.eval.shots, ten.eval.queries) == (20, 50)
    assert ten.tasks.settings["dim"] == 1
    assert ten.model.hidden == [60]


def test_figure_10_says_where_the_best_rate_lies() -> None:
    case = next(iter(CASES))
    scores = [scored(3), scored(1), scored(2)]
    results = {
        "rates": (0.002, 0.02, 0.2),
        "scores": scores,
        "h19": RateRange(0.01, 0.1),
        "ours": RateRange(0.1, 0.3),
    }
    inside, ours = adaptlr_fig10._rows(case, results, "paper")
    outside, _ = adaptlr_fig10._rows(case, {**results, "h19": RateRange(0.03, 0.1)}, "paper")
    assert (inside.holds, outside.holds, ours.holds) == (True, False, False)


def curves(**scores: list[float]) -> dict[str, dict[str, list[float]]]:
    names = dict(zip(("default", "printed", "entries", "plain", "ours"), WAYS_OF_CHOOSING, strict=True))
    return {
        names[name]: {"step": [100, 20_000], "score": values, "rate": [0.1]}
        for name, values in scores.items()
    }


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([0.6, 0.9], [True, False, True]),
        ([0.3, 0.9], [False, False, True]),
        ([0.6, 0.8], [True, False, False]),
    ],
)
def test_figure_3_compares_the_same_model_early_and_at_the_end(
    printed: list[float], expected: list[bool]
) -> None:
    """What comes after the drawn iterations does not count as faster."""
    by_choice = curves(
        default=[0.5, 0.89], printed=printed, entries=[0.4, 0.9], plain=[0.45, 0.9], ours=[0.5, 0.9]
    )
    rows = adaptlr_fig3._rows(by_choice, "paper")
    assert [r.holds for r in rows] == [*expected, True]


def test_figure_3_normalises_features_in_both_arms_and_rotates_classes() -> None:
    assert list(WAYS_OF_CHOOSING) == [PUBLISHED, PRINTED, ENTRIES, PLAIN, OURS]
    made = {name: fig3_recipe(*choice, "cpu", 0) for name, choice in WAYS_OF_CHOOSING.items()}
    assert made[PUBLISHED].model.last_layer == "normalised"
    assert (made[PRINTED].inner.online, made[ENTRIES].inner.online) == ("h3", "h15")
    assert all(recipe.data.rotations for recipe in made.values())
    assert fig3_recipe(*WAYS_OF_CHOOSING[PRINTED], "paper", 0).outer.steps == 40_000


def test_an_online_rate_that_has_not_moved_is_the_fixed_one_on_normalised_features() -> None:
    """The arms of Figure 3 differ in their rates alone."""
    network, loss = conv4(1, 16, 3, filters=2), get_loss("cross-entropy")
    made = torch.Generator().manual_seed(0)
    params, buffers = network.init(made)
    params = {name: value.double() for name, value in params.items()}
    own = {**buffers, **online_buffers("h3", 0.1, params[network.head_names[0]])}
    x, q = (torch.randn(n, 1, 16, 16, generator=made, dtype=torch.float64) for n in (3, 6))
    y = torch.arange(3)
    fixed = anil(with_last_layer(network, "normalised"), loss, 0.1, 4)
    online = online_anil(network, loss, 0.1, 4, "h3")
    expected, _ = fixed.predict(fixed.adapt(params, buffers, x, y), q)
    outputs, _ = online.predict(online.adapt(params, own, x, y), q)
    assert_close(outputs, expected)
