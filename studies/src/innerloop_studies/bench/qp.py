"""MetaOptNet's and R2D2's heads, forward and backward, against a general solver and a plain linear head.

All support vector machines are the same programmes from the same features: ours in one batch, a general
solver's one by one, which gives a gradient in Gram matrices; ours knows that it is of low rank. ``qpth`` may
be elsewhere: ``pip install --no-deps --target DIR qpth``, then ``PYTHONPATH=DIR innerloop bench qp``.
"""

import sys
import types
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.core.autodiff import plain_autograd
from innerloop.solvers.problems import one_hot
from innerloop.solvers.products import gram_matrix
from innerloop.solvers.ridge import ridge_closed_form
from innerloop.solvers.svm_dual import svm_coefficients, svm_heads
from innerloop_studies.bench import harness
from innerloop_studies.bench.worker import Spec, Worker, flat

TITLE = "8 heads of MetaOptNet and R2D2, forward and backward, against a general solver and a linear head"
VERSION = 1
Sizes = dict[str, float]  # arguments of :func:`drawn`
SIZES: list[Sizes] = [
    {"tasks": 8, "shots": 5, "queries": 15, "dimensions": 640},
    {"tasks": 8, "shots": 15, "queries": 6, "dimensions": 16_000},
    {"tasks": 8, "shots": 15, "queries": 6, "dimensions": 640, "spread": 1.5},  # half of the bounds bind
]
TINY: Sizes = {"tasks": 2, "shots": 2, "queries": 1, "dimensions": 30}
NAMES = {"qpth": "qpth, one by one", "dense": "dense interior point, one by one", "linear": "linear head"}

PARTS = {  # what is measured: a title, who else does it, and the ratio that we promise
    "head": ("SVM heads", ("qpth", "dense"), 10.0),
    "programmes": ("their quadratic programmes alone", ("qpth", "dense"), 10.0),
    "ridge": ("R2D2 heads", ("linear",), 0.5),
}


def run(quick: bool = False, say: harness.Say = print, sizes: list[Sizes] | None = None) -> harness.Report:
    """Heads of eight tasks at several sizes; whole, and the programmes alone."""
    if find_spec("qpth") is None:
        say("qpth is not installed: the general solver is a dense interior point of our own")
    cases = [row for part in PARTS for size in sizes or SIZES for row in one_case(part, size, quick, say)]
    return {"cases": cases, "machine": harness.machine(quick)}


def one_case(name: str, size: Sizes, quick: bool, say: harness.Say) -> list[harness.Comparison]:
    """Ours against every peer that is there, each at its better thread count."""
    what, others, at_least = PARTS[name]
    peers = [who for who in others if who != "qpth" or find_spec("qpth") is not None]
    sides = harness.on_threads(("ours", *peers), {"part": name, "sizes": size})
    with harness.started(sides, __name__, say) as all_sides:
        agreed = []
        if name != "ridge":  # a linear head computes something else
            agreed = [f"gradients agree to {harness.disagreement(all_sides.results, sides[0].name):.0e}"]
        shared = harness.PATIENCE / len(SIZES) / len(PARTS)
        measured = all_sides.measured(quick, (2, 0.3), (5, 1.0), shared)
    title = f"{what}, {size['shots']}-shot, {size['dimensions']:,} features"
    title += ", many bound" if "spread" in size else ""
    rows = []
    for who in peers:
        mine, theirs = (harness.better(measured.timings, start).added_mb for start in ("ours", who))
        memory = f"on top of libraries and features {mine:.0f} MB against {theirs:.0f} MB"
        rows.append(measured.row(title, who, at_least, [*agreed, memory], NAMES[who]))
    return rows


# ---- sides: one forward and backward pass over a few tasks ----

C, WAYS = 0.1, 5
SPREAD = 0.15  # of class means that overlap, against one in a class; of more, more coefficients are at bounds

Call = Callable[[], list[Tensor]]  # one forward and backward pass; gives the gradients
Coefficients = Callable[[Tensor, Tensor], Tensor]  # Gram matrix (n, n) and labels to dual ones (WAYS, n)


class Features(NamedTuple):
    """Support and query features, one tensor per task, and the labels that all tasks share."""

    support: list[Tensor]
    y: Tensor
    query: list[Tensor]
    y_query: Tensor


def drawn(tasks: int, shots: int, queries: int, dimensions: int, spread: float = SPREAD) -> Features:
    """Features like those of a network's last map after a leaky ReLU, around class means."""
    draw = torch.Generator().manual_seed(0)
    y, y_query = (torch.arange(WAYS).repeat(n) for n in (shots, queries))
    means = spread * torch.randn(tasks, WAYS, dimensions, generator=draw)

    def around(labels: Tensor) -> list[Tensor]:
        noise = torch.randn(tasks, len(labels), dimensions, generator=draw)
        return [0.3 * F.leaky_relu(m[labels] + e, 0.1) for m, e in zip(means, noise, strict=True)]

    return Features(around(y), y, around(y_query), y_query)


def build(spec: Spec) -> Call:
    """The side asked for by ``side``, ``part``, ``sizes`` (see :func:`drawn`) and ``threads``."""
    torch.set_num_threads(spec["threads"])
    data, peer = drawn(**spec["sizes"]), spec["side"] != "ours"
    if spec["part"] == "ridge":
        side = linear(data) if peer else ridge_ours(data)
    elif peer:
        one_by_one = svm_one_by_one if spec["part"] == "head" else programmes_one_by_one
        side = one_by_one(data, partial(solved, qpth_solver() if spec["side"] == "qpth" else DenseQP.apply))
    else:
        side = (svm_ours if spec["part"] == "head" else programmes_ours)(data)
    return plain_autograd()(side)


def gradients(loss: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
    """Of a loss in all that it is given."""
    at = [tensor.detach().requires_grad_() for tensor in given]
    return list(torch.autograd.grad(loss(*at), at))


def svm_ours(data: Features) -> Call:
    """All tasks in one call."""
    tasks = len(data.support)

    def loss(*at: Tensor) -> Tensor:
        weights, _ = svm_heads(at[:tasks], [data.y] * tasks, WAYS, C)
        outputs = torch.cat([q @ w.mT for q, w in zip(at[tasks:], weights, strict=True)])
        return F.cross_entropy(outputs, data.y_query.repeat(tasks))

    return lambda: gradients(loss, *data.support, *data.query)


def svm_one_by_one(data: Features, solve: Coefficients) -> Call:
    """Task after task, each with a programme of its own."""

    def loss(z: Tensor, q: Tensor) -> Tensor:
        outputs = q @ (solve(gram_matrix(z), data.y).to(z.dtype) @ z).mT
        return F.cross_entropy(outputs, data.y_query) / len(data.support)

    def call() -> list[Tensor]:
        by_task = [gradients(loss, z, q) for z, q in zip(data.support, data.query, strict=True)]
        return [z for z, _ in by_task] + [q for _, q in by_task]

    return call


def _grams(data: Features) -> tuple[Tensor, Tensor]:
    """Gram matrices, and what to multiply coefficients with for a gradient of all of them."""
    gram = torch.stack([z @ z.mT for z in data.support])
    draw = torch.Generator().manual_seed(1)
    return gram, torch.randn(len(gram), WAYS, len(data.y), generator=draw, dtype=torch.float64)


def programmes_ours(data: Features) -> Call:
    """The quadratic programmes alone, from Gram matrices to their gradient, all in one call."""
    gram, weight = _grams(data)
    hot = one_hot(data.y.expand(len(gram), -1), WAYS, gram)

    def loss(at: Tensor) -> Tensor:
        return (svm_coefficients(at, hot, C, data.support[0].shape[1]).A * weight).sum()

    return lambda: [_symmetric(g) for g in gradients(loss, gram)]


def programmes_one_by_one(data: Features, solve: Coefficients) -> Call:
    """The same, one after another."""
    pairs = list(zip(*_grams(data), strict=True))

    def call() -> list[Tensor]:
        slopes = [gradients(lambda at, w=w: (solve(at, data.y) * w).sum(), one)[0] for one, w in pairs]
        return [_symmetric(torch.stack(slopes))]

    return call


def _symmetric(gradient: Tensor) -> Tensor:
    """Gram matrices move symmetrically, so only this part of their gradient means anything."""
    return 0.5 * (gradient + gradient.mT)


def as_general(gram: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """The programme in a general solver's form: ½xᵀQx + pᵀx with Gx ≤ h and Ax = b; sample-major."""
    n, eye = len(y), torch.eye(WAYS, dtype=torch.float64)
    hot = eye[y].flatten()
    whole = torch.eye(n * WAYS, dtype=torch.float64)
    sums = torch.kron(torch.eye(n, dtype=torch.float64), torch.ones(1, WAYS, dtype=torch.float64))
    Q = torch.kron(gram.double(), eye) + 1e-8 * whole  # MetaOptNet's ridge: without it Q may be singular
    return Q, -hot, whole, C * hot, sums, torch.zeros(n, dtype=torch.float64)


def solved(solver: Callable[..., Tensor], gram: Tensor, y: Tensor) -> Tensor:
    """The coefficients by a general solver."""
    return solver(*as_general(gram, y)).view(len(y), WAYS).mT


def qpth_solver() -> Callable[..., Tensor]:
    """MetaOptNet's own solver at its own settings but for float64, in which its answers are right."""
    sys.modules.setdefault("cvxpy", types.ModuleType("cvxpy"))  # imported by qpth, and not used here
    from qpth.qp import QPFunction  # type: ignore[import-not-found,unused-ignore]

    return lambda *programme: QPFunction(verbose=-1)(*(part[None] for part in programme))


def ridge_ours(data: Features) -> Call:
    """R2D2's head: ridge regressions of all tasks in one call, with learned penalty, scale and shift."""
    support, query = torch.stack(data.support), torch.stack(data.query)
    hot = one_hot(data.y.expand(len(support), -1), WAYS, support).mT
    own = [torch.tensor(value) for value in (0.0, 10.0, 0.0)]

    def loss(z: Tensor, q: Tensor, penalty: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        weights, bias = ridge_closed_form(z, hot, z.shape[1] * penalty.exp(), constant=True)
        outputs = scale * (q @ weights.mT + bias[:, None]) + shift
        return F.cross_entropy(outputs.flatten(0, 1), data.y_query.repeat(len(q)))

    return lambda: gradients(loss, support, query, *own)


def linear(data: Features) -> Call:
    """A plain linear head on the same pictures, support and query: what a step without a solver costs."""
    support, query = torch.stack(data.support), torch.stack(data.query)
    draw = torch.Generator().manual_seed(1)
    weights, bias = 0.01 * torch.randn(WAYS, support.shape[2], generator=draw), torch.zeros(WAYS)
    labels = torch.cat([data.y.repeat(len(support)), data.y_query.repeat(len(query))])

    def loss(z: Tensor, q: Tensor, w: Tensor, b: Tensor) -> Tensor:
        outputs = torch.cat([F.linear(part, w, b).flatten(0, 1) for part in (z, q)])
        return F.cross_entropy(outputs, labels)

    return lambda: gradients(loss, support, query, weights, bias)


# ---- a general quadratic programme, one at a time, by a dense interior-point method ----
#
# min ½ xᵀQx + pᵀx  s.t.  Gx ≤ h, Ax = b: Mehrotra's (1992) predictor-corrector steps on the reduced system of
# all unknowns, factorised by LU; gradients from the same system at the solution (Amos & Kolter 2017). It
# knows nothing of what the programme comes from: our solver is set beside it where qpth is not installed.

KEEP, STEPS, ENOUGH = 0.995, 50, 1e-12
COMPLEMENTARY = 1e-16  # where multipliers are small, it takes this much to tell which constraints bind
STIFF = 1e8


class DenseQP(torch.autograd.Function):
    """The solution as a function of ``Q`` and ``p``; the constraints are constants."""

    @staticmethod
    def forward(ctx: Any, Q: Tensor, p: Tensor, G: Tensor, h: Tensor, A: Tensor, b: Tensor) -> Tensor:
        """Steps until residuals and complementarity are small."""
        x, slack, multiplier = interior_point(Q, p, G, h, A, b)
        ctx.save_for_backward(x, slack, multiplier, Q, G, A)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """One more solve: ``dx = −J⁻¹ dr`` with the symmetric ``J`` of the last step."""
        x, slack, multiplier, Q, G, A = ctx.saved_tensors
        # weights of binding inequalities grow without bound, and would take the digits of all others
        weight = (multiplier / slack).clamp_max(STIFF * float(Q.diagonal().mean()))
        dx, _ = _factorised(Q, G, A, weight)(-grads[0], A.new_zeros(len(A)))
        return 0.5 * (torch.outer(dx, x) + torch.outer(x, dx)), dx, None, None, None, None


def _factorised(Q: Tensor, G: Tensor, A: Tensor, weight: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    """Solves ``(Q + GᵀΘG)dx + Aᵀdy = r`` with ``A dx = s``."""
    above, below = [Q + (G.mT * weight) @ G, A.mT], [A, A.new_zeros(len(A), len(A))]
    system = torch.cat([torch.cat(above, 1), torch.cat(below, 1)])
    factor = torch.linalg.lu_factor(system)

    def solve(r: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.linalg.lu_solve(*factor, torch.cat([r, s])[:, None])[:, 0]
        return both[: len(Q)], both[len(Q) :]

    return solve


def _room(value: Tensor, change: Tensor) -> float:
    falling = change < 0
    return min(1.0, KEEP * float((-value / change)[falling].min())) if bool(falling.any()) else 1.0


def interior_point(
    Q: Tensor, p: Tensor, G: Tensor, h: Tensor, A: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Solution, slacks and multipliers of the inequalities."""
    x, y = torch.zeros_like(p), torch.zeros_like(b)
    slack, multiplier = torch.ones_like(h), torch.ones_like(h)
    for _ in range(STEPS):
        dual, primal, tie = Q @ x + p + G.mT @ multiplier + A.mT @ y, G @ x + slack - h, A @ x - b
        mu = slack @ multiplier / len(h)
        off = max(float(t.abs().max()) if len(t) else 0.0 for t in (dual, primal, tie))
        if off < ENOUGH and float(mu) < COMPLEMENTARY:
            break
        solve = _factorised(Q, G, A, multiplier / slack)

        def move(target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            inner = (target + multiplier * primal) / slack  # noqa: B023  (used within the step only)
            dx, dy = solve(-dual - G.mT @ inner, -tie)  # noqa: B023
            ds = -primal - G @ dx  # noqa: B023
            return dx, dy, ds, (target - multiplier * ds) / slack  # noqa: B023

        _, _, ds, dm = move(-slack * multiplier)
        length = min(_room(slack, ds), _room(multiplier, dm))
        ahead = (slack + length * ds) @ (multiplier + length * dm) / len(h)
        dx, dy, ds, dm = move((ahead / mu) ** 3 * mu - slack * multiplier - ds * dm)
        length = min(_room(slack, ds), _room(multiplier, dm))
        x, y = x + length * dx, y + length * dy
        slack, multiplier = slack + length * ds, multiplier + length * dm
    return x, slack, multiplier


WORKER = Worker(build, flat, lambda _: {"sizes": TINY})
