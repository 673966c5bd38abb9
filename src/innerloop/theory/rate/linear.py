"""The inner learning rate of linear tasks, form by form, and basis functions that make their features."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

import innerloop.theory.rate.estimate as forms
from innerloop.core.errors import UserError
from innerloop.core.losses import get_loss, rate_factor
from innerloop.theory.rate.bracket import bracket, gradient_moments, pooled_head
from innerloop.theory.rate.forms import best_rate, task_sums
from innerloop.theory.rate.moments import Moments, interval_of

Form = Literal["lim", "split", "stacked", "variance", "merged", "gradient", "bracket"]
SPLIT = ("split", "gradient", "bracket")  # forms that are judged on other samples

DESCRIPTIONS: dict[Form, str] = {
    "lim": "eq. 3.3: many tasks, isotropic optima, adapted to and judged on the same samples",
    "split": "H.1: as eq. 3.3, judged on other samples",
    "stacked": "H.14: all tasks as one, over-parametrised",
    "variance": "H.15: 1/(2NKσ²); scales with the number of tasks looked at: not an estimate",
    "merged": "H.18: the paper's heuristic for networks, with the range of H.19",
    "gradient": "the gradient form at the non-adaptive solution",
    "bracket": "gradient form and trace form, and a point between them",
}


RANGES = {"bracket": "bracket", "range": "range to sweep", "sweep": "range to sweep"}
"""What the two ends of an estimate are, by its kind."""


def random_matrix(x: Tensor, dim: int, generator: torch.Generator) -> Tensor:
    r""":math:`\varphi(x) = Wx/\sqrt{d_x}` with one normal matrix :math:`W` for all tasks.

    Args:
        x: inputs ``(tasks, K, d_x)``.
        dim: number of features.
        generator: where the matrix is from.

    >>> random_matrix(torch.ones(2, 3, 4), 5, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 5])
    """
    weights = torch.randn(x.shape[-1], dim, generator=generator, dtype=x.dtype, device=x.device)
    return x @ weights / x.shape[-1] ** 0.5


def gaussian_basis(x: Tensor, centres: Tensor, width: float) -> Tensor:
    r""":math:`\varphi_j(x) = \exp(-(x - \mu_j)^2/2s^2)` (§5.2, H.4.2).

    Args:
        x: inputs with one coordinate (last axis of size 1), or one for each centre.
        centres: ``(d,)``.
        width: ``s``.

    >>> gaussian_basis(torch.zeros(1, 1, 1), torch.tensor([0.0, 1.0]), 1.0)
    tensor([[[1.0000, 0.6065]]])
    """
    if x.shape[-1] not in (1, len(centres)):
        raise UserError(
            f"inputs with {x.shape[-1]} coordinates and {len(centres)} centres: give 1, or as many."
        )
    return torch.exp(-((x - centres) ** 2) / (2 * width**2))


def spread_centres(low: float, high: float, dim: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """``dim`` centres at equal distances from ``low`` to ``high``.

    Args:
        low: the first centre.
        high: the last centre.
        dim: how many.
        dtype: of the result.
    """
    return torch.linspace(low, high, dim, dtype=dtype)


def polynomial_basis(x: Tensor, dim: int, scaled: bool = False) -> Tensor:
    r""":math:`\varphi(x) = (1, x, \dots, x^{d-1})` (Example 1), or each over :math:`j!` (H.4.2).

    Args:
        x: inputs ``(tasks, K, 1)``.
        dim: number of features.
        scaled: whether power j is divided by j!.

    >>> polynomial_basis(torch.tensor([[[2.0]]]), 4)
    tensor([[[1., 2., 4., 8.]]])
    """
    if x.shape[-1] != 1:
        raise UserError(f"a polynomial basis needs inputs with one coordinate, not {x.shape[-1]}.")
    exponents = torch.arange(dim, dtype=x.dtype, device=x.device)
    powers = x**exponents
    return powers / torch.exp(torch.lgamma(exponents + 1)) if scaled else powers


class LinearTasks(NamedTuple):
    """Features of many tasks, and what is known besides.

    Attributes:
        support: ``(tasks, k1, d)``, what is adapted to.
        query: ``(tasks, k2, d)``, what is judged on; forms without a split need none.
        optima: ``(tasks, d)``; the gradient form and a search for the best rate need them.
    """

    support: Tensor
    query: Tensor | None = None
    optima: Tensor | None = None


class FormRate(NamedTuple):
    """What a closed form says about the inner rate.

    Attributes:
        alpha: the rate.
        low: lower end of what it may be.
        high: upper end.
        sweep: rates to try.
        interval: 95 % bootstrap interval of ``alpha``, sampling error only; None where the form has none.
        bounds: the theorem's and Corollary 1's.
        kind: which form.
        convention: the loss convention that gives the rate its meaning.
        reasons: sentences.
        tasks: how many there were.
        best: the rate of least training risk at this number of tasks, if it was searched for.
    """

    alpha: float
    low: float
    high: float
    sweep: tuple[float, ...]
    interval: tuple[float, float] | None
    bounds: forms.Bounds
    kind: Form
    convention: str
    reasons: tuple[str, ...]
    tasks: int
    best: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = self._asdict() | {"bounds": self.bounds._asdict()}
        if self.best is None:
            del plain["best"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    def __str__(self) -> str:
        lowest = self.bounds.corollary_low
        held = "holds" if lowest <= self.alpha else "FAILS"
        lines = [
            *describe_rate(self),
            f"Corollary 1's lower bound {lowest:.3g} {held} here",
        ]
        if self.best is not None:
            lines.append(f"least training risk at this number of tasks, by search: {self.best:.4g}")
        return "\n".join([*lines, *self.reasons])


class _RateEstimate(Protocol):
    """What every estimate of an inner rate has."""

    @property
    def alpha(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def interval(self) -> tuple[float, float] | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def convention(self) -> str: ...
    @property
    def tasks(self) -> int: ...


def describe_rate(rate: _RateEstimate) -> list[str]:
    """Lines for people: the rate, its ends, and its sampling error."""
    lines = [
        f"{rate.alpha:.4g}   ({rate.kind}; {rate.convention})",
        f"{RANGES.get(rate.kind, 'between')}: {rate.low:.3g} to {rate.high:.3g}",
    ]
    if rate.interval is not None:
        low, high = rate.interval
        lines.append(f"sampling error alone (95 %, {rate.tasks} tasks): {low:.4g} to {high:.4g}")
    return lines


class _Point(NamedTuple):
    alpha: float
    interval: tuple[float, float] | None = None
    ends: tuple[float, float] | None = None


def rate_by(form: Form, tasks: LinearTasks, loss: str = "mse", *, search: bool, seed: int = 0) -> FormRate:
    """The estimate by one form, with bounds and sampling error.

    Args:
        form: which.
        tasks: what it is taken of.
        loss: the convention of the rate.
        search: whether to look for the rate of least training risk too, which needs the optima.
        seed: of the bootstrap.

    Raises:
        UserError: query samples or optima are missing.

    >>> features = torch.eye(2, dtype=torch.float64).expand(5, 2, 2)
    >>> rate_by("lim", LinearTasks(features), search=False).alpha  # ½·Σ tr S²/Σ tr S³, S = I, ·k = 2
    1.0
    """
    missing = [name for name in needed(form, search) if getattr(tasks, name) is None]
    if missing:
        raise UserError(f"the form '{form}' needs {' and '.join(missing)} of the tasks: give them.")
    limits = forms.bounds(tasks.support, loss)
    point = _split_forms(form, tasks, loss, seed) if form in SPLIT else _whole_forms(form, tasks, loss, seed)
    low, high = point.ends or (limits.low, limits.high)
    return FormRate(
        alpha=point.alpha,
        low=low,
        high=high,
        sweep=(point.alpha,),
        interval=point.interval,
        bounds=limits,
        kind=form,
        convention=get_loss(loss).convention,
        reasons=(DESCRIPTIONS[form], "the interval is sampling error only"),
        tasks=len(tasks.support),
        best=_best(form, tasks, loss) if search else None,
    )


def needed(form: Form, search: bool) -> list[str]:
    """What a form needs of :class:`LinearTasks` besides support samples, perhaps with a search."""
    query = form in SPLIT or (search and form != "lim")
    optima = search or form in ("gradient", "bracket")
    return [name for name, wanted in (("query", query), ("optima", optima)) if wanted]


def _whole_forms(form: Form, tasks: LinearTasks, loss: str, seed: int) -> _Point:
    support = tasks.support
    if form == "lim":
        return _by_moments(forms.limit_moments(support, loss), seed)
    if form == "stacked":
        return _Point(forms.stacked_rate(support, loss))
    if form == "variance":
        return _Point(forms.variance_rate(support, loss))
    count, samples, dim = support.shape
    ends = forms.merged_range(count, samples, dim, loss=loss)
    return _Point(forms.merged_rate(support, loss), ends=(ends.low, ends.high))


def _split_forms(form: Form, tasks: LinearTasks, loss: str, seed: int) -> _Point:
    support, query, optima = tasks
    assert query is not None
    trace = forms.split_moments(support, query, loss)
    if form == "split":
        return _by_moments(trace, seed)
    assert optima is not None
    y_support, y_query = (x @ optima.unsqueeze(-1) for x in (support, query))
    head = pooled_head(torch.cat([support, query], 1), torch.cat([y_support, y_query], 1))
    gradients = gradient_moments(support, query, y_support, y_query, loss, head)
    if form == "gradient":
        return _by_moments(gradients, seed)
    both = bracket(gradients, trace, point="gradient", seed=seed)
    return _Point(both.point, both.interval, (both.low, both.high))


def _by_moments(moments: Moments, seed: int) -> _Point:
    return _Point(moments.rate, interval_of(moments, seed=seed))


def _best(form: Form, tasks: LinearTasks, loss: str) -> float:
    support, query, optima = tasks
    assert optima is not None
    sums = task_sums(support, optima, None if form == "lim" else query)
    return best_rate(sums, forms.bounds(support).high) * rate_factor("mse", loss, support.shape[1])
