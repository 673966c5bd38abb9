"""Heads on frozen features: one table of batched solvers, the same for evaluating and for predicting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.errors import UserError, did_you_mean
from innerloop.solvers.centroids import cosine, nearest_centroid
from innerloop.solvers.logistic import logistic
from innerloop.solvers.problems import Linear, one_hot, scores
from innerloop.solvers.ridge import ridge
from innerloop.solvers.svc import svc, votes
from innerloop.solvers.svm import linear_svm

ENOUGH = 1e-6  # relative distance from the minimum that a head may have; solvers aim at less
Penalty = float | Tensor
"""``C``: one number, or ``(B, n)``, one for every sample."""
Fit = Callable[[Tensor, Tensor, int, Penalty], Linear]
"""``(features (B, n, d), labels (B, n), ways, C) -> B linear classifiers``."""


class Head(NamedTuple):
    """A way to fit linear classifiers."""

    fit: Fit
    temperature: float
    penalised: bool
    words: str
    pairs: bool = False
    scales: bool = False
    weighs: bool = False


def _logistic(z: Tensor, y: Tensor, ways: int, C: Penalty) -> Linear:
    solution = logistic(z, y, ways, C=C)
    return Linear(solution.weights, solution.bias, solution.gap <= ENOUGH * solution.objective)


def _svm(z: Tensor, y: Tensor, ways: int, C: Penalty) -> Linear:
    solution = linear_svm(z, y, ways, C=float(C))
    return Linear(solution.weights, solution.bias, solution.gap <= ENOUGH * solution.objective)


def _svc(z: Tensor, y: Tensor, ways: int, C: Penalty) -> Linear:
    solution = svc(z, y, ways, C=float(C))
    return Linear(solution.weights, solution.bias, solution.gap <= ENOUGH * solution.objective, pairs=True)


def _ridge(z: Tensor, y: Tensor, ways: int, C: Penalty) -> Linear:
    # targets ±1 and an unpenalised intercept: RidgeClassifier, whose alpha is 1/(2C)
    targets = 2 * one_hot(y, ways, z).mT - 1
    return Linear(*ridge(z, targets, 1 / (2 * float(C)), intercept=True))


HEADS: dict[str, Head] = {
    "logistic": Head(_logistic, 1.0, True, "logistic regression", scales=True, weighs=True),
    "svm": Head(_svm, 1.0, True, "linear support vector machine, one against the rest"),
    "svc": Head(_svc, 1.0, True, "linear support vector machine, one against one", pairs=True, scales=True),
    "ridge": Head(_ridge, 1.0, True, "ridge regression on ±1", scales=True),
    "centroid": Head(lambda z, y, ways, _: nearest_centroid(z, y, ways), 2.0, False, "nearest class mean"),
    "cosine": Head(lambda z, y, ways, _: cosine(z, y, ways), 10.0, False, "smallest angle to a class mean"),
}
"""Heads on frozen features by name.

Temperatures: ProtoNet's squared distance for ``centroid``, Baseline++'s 10 for ``cosine``.
"""


def fit_heads(
    z: Tensor,
    y: Tensor,
    ways: int,
    head: str = "logistic",
    C: Penalty = 1.0,
    normalise: bool = True,
    balanced: bool = False,
) -> Linear:
    r"""Fits one head per problem, all at once.

    ``logistic``, ``svm``, ``svc`` and ``ridge`` minimise :math:`\tfrac12\|W\|^2 + C\sum_i\ell_i`, each to
    the solution of scikit-learn's ``LogisticRegression``, ``LinearSVC``, ``SVC(kernel="linear")`` and
    ``RidgeClassifier(alpha=1/(2C))``. :math:`W` has a row for every class, of two classes too: there it is
    ``LogisticRegression(C=2 * C)``, which penalises the difference of the two rows instead.

    Args:
        z: features ``(B, n, d)``.
        y: labels ``(B, n)``, 0 to ``ways − 1``; every class needs an example.
        ways: number of classes.
        head: one of :data:`HEADS`.
        C: inverse penalty.
        normalise: whether to divide features by their norm first; queries must then be too
            (:func:`head_scores` does it).
        balanced: whether classes of fewer examples weigh as much as others (scikit-learn's
            ``class_weight="balanced"``), where the head can: ``logistic``. ``centroid`` and ``cosine`` do so
            anyway.

    Returns:
        The classifiers, with ``converged`` where they were solved for. What float32 cannot hold to a part in
        a million is solved again in float64, and then all of them come back in float64.

    >>> z, y = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[0, 1]])
    >>> head_scores(fit_heads(z, y, 2, "centroid"), torch.tensor([[[0.9, 0.1]]])).argmax(-1)
    tensor([[0]])
    """
    fit = HEADS[check_head(head)].fit
    x = unit(z) if normalise else z
    if balanced and HEADS[head].weighs:
        C = _by_class(y, ways, C)
    fitted = fit(x, y, ways, C)
    _check_finite(fitted)
    if fitted.converged is None or x.dtype == torch.float64 or bool(fitted.converged.all()):
        return fitted
    left = (~fitted.converged).nonzero().flatten()
    again = fit(x[left].double(), y[left], ways, C[left] if isinstance(C, Tensor) else C)
    weights, bias, converged = fitted.weights.double(), fitted.bias.double(), fitted.converged.clone()
    weights[left], bias[left] = again.weights, again.bias
    if again.converged is not None:
        converged[left] = again.converged
    return Linear(weights, bias, converged, fitted.pairs)


def _by_class(y: Tensor, ways: int, C: Penalty) -> Penalty:
    """Every class has the same sum of ``C``, and all samples together the same as before."""
    counts = F.one_hot(y, ways).sum(1)
    if bool((counts == counts[:, :1]).all()):
        return C
    return C * y.shape[1] / (ways * counts.gather(1, y).double())


def check_head(head: str, more: Sequence[str] = ()) -> str:
    """The name itself, or an error that names the heads there are."""
    known = [*HEADS, *more]
    if head not in known:
        raise UserError(
            f"unknown head '{head}'{did_you_mean(str(head), known)}; there are {', '.join(known)}."
        )
    return head


def _check_finite(fitted: Linear) -> None:
    sums = fitted.weights.sum((1, 2)) + fitted.bias.sum(1)
    if not bool(torch.isfinite(sums.sum())):
        which = int((~torch.isfinite(sums)).nonzero()[0])
        raise UserError(
            f"the head of problem {which} is not finite, because its features are not: the network's weights "
            "or its pictures hold NaN or huge numbers."
        )


def head_scores(fitted: Linear, z: Tensor, normalise: bool = True) -> Tensor:
    """Scores ``(B, q, ways)`` of query features ``(B, q, d)``; votes where heads tell pairs of classes apart.

    In float64 where features are not of unit length: they may share an offset that the intercept takes away
    again, and the difference has to keep its digits. So are the scores of heads that float64 had to solve.

    Args:
        fitted: the heads.
        z: features of the queries.
        normalise: whether they are divided by their length.
    """
    return unit_scores(fitted, unit(z) if normalise else z.double())


def unit_scores(fitted: Linear, x: Tensor) -> Tensor:
    """As :func:`head_scores`, of features that have length one already, or need not have it."""
    # by hand: exported graphs of torch 2.6 keep a call of promote_types, and cannot be read again
    wide = max((x.dtype, fitted.weights.dtype), key=lambda dtype: dtype.itemsize)
    decisions = scores((fitted.weights.to(wide), fitted.bias.to(wide)), x.to(wide))
    return votes(decisions) if fitted.pairs else decisions


def unit(z: Tensor) -> Tensor:
    """Features of length one."""
    return F.normalize(z, dim=-1)
