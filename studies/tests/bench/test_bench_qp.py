"""The benchmark of heads that are solved for: all sides compute the same, and its rows are whole."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize

from innerloop.learners import r2d2
from innerloop.nets import Network
from innerloop.testing.closeness import ANY_FINITE_DIFFERENCE, CONDITIONED, SOLVED_FINELY, SOLVED_ROUGHLY
from innerloop_studies.bench import harness, qp
from innerloop_studies.bench.qp import DenseQP, interior_point

SMALL = {"tasks": 3, "shots": 3, "queries": 2, "dimensions": 40}


def programme(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Ten unknowns, twelve inequalities of which some bind, two equations."""
    draw = torch.Generator().manual_seed(seed)
    root, G, A = (torch.randn(m, 10, generator=draw, dtype=torch.float64) for m in (10, 12, 2))
    p = torch.randn(10, generator=draw, dtype=torch.float64)
    inside = 0.1 * torch.randn(10, generator=draw, dtype=torch.float64)
    room = torch.rand(12, generator=draw, dtype=torch.float64)
    return root @ root.mT + 0.1 * torch.eye(10, dtype=torch.float64), p, G, G @ inside + room, A, A @ inside


def test_the_dense_solver_finds_scipys_minimum() -> None:
    Q, p, G, h, A, b = (t.numpy() for t in programme())
    x, slack, multiplier = (t.numpy() for t in interior_point(*programme()))
    solution = minimize(
        lambda v: 0.5 * v @ Q @ v + p @ v,
        np.zeros(10),
        jac=lambda v: Q @ v + p,
        constraints=[
            {"type": "ineq", "fun": lambda v: h - G @ v, "jac": lambda v: -G},
            {"type": "eq", "fun": lambda v: A @ v - b, "jac": lambda v: A},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert solution.success
    np.testing.assert_allclose(x, solution.x, atol=SOLVED_FINELY)
    assert 0 < (slack < SOLVED_FINELY).sum() < 12, "some inequalities bind and some do not"
    assert (multiplier >= 0).all()


def test_the_dense_solvers_gradients_are_slopes() -> None:
    Q, p, *rest = programme()
    at = [Q.requires_grad_(), p.requires_grad_()]
    weight = torch.linspace(-1, 1, 10, dtype=torch.float64)

    def value(Q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return (DenseQP.apply(Q, p, *rest) * weight).sum()

    grads = torch.autograd.grad(value(*at), at)
    draw = torch.Generator().manual_seed(3)
    rtol, atol = ANY_FINITE_DIFFERENCE
    for i, grad in enumerate(grads):
        step = torch.randn(grad.shape, generator=draw, dtype=torch.float64)
        step = step + step.mT if step.ndim == 2 else step
        moved = [[t + sign * 1e-5 * step if j == i else t for j, t in enumerate(at)] for sign in (1, -1)]
        with torch.no_grad():
            expected = float(value(*moved[0]) - value(*moved[1])) / 2e-5
        assert float((grad * step).sum()) == pytest.approx(expected, rel=rtol, abs=atol)


@pytest.mark.parametrize("part", ["head", "programmes"])
def test_all_sides_have_one_gradient(part: str) -> None:
    sides = ["ours", "dense"] + (["qpth"] if find_spec("qpth") else [])
    by_side = {
        side: np.concatenate([g.double().flatten().numpy() for g in call()])
        for side in sides
        for call in [qp.build({"part": part, "side": side, "sizes": SMALL, "threads": 1})]
    }
    assert harness.disagreement(by_side, "ours") < SOLVED_ROUGHLY


def test_the_ridge_side_is_the_learner() -> None:
    data = qp.drawn(**SMALL)
    gradients = qp.ridge_ours(data)()
    passing = Network(lambda g: ({}, {}), lambda p, b, x, s: (x, b), lambda p, z: z, (), "none")
    learner = r2d2(passing, qp.WAYS)
    params = learner.init({"w": torch.ones(())})
    for i, (z, q) in enumerate(zip(data.support, data.query, strict=True)):
        at = [z.clone().requires_grad_(), q.clone().requires_grad_()]
        outputs, _ = learner.predict(learner.adapt(params, {}, at[0], data.y, True), at[1], True)
        expected = torch.autograd.grad(F.cross_entropy(outputs, data.y_query) / SMALL["tasks"], at)
        torch.testing.assert_close(
            [g[i] for g in gradients[:2]], list(expected), rtol=SOLVED_ROUGHLY, atol=CONDITIONED
        )


@pytest.mark.slow
def test_the_whole_way_through_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "machine", lambda quick: {"quick": quick})
    monkeypatch.setattr(qp, "find_spec", lambda name: None)
    monkeypatch.setattr(qp, "PARTS", {"head": qp.PARTS["head"]})
    monkeypatch.setattr(harness, "available_cores", lambda: 1)
    said: list[str] = []
    result = qp.run(quick=True, say=said.append, sizes=[SMALL])
    (row,) = result["cases"]
    assert row["case"] == "SVM heads, 3-shot, 40 features"
    assert (row["peer"], row["at_least"]) == ("dense interior point, one by one", 10.0)
    assert row["ours_ms"] > 0
    assert row["peer_ms"] > 0
    assert row["ours_mb"] > 50
    assert "gradients agree to" in row["notes"]
    assert "on top of libraries and features" in row["notes"]
    assert "qpth is not installed" in said[0]
    assert result["machine"] == {"quick": True}
