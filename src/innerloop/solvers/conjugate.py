"""Preconditioned nonlinear conjugate gradients on many softmax problems at once, each with a verdict."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from innerloop.solvers.softmax_dual import SoftmaxProblem, SoftmaxSolution, certify, dot, preconditioner

FIRST_CHECK = 5  # no certificate before this step: few problems are done earlier
PATIENCE = 8  # steps without a certificate
GAIN = 0.1  # the energy is known before a step; after it, it is about this much of it
FAR = 1e-3  # further than this from the end, a preconditioner for the present curvature pays


class _State(NamedTuple):
    """Where the iteration stands; every field has a leading problem axis."""

    A: Tensor  # coefficients
    F: Tensor  # scores K A + b
    P: Tensor  # softmax of the scores
    R: Tensor  # residual C (Y − P) − A, minus the gradient
    step_a: Tensor  # last direction, of A
    step_f: Tensor  # and of F
    energy: Tensor  # ⟨R, M R⟩, the squared gradient in the preconditioner's metric
    inverse: Tensor  # preconditioner
    weight: Tensor  # C·h per sample

    def at(self, which: Tensor) -> _State:
        """The state of some problems only."""
        return _State(*(field[which] for field in self))


def _residual(problem: SoftmaxProblem, A: Tensor, F: Tensor) -> tuple[Tensor, Tensor]:
    P = torch.softmax(F, 1)
    return P, torch.sub(problem.hot, P).mul_(problem.C).sub_(A)


def start(problem: SoftmaxProblem) -> _State:
    """All scores zero, and the preconditioner that is exact there."""
    zero = torch.zeros_like(problem.hot)
    P, R = _residual(problem, zero, zero)
    weight = zero[:, :1] + problem.C / zero.shape[1]
    inverse = preconditioner(problem.gram, weight[:, 0], problem.intercept)
    return _State(zero, zero, P, R, zero, zero, zero.new_full((len(zero), 1, 1), torch.inf), inverse, weight)


def refreshed(problem: SoftmaxProblem, s: _State) -> _State:
    """A preconditioner for the present curvature (per sample, its mean over classes), a fresh direction."""
    k = s.P.shape[1]
    floor = 1e3 * torch.finfo(s.P.dtype).tiny
    h = (s.P * (1 - s.P)).sum(1, keepdim=True) / (k - 1)
    weight = (problem.C * h.clamp_min(1e-9)).clamp_min(floor)
    inverse = preconditioner(problem.gram, weight[:, 0], problem.intercept)
    zero = torch.zeros_like(s.step_a)
    return s._replace(step_a=zero, step_f=zero, inverse=inverse, weight=weight)


def step(problem: SoftmaxProblem, s: _State, before: Tensor | None) -> _State:
    """One step: precondition, combine with the last direction (Polak–Ribière⁺), and Newton along the line."""
    zA = (s.R / s.weight) @ s.inverse
    zF = torch.sub(s.R, zA).div_(s.weight)
    tiny = torch.finfo(zF.dtype).tiny
    energy = slope = dot(s.R, zF)
    dA, dF = zA, zF
    if before is not None:
        beta = ((energy - dot(before, zF)) / s.energy.clamp_min(tiny)).clamp_min_(0)
        slope = energy + beta * dot(s.R, s.step_f)
        downhill = slope > 0.2 * energy  # line searches are not exact: start afresh where it matters
        beta, slope = beta * downhill, torch.where(downhill, slope, energy)
        dA, dF = zA.addcmul_(beta, s.step_a), zF.addcmul_(beta, s.step_f)
    PF = s.P * dF
    bend = torch.sub(PF, s.P * PF.sum(1, keepdim=True)).mul_(problem.C).add_(dA)
    length = slope / dot(dF, bend).clamp_min(tiny)
    A, F = torch.addcmul(s.A, length, dA), torch.addcmul(s.F, length, dF)
    P, R = _residual(problem, A, F)
    return _shorten(problem, s, _State(A, F, P, R, dA, dF, energy, s.inverse, s.weight), slope, length)


def _shorten(problem: SoftmaxProblem, old: _State, new: _State, slope: Tensor, length: Tensor) -> _State:
    """Where a step went far past the line's minimum (the slope turned), interpolate back towards it."""
    for _ in range(8):
        after = dot(new.R, new.step_f)
        past = after < -0.5 * slope
        if not bool(past.any()):
            break
        length = torch.where(past, length * (slope / (slope - after)).clamp(0.1, 0.9), length)
        A, F = torch.addcmul(old.A, length, new.step_a), torch.addcmul(old.F, length, new.step_f)
        P, R = _residual(problem, A, F)
        new = new._replace(A=A, F=F, P=P, R=R)
    return new


def solve(problem: SoftmaxProblem, tol: float, max_steps: int) -> SoftmaxSolution:
    """Steps until the certified gap is at most ``tol`` times the objective, for every problem."""
    # a certificate costs about a step: the next one waits until gradients have fallen as far as the gap has
    # to; problems that are done leave the batch once they are a quarter of it
    who = torch.arange(len(problem.hot), device=problem.hot.device)
    state, out = start(problem), _empty(problem)
    target = fall = torch.full_like(state.energy, torch.inf)
    before: Tensor | None = None
    checked = 0
    for i in range(1, max_steps + 1):
        last = state.R
        state = step(problem, state, before)
        before = last
        if i == checked + 1:
            target = fall * state.energy
        due = i >= FIRST_CHECK and bool((GAIN * state.energy <= target).all())
        if not (due or i - checked >= PATIENCE or i == max_steps):
            continue
        checked = i
        state, verdict, fall = _check(problem, state, tol, i)
        out.write(who, verdict)
        if bool(verdict.converged.all()):
            break
        if float(verdict.converged.float().mean()) >= 0.25:
            left = ~verdict.converged
            problem, state, who = problem.at(left), state.at(left), who[left]
            before, fall = before[left], fall[left]
        if bool((fall < FAR).any()):
            state, before = refreshed(problem, state), None
    return out


def _check(problem: SoftmaxProblem, s: _State, tol: float, i: int) -> tuple[_State, SoftmaxSolution, Tensor]:
    """The verdict on every problem, the state freed of drift, and by what factor its gap must still fall."""
    A = s.A - s.A.mean(-1, keepdim=True) if problem.intercept else s.A
    proof = certify(problem, A, s.F)
    done = proof.gap <= tol * proof.objective
    steps = torch.full_like(done, i, dtype=torch.int64)
    verdict = SoftmaxSolution(A, proof.F, proof.objective, proof.gap, done, steps)
    P, R = _residual(problem, A, proof.F)
    fall = torch.where(done, torch.inf, tol * proof.objective / proof.gap)[:, None, None]
    return s._replace(A=A, F=proof.F, P=P, R=R), verdict, fall


def _empty(problem: SoftmaxProblem) -> SoftmaxSolution:
    hot = problem.hot
    unknown = hot.new_full((len(hot),), torch.inf)
    steps = torch.zeros(len(hot), dtype=torch.int64, device=hot.device)
    A, F = torch.empty_like(hot), torch.empty_like(hot)
    return SoftmaxSolution(A, F, unknown, unknown.clone(), steps.bool(), steps)
