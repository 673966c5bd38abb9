"""The problems of ``bench heads``, scikit-learn's estimators for them, and how far our solutions are off.

Nothing here imports torch until solutions are compared: scikit-learn's side must run without it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from innerloop_studies.bench.harness import Array

WAYS, SHOTS, QUERIES, DIMENSIONS = 5, 5, 100, 640
TIGHT = 40  # problems that scikit-learn also solves at tol=1e-10, for the comparison of solutions
C = {"logistic": 3.0, "svm": 1.0, "svc": 1.0, "crammer-singer": 0.1}
DTYPES = ("float32", "float64")


def problems(count: int, normalise: bool, dimensions: int, queries: int = 0) -> tuple[Array, Array, Array]:
    """Non-negative features around overlapping class means: support, its labels, and queries; float32."""
    rng = np.random.default_rng(0)
    means = np.float32(0.3) * rng.standard_normal((count, WAYS, 1, dimensions), np.float32)

    def draw(n: int) -> Array:
        """``n`` samples of every class."""
        x = np.maximum(rng.standard_normal((count, WAYS, n, dimensions), np.float32) + means, 0)
        if normalise:
            x /= np.linalg.norm(x, axis=-1, keepdims=True)
        return x.reshape(count, WAYS * n, dimensions)

    y = np.tile(np.repeat(np.arange(WAYS), SHOTS), (count, 1))
    return draw(SHOTS), y, draw(queries)


def estimator(head: str, **options: Any) -> Any:
    """Scikit-learn's, with its own tolerance unless one is given."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC, LinearSVC

    if head == "svc":
        return SVC(**{"kernel": "linear", "C": C[head], **options})
    if head == "logistic":
        return LogisticRegression(**{"C": C[head], "max_iter": 1000, **options})
    kind = "crammer_singer" if head == "crammer-singer" else "ovr"
    return LinearSVC(**{"C": C[head], "multi_class": kind, **options})


def solutions(normalise: bool, sizes: dict[str, int]) -> dict[str, float]:
    """How logistic regressions differ from scikit-learn's at tol=1e-10: objective, and labels of queries."""
    import torch

    from innerloop import solvers

    count, dimensions = min(TIGHT, sizes.get("looped", TIGHT)), sizes.get("dimensions", DIMENSIONS)
    drawn = problems(count, normalise, dimensions, QUERIES)
    warnings.simplefilter("ignore")
    tight = [estimator("logistic", tol=1e-10, max_iter=100_000) for _ in range(count)]
    fitted = [m.fit(a.astype(np.float64), b) for m, a, b in zip(tight, *drawn[:2], strict=True)]
    x, y, queries = (torch.from_numpy(part) for part in drawn)
    weights = torch.from_numpy(np.stack([m.coef_ for m in fitted]))
    bias = torch.from_numpy(np.stack([m.intercept_ for m in fitted]))
    labels = solvers.scores((weights, bias), queries.double()).argmax(-1)
    reference = objective(x, y, weights, bias)
    out: dict[str, float] = {}
    for name in DTYPES:
        dtype = getattr(torch, name)
        solved = solvers.logistic(x.to(dtype), y, WAYS, C=C["logistic"])
        mine = objective(x, y, solved.weights.double(), solved.bias.double())
        same = solvers.scores(solved, queries.to(dtype)).argmax(-1) == labels
        out[f"objective {name}"] = float(((mine - reference) / reference).abs().max())
        out[f"labels {name}"] = float(same.double().mean())
    return out


def objective(x: Any, y: Any, weights: Any, bias: Any) -> Any:
    """Logistic regression's, per problem, in float64."""
    import torch

    outputs = x.double() @ weights.mT + bias[:, None]
    loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none")
    return C["logistic"] * loss.view(y.shape).sum(1) + 0.5 * weights.square().sum((1, 2))
