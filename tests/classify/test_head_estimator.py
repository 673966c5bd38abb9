"""``FewShotHead`` among scikit-learn's estimators, and against scikit-learn's own solutions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from innerloop.classify.few_shot_head import FewShotHead
from innerloop.testing.closeness import SOLVED


@parametrize_with_checks([FewShotHead()])
def test_it_keeps_all_of_scikit_learns_rules(estimator, check):
    check(estimator)


def rows(classes=4, each=6, size=10, spread=1.0, seed=0):
    draw = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    return draw.normal(size=(classes, size))[y] + spread * draw.normal(size=(len(y), size)), y


def test_without_calibration_it_is_logistic_regression():
    X, y = rows()
    new, _ = rows(seed=1)
    ours = FewShotHead(C=0.7, normalise=False, calibrate=False).fit(X, y)
    theirs = LogisticRegression(C=0.7, tol=1e-12, solver="newton-cholesky").fit(X, y)
    np.testing.assert_allclose(
        ours.predict_proba(new), theirs.predict_proba(new), atol=SOLVED
    )  # √(relative gap)
    assert ours.expected_ is None


def test_it_works_where_estimators_are_composed():
    X, y = rows(spread=0.5)
    pipeline = make_pipeline(StandardScaler(), FewShotHead())
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.6
    search = GridSearchCV(pipeline, {"fewshothead__head": ["logistic", "centroid"]}, cv=3).fit(X, y)
    assert search.best_params_["fewshothead__head"] in ("logistic", "centroid")
    assert clone(FewShotHead(C=3)).C == 3


def test_partial_fit_is_fit_on_all():
    X, y = rows(classes=5)
    first, later = y < 3, y >= 3
    grown = FewShotHead().partial_fit(X[first], y[first]).partial_fit(X[later], y[later])
    whole = FewShotHead().fit(np.concatenate([X[first], X[later]]), np.concatenate([y[first], y[later]]))
    np.testing.assert_array_equal(grown.predict_proba(X), whole.predict_proba(X))
    assert grown.classes_.tolist() == [0, 1, 2, 3, 4]


def test_one_example_each_can_be_learned_and_not_judged():
    X, y = rows(each=1)
    model = FewShotHead().fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    assert (model.expected_, model.novelty_, model.temperature_) == (None, None, 1.0)
    assert model.learning_curve() == []
    with pytest.raises(ValueError, match="two or more examples"):
        model.unknown(X)
