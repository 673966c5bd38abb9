"""What every solver asks of its input, and how problems are shared out over cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from innerloop.core.errors import UserError
from innerloop.core.resources import available_cores
from innerloop.core.threads import map_in_threads

Result = TypeVar("Result", bound=tuple[Tensor, ...])


class Linear(NamedTuple):
    """Linear classifiers or regressors, one per problem: scores are ``x @ weightsᵀ + bias``.

    ``converged`` (B,) says which are proven solutions; nothing where there was nothing to solve. With
    ``pairs`` a row tells one class from one other, and :func:`innerloop.solvers.svc.votes` judge classes.
    """

    weights: Tensor
    bias: Tensor
    converged: Tensor | None = None
    pairs: bool = False


def scores(fitted: Linear | tuple[Tensor, ...], x: Tensor) -> Tensor:
    """Scores of queries ``x`` (B, q, d), of shape ``(B, q, ways)``, from any result of a solver here.

    >>> scores((torch.ones(1, 2, 3), torch.tensor([[0.0, 1.0]])), torch.ones(1, 1, 3))
    tensor([[[3., 4.]]])
    """
    return torch.baddbmm(fitted[1][:, None, :], x, fitted[0].mT)


def check_problems(features: Tensor, labels: Tensor, ways: int, every_class: bool) -> None:
    """Refuses shapes, labels and values that have no answer, in one sentence each."""
    if features.ndim != 3 or labels.shape != features.shape[:2]:
        raise UserError(
            f"features of shape {tuple(features.shape)} with labels of shape {tuple(labels.shape)}: "
            "give (problems, samples, dimensions) and (problems, samples)."
        )
    if features.dtype not in (torch.float32, torch.float64):
        raise UserError(f"features are {features.dtype}: convert them to float32 or float64.")
    if ways < 2:
        raise UserError(f"ways={ways}: a classifier needs at least two classes.")
    if features.shape[0] == 0 or features.shape[1] == 0 or features.shape[2] == 0:
        raise UserError(f"features of shape {tuple(features.shape)} hold nothing to learn from.")
    if int(labels.min()) < 0 or int(labels.max()) >= ways:
        raise UserError(
            f"labels run from {int(labels.min())} to {int(labels.max())}: "
            f"with ways={ways} they must lie between 0 and {ways - 1}."
        )
    if every_class:
        _check_every_class(labels, ways)


def _check_every_class(labels: Tensor, ways: int) -> None:
    counts = torch.zeros(len(labels), ways, dtype=torch.int64, device=labels.device)
    counts.scatter_add_(1, labels.long(), torch.ones_like(labels, dtype=torch.int64))
    missing = (counts == 0).nonzero()
    if len(missing):
        problem, label = missing[0].tolist()
        raise UserError(
            f"class {label} of problem {problem} has no support example, and without one its intercept has "
            "no finite solution: give every class an example, lower ways, or set intercept=False."
        )


def check_positive(name: str, value: float) -> None:
    """Refuses penalties that are not positive numbers."""
    if not value > 0 or value == float("inf"):
        raise UserError(f"{name}={value}: it must be positive and finite.")


def check_finite(features: Tensor, gram: Tensor, start: int = 0) -> None:
    """Refuses NaN and infinity, found in the (small) Gram matrices instead of the features."""
    if bool(torch.isfinite(gram.sum())):
        return
    bad = (~torch.isfinite(gram.sum((-1, -2)))).nonzero()
    which = int(bad[0]) if len(bad) else 0
    what = "are too large to be squared" if bool(torch.isfinite(features[which]).all()) else "are not finite"
    raise UserError(
        f"features of problem {start + which} {what}: check the network, or normalise the features."
    )


def one_hot(labels: Tensor, ways: int, like: Tensor) -> Tensor:
    """``(B, ways, n)`` indicators: classes before samples, so that softmax over classes is vectorised."""
    out = torch.zeros(labels.shape[0], ways, labels.shape[1], dtype=like.dtype, device=like.device)
    return out.scatter_(1, labels.long()[:, None], 1.0)


def in_chunks(
    solve: Callable[[slice], Result], total: int, chunk: int, threads: int | None, device: torch.device
) -> Result:
    """Solves ``chunk`` problems at a time, chunks in parallel, and joins the results in order."""
    # a chunk's working set stays in a core's cache; on other devices than the CPU all problems are one chunk
    if device.type != "cpu":
        return solve(slice(0, total))
    spans = [slice(start, min(start + chunk, total)) for start in range(0, total, chunk)]
    cores = min(threads or available_cores(), len(spans))
    parts = map_in_threads(solve, spans, cores) if cores > 1 else [solve(span) for span in spans]
    if len(parts) == 1:
        return parts[0]
    return type(parts[0])(*(torch.cat(field) for field in zip(*parts, strict=True)))


SAFETY = 2.0  # on the size of errors: see rounding
AIM = 0.5  # solvers go on to this share of the tolerance, so that some of it is left for rounding


class LinearResult(NamedTuple):
    r"""Linear classifiers and how well they are solved.

    Attributes:
        weights: ``(B, ways, d)``.
        bias: ``(B, ways)``; zero without an intercept.
        objective: value reached, in scikit-learn's scaling :math:`C\sum\ell + \tfrac12\|W\|^2`; of several
            machines per problem (one against the rest, pairs of classes) their sum.
        gap: bound on the objective *of the returned weights* minus the minimum: the duality gap, and what
            rounding may have added (:mod:`innerloop.solvers.problems`).
        converged: whether ``gap ≤ tol · objective``.
        iterations: steps taken, of all solvers together.
    """

    weights: Tensor
    bias: Tensor
    objective: Tensor
    gap: Tensor
    converged: Tensor
    iterations: Tensor


def rounding(A: Tensor, squares: Tensor, curvature: Tensor) -> Tensor:
    """How much rounding may add to the objective, per problem, to leading order."""
    # rounding in Gram matrices, in W = AX and in intercepts moves the score of sample i by about u‖x_i‖S_c
    # with S_c = Σ_j |A_cj|‖x_j‖ and the unit roundoff u: much more than ‖W_c‖ where samples share an offset.
    # An estimate, no worst case: on 1,149 float32 problems of logistic regression (5 and 20 classes, 1 to 20
    # shots, 16 to 640 dimensions, offsets up to 30 deviations) at most 0.98 of it was added without SAFETY
    unit = SAFETY * torch.finfo(squares.dtype).eps / 2
    lengths = squares.sqrt()[..., None].to(A.dtype)
    spread = (A.abs() @ lengths).squeeze(-1)
    bend = 1 + (curvature @ lengths.square()).squeeze(-1)
    return 0.5 * unit * unit * (spread.square() * bend).sum(-1)


def with_rounding(gap: Tensor, added: Tensor) -> Tensor:
    """The gap of the returned weights, from that of the coefficients and :func:`rounding`."""
    return (gap.sqrt() + added.sqrt()).square()


def rounded(weights: Tensor, bias: Tensor, mean: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Float64 classifiers in another precision, with intercepts that make up for what the weights lost."""
    if weights.dtype == dtype:
        return weights, bias
    short = weights.to(dtype)
    lost = ((weights - short.double()) @ mean.mT).squeeze(-1)
    return short, (bias + lost).to(dtype)


def measured_scores(weights: Tensor, bias: Tensor, centred: Tensor, mean: Tensor) -> Tensor:
    """Scores ``(B, k, n)`` of the samples ``centred + mean`` in float64, without cancellation."""
    weights = weights.double()
    level = bias.double()[..., None] + weights @ mean.mT
    return weights @ centred.mT + level
