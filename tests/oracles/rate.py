"""Slow twins of the rate estimators: task by task, forming S, as the paper prints them."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.core.losses import get_loss


def limit(features: Tensor) -> float:
    """Eq. 3.3 with S formed."""
    k, d = features.shape[1:]
    second, third = torch.zeros(d, d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64)
    for phi in features.double():
        s = phi.T @ phi
        second += s @ s
        third += s @ s @ s
    return float(k * torch.trace(second) / (2 * torch.trace(third)))


def split(support: Tensor, query: Tensor) -> float:
    """Eq. H.1 with both S formed."""
    above = below = torch.zeros((), dtype=torch.float64)
    for u, t in zip(support.double(), query.double(), strict=True):
        s_u, s_t = u.T @ u, t.T @ t
        above = above + torch.trace(s_u @ s_t)
        below = below + torch.trace(s_u @ s_t @ s_u)
    return float(support.shape[1] * above / (2 * below))


def stacked(features: Tensor) -> float:
    """Eq. H.14 with ΨᵀΨ formed."""
    psi = features.reshape(-1, features.shape[-1]).double()
    s = psi.T @ psi
    return float(len(psi) * torch.trace(s @ s) / (2 * torch.trace(s @ s @ s)))


def best_step(
    support: Tensor, query: Tensor, y_support: Tensor, y_query: Tensor, loss: str, head: Tensor
) -> tuple[float, float]:
    """Mean ⟨g_u, g_t⟩ and mean g_uᵀ G_t g_u by autograd, one task at a time."""
    value = get_loss(loss).value
    above = below = 0.0
    for u, t, yu, yt in zip(support, query, y_support, y_query, strict=True):
        at = head.clone().requires_grad_()
        g_u = torch.autograd.grad(value(u @ at, yu), at)[0]
        g_t = torch.autograd.grad(value(t @ at, yt), at)[0]
        moved = (t @ g_u).detach()
        outputs = (t @ head).detach()
        hessian = torch.autograd.functional.hessian(lambda f, yt=yt: value(f, yt), outputs)
        flat = hessian.reshape(outputs.numel(), outputs.numel())
        above += float((g_u * g_t).sum())
        below += float(moved.flatten() @ flat @ moved.flatten())
    return above / len(support), below / len(support)


def maml_solution(features: Tensor, optima: Tensor, rate: float, query: Tensor | None = None) -> Tensor:
    """Eq. 3.1, C_i formed, least squares on the stacked system."""
    rows, targets = [], []
    k = features.shape[1]
    for i, phi in enumerate(features):
        judged = phi if query is None else query[i]
        c = judged @ (torch.eye(phi.shape[1], dtype=phi.dtype) - 2 * rate / k * phi.T @ phi)
        rows.append(c)
        targets.append(c @ optima[i])
    return torch.linalg.lstsq(torch.cat(rows), torch.cat(targets).unsqueeze(1)).solution[:, 0]


def adapt(phi: Tensor, a: Tensor, w: Tensor, rate: float, steps: int) -> Tensor:
    """``steps`` plain gradient steps on the mean squared error, by autograd."""
    for _ in range(steps):
        at = w.detach().requires_grad_()
        loss = (phi @ at - phi @ a).square().mean()
        w = at.detach() - rate * torch.autograd.grad(loss, at)[0]
    return w


def quadratic_steps(
    u: Tensor, t: Tensor, labels: Tensor, judged: Tensor, classes: int, rate: float, steps: int
) -> float:
    """The query loss of one task after real steps on the quadratic that cross-entropy is at uniform softmax.

    Heads are whole matrices, and gradients are those of autograd.
    """

    def loss(head: Tensor, features: Tensor, y: Tensor) -> Tensor:
        wanted = torch.nn.functional.one_hot(y, classes).to(features) - 1 / classes
        outputs = features @ head
        centre = outputs - outputs.mean(1, keepdim=True)
        return (centre.square() / (2 * classes) - outputs * wanted).sum() / len(y)

    head = torch.zeros(u.shape[1], classes, dtype=u.dtype, requires_grad=True)
    for _ in range(steps):
        (slope,) = torch.autograd.grad(loss(head, u, labels), head)
        head = (head - rate * slope).detach().requires_grad_()
    return float(loss(head.detach(), t, judged))
