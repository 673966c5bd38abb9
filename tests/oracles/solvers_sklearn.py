"""One problem at a time with scikit-learn: the slow, obvious twins of the batched solvers."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits
from torch import Tensor


class Fitted(NamedTuple):
    """``weights`` (B, ways, d) and ``bias`` (B, ways), whichever way scikit-learn keeps them."""

    weights: Tensor
    bias: Tensor


def logistic(x: Tensor, y: Tensor, C: float, intercept: bool = True, solver: str = "lbfgs") -> Fitted:
    """``LogisticRegression`` at tol=1e-10, problem by problem.

    Of two classes it penalises ½‖v‖² of their difference v; two rows ∓v/2 have ¼‖v‖², which is twice the C.
    """

    def fit(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        options = {"tol": 1e-10, "max_iter": 100_000, "fit_intercept": intercept, "solver": solver}
        model = LogisticRegression(C=C if b.max() > 1 else 2 * C, **options).fit(a, b)
        if len(model.classes_) == 2:  # one weight vector: the difference of two classes
            return np.concatenate([-model.coef_, model.coef_]) / 2, np.concatenate(
                [-model.intercept_, model.intercept_]
            ) / 2
        return model.coef_, model.intercept_

    return _loop(fit, x, y)


def svc(x: Tensor, y: Tensor, C: float, intercept: bool = True, kind: str = "ovr") -> Fitted:
    """``LinearSVC`` at tol=1e-10 (squared hinge, or Crammer and Singer), problem by problem."""
    half = 2 if kind == "crammer_singer" else 1

    def fit(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model = LinearSVC(C=C, tol=1e-10, max_iter=1_000_000, fit_intercept=intercept, multi_class=kind)
        model.fit(a, b)
        bias = np.broadcast_to(model.intercept_, (len(model.coef_),))
        if len(model.classes_) == 2:
            return np.concatenate([-model.coef_, model.coef_]) / half, np.concatenate([-bias, bias]) / half
        return model.coef_, bias

    return _loop(fit, x, y)


def svc_pairs(x: Tensor, y: Tensor, C: float) -> Fitted:
    """``SVC(kernel="linear")`` at tol=1e-10, problem by problem: positive for the first of a pair."""

    def fit(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model = SVC(kernel="linear", C=C, tol=1e-10).fit(a, b)
        turned = -1 if len(model.classes_) == 2 else 1  # scikit-learn turns the sign of two classes round
        return turned * model.coef_, turned * model.intercept_

    return _loop(fit, x, y)


def ridge(x: Tensor, targets: Tensor, penalty: float, intercept: bool) -> Fitted:
    """``Ridge``, problem by problem."""

    def fit(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        model = Ridge(alpha=penalty, fit_intercept=intercept, solver="cholesky").fit(a, b)
        return model.coef_.reshape(b.shape[1], -1), np.broadcast_to(model.intercept_, (b.shape[1],))

    return _loop(fit, x, targets)


def _loop(fit: object, x: Tensor, y: Tensor) -> Fitted:
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # at 1e-10 it stops at its own precision
        found = [fit(a, b) for a, b in zip(x.double().numpy(), y.numpy(), strict=True)]  # type: ignore[operator]
    return Fitted(*(torch.from_numpy(np.stack(part).copy()) for part in zip(*found, strict=True)))


def logistic_objective(x: Tensor, y: Tensor, fitted: tuple[Tensor, ...], C: float) -> Tensor:
    """``C Σ loss + ½‖W‖²`` per problem, with a row of W for every class."""
    weights, bias = fitted[0].double(), fitted[1].double()
    outputs = x.double() @ weights.mT + bias[:, None]
    loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none")
    return C * loss.view(y.shape).sum(1) + 0.5 * weights.square().sum((1, 2))


def hinge_objective(x: Tensor, y: Tensor, fitted: tuple[Tensor, ...], C: float) -> Tensor:
    """Squared hinge, one against the rest, summed over classes; intercepts are penalised."""
    weights, bias = fitted[0].double(), fitted[1].double()
    outputs = x.double() @ weights.mT + bias[:, None]
    sign = 2 * torch.nn.functional.one_hot(y, weights.shape[1]) - 1
    slack = (1 - sign * outputs).clamp_min(0)
    norm = weights.square().sum((1, 2)) + bias.square().sum(1)
    return 0.5 * norm + C * slack.square().sum((1, 2))


def pairs_objective(x: Tensor, y: Tensor, fitted: tuple[Tensor, ...], C: float) -> Tensor:
    """Hinge, summed over pairs of classes ``a < b`` and the samples of each; intercepts are free."""
    weights, bias = fitted[0].double(), fitted[1].double()
    total = 0.5 * weights.square().sum((1, 2))
    for problem in range(len(x)):
        ways, row = int(y[problem].max()) + 1, 0
        for a in range(ways):
            for b in range(a + 1, ways):
                for label, sign in ((a, 1.0), (b, -1.0)):
                    z = x[problem][y[problem] == label].double()
                    margins = sign * (z @ weights[problem, row] + bias[problem, row])
                    total[problem] += C * (1 - margins).clamp_min(0).sum()
                row += 1
    return total


def crammer_singer_objective(x: Tensor, y: Tensor, fitted: tuple[Tensor, ...], C: float) -> Tensor:
    """``½‖W‖² + C Σ max_c(f_c + 1 − y_c) − f_y``; intercepts are penalised."""
    weights, bias = fitted[0].double(), fitted[1].double()
    outputs = x.double() @ weights.mT + bias[:, None]
    hot = torch.nn.functional.one_hot(y, weights.shape[1])
    loss = (outputs + 1 - hot).amax(-1) - (outputs * hot).sum(-1)
    return 0.5 * (weights.square().sum((1, 2)) + bias.square().sum(1)) + C * loss.sum(1)
