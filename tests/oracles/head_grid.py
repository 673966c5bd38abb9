"""Heads under many settings the slow way: one setting and episode after the other, by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from innerloop.evaluation.grid import GridPoint
from oracles.frozen_loop import estimator


def shares(head: str, fitted: object, x: np.ndarray, q: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Probabilities of queries: a softmax of what the estimator decides by."""
    if head == "logistic":
        return fitted.predict_proba(q)
    if head == "centroid":
        means = np.stack([x[y == c].mean(0) for c in np.unique(y)])
        decisions = -((q[:, None] - means) ** 2).sum(-1)
    else:
        decisions = fitted.decision_function(q)
    raised = np.exp(decisions - decisions.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def grid_by_hand(
    z: Tensor, y: Tensor, q: Tensor, truth: Tensor, head: str, settings: Sequence[GridPoint]
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracies ``(E, settings)``, and ``(E,)`` of the mean of all probabilities."""
    table, together = [], []
    for support, labels, queries, right in zip(*(t.numpy() for t in (z, y, q, truth)), strict=True):
        found, mean = [], 0.0
        for C, normalise in settings:
            x, m = support, queries
            if normalise:
                x, m = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (support, queries))
            fitted = estimator(head, C).fit(x, labels)
            found.append((fitted.predict(m) == right).mean())
            mean = mean + shares(head, fitted, x, m, labels) / len(settings)
        table.append(found)
        together.append((mean.argmax(1) == right).mean())
    return np.array(table), np.array(together)
