r"""Theorem 3 (Appendix D): the MAML solution on T tasks of τ episodes tends to its population value.

Appendix D says of it that :math:`w_{MAML}` of eq. 43 tends to :math:`w^*_{MAML}` as
:math:`T,n,n_1,\tau\to\infty`, and Remark 2 that this holds with finitely many inner samples :math:`n_2`: the
limit is then the optimum for a step on :math:`n_2` samples, not for a full one. Episodes are independent,
so the distance falls like :math:`1/\sqrt T` and :math:`1/\sqrt\tau`.
"""

from typing import Any

import torch
from matplotlib.figure import Figure

from innerloop.report.plots.panels import panels_figure
from innerloop.theory.landscape.forms import maml_solution
from innerloop_studies.papers.landscape import finite
from innerloop_studies.papers.landscape.finite import Environment
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Landscape, Theorem 3 (App. D): MAML on finite samples, slopes in T, τ and n"
VERSION = 1
DIM, TASKS, RATE = 4, 16, 1.0
INNER, OUTER = 8, 8  # n₂ and n₁, samples of an episode
FULL = float("inf")
SIZES = {
    "smoke": (100, [32, 128, 512], [8, 32, 128]),
    "cpu": (300, [2**k for k in range(5, 12)], [2**k for k in range(3, 10)]),
}
SIZES["paper"] = (2000, [2**k for k in range(5, 13)], [2**k for k in range(3, 12)])
"""Draws, numbers of tasks, numbers of episodes (samples, where these grow instead, are multiples of them)."""

Results = dict[str, Any]
"""Distances along numbers of tasks, episodes, outer samples, and inner and outer samples alike."""


def run(scale: str, say: Say) -> Reproduction:
    """Draws training sets of one environment, and solves each exactly."""
    draws, tasks, episodes = SIZES[scale]
    env = finite.draw_environment(DIM, torch.Generator().manual_seed(DIM))
    best, full = (maml_solution(env.covariances, env.optima, RATE, n) for n in (INNER, FULL))
    outers, samples = [DIM * n // 8 for n in episodes], [4 * DIM * n for n in episodes]
    ends = {"few": 20, "many": 1000 if scale == "smoke" else 4000}
    sizes = {"tasks": tasks, "episodes": episodes, "outers": outers, "samples": samples}
    results: Results = {
        **sizes,
        "between": [finite.sure_distance(_endless(env, best, t, draws)) for t in tasks],
        "by_episodes": [_drawn(env, best, INNER, INNER, OUTER, tau, draws) for tau in episodes],
        "by_outer": [_drawn(env, best, INNER, INNER, n, 1, draws) for n in outers],
        "by_both": [_drawn(env, full, FULL, n, n, 1, draws) for n in samples],
        "limits_apart": float((best - full).norm()),
        "limit": float(best.norm()),
        "all_tasks": {key: _all_tasks(env, best, full, tau) for key, tau in ends.items()},
    }
    say(f"{draws} draws: T from {tasks[0]} to {tasks[-1]}, τ from {episodes[0]} to {episodes[-1]}")
    protocol = {
        "environment": f"{finite.environment_stated(DIM)}, α = {RATE}",
        "distance": f"the {finite.SURE:.0%} quantile over {draws} draws of T tasks with their episodes",
        "held": f"T = {TASKS}, n₁ = {OUTER}, n₂ = {INNER} where nothing else is said",
        "statement": "as Appendix D and Remark 2 put it in words; rates are those of independent episodes",
        "paper": "a theorem: nothing is run there",
    }
    near = 0.1 if scale == "smoke" else 0.05
    figures = {"landscape-theorem3": _figure(results)}
    return Reproduction(_rows(results, near), figures, results, protocol)


def _solution(tasks: Environment, inner: int, outer: int, g: torch.Generator) -> torch.Tensor:
    data = finite.task_moments(tasks, inner, g), finite.task_moments(tasks, outer, g)
    return finite.maml_of_moments(*data, tasks.optima, RATE)


def _endless(env: Environment, best: torch.Tensor, tasks: int, draws: int) -> torch.Tensor:
    """‖w^(T)* − w*‖: endless episodes of T tasks."""
    g = torch.Generator().manual_seed(tasks)
    gaps = []
    for count in finite.chunks(draws, tasks * DIM**2):
        drawn = finite.take(env, torch.randint(len(env.optima), (count, tasks), generator=g))
        gaps.append((maml_solution(drawn.covariances, drawn.optima, RATE, INNER) - best).norm(dim=-1))
    return torch.cat(gaps)


def _drawn(
    env: Environment, best: torch.Tensor, limit: float, inner: int, outer: int, episodes: int, draws: int
) -> dict[str, float]:
    """Quantiles of distances to optima for steps on ``limit`` samples: of the T tasks (``given``), of all."""
    g = torch.Generator().manual_seed(1_000_003 * inner + 1009 * outer + episodes)
    given, whole = [], []
    for count in finite.chunks(draws, TASKS * episodes * DIM**2):
        which = torch.randint(len(env.optima), (count, TASKS), generator=g)
        w = _solution(finite.take(env, which.repeat(1, episodes)), inner, outer, g)
        middle = maml_solution(env.covariances[which], env.optima[which], RATE, limit)
        given.append((w - middle).norm(dim=-1))
        whole.append((w - best).norm(dim=-1))
    return {"given": finite.sure_distance(torch.cat(given)), "whole": finite.sure_distance(torch.cat(whole))}


def _all_tasks(env: Environment, best: torch.Tensor, full: torch.Tensor, episodes: int) -> dict[str, float]:
    """How far τ episodes of every task of the environment end from both limits of Remark 2."""
    g = torch.Generator().manual_seed(episodes)
    w = _solution(finite.take(env, torch.arange(len(env.optima)).repeat(episodes)), INNER, OUTER, g)
    return {"from_limit": float((w - best).norm()), "from_full": float((w - full).norm())}


def _given(results: Results) -> list[list[float]]:
    """Distances from the optimum of the tasks drawn, by episodes, by outer samples, and by both samples."""
    return [[one["given"] for one in results[f"by_{by}"]] for by in ("episodes", "outer", "both")]


def _rows(results: Results, near: float) -> list[Row]:
    episodes, outers, (given, outer, both) = results["episodes"], results["outers"], _given(results)
    (limit, full), apart = results["all_tasks"]["many"].values(), results["limits_apart"]
    tau = f"the tasks given: falls with τ like 1/√τ, n₁ = {OUTER} and n₂ = {INNER} samples an episode"
    gao = "Remark 2, of Gao and Sener: τ = 1, n₁ = n₂ → ∞ tends to the optimum for a full step, like 1/√n"
    what = "Remark 2: with n₂ finite the limit is the optimum for a step on n₂ samples, not for a full one"
    said = f"{limit:.4f} from the former, {full:.4f} from the latter (these two are {apart:.4f} apart)"
    alone = "more outer samples n₁ alone are not enough (τ = 1, n₂ fixed): episodes must grow"
    (first, *_, late, last), (n, *_, n_late, n_last) = outer, outers
    falls = f"{first:.3g} at n₁ = {n}, {late:.3g} at {n_late}, {last:.3g} at {n_last}"
    why = "it falls at first, and no longer at the end: a fifth is the least that counts"
    return [
        finite.slope_row("τ = ∞: falls with T like 1/√T", -0.5, results["tasks"], results["between"], near),
        finite.slope_row(tau, -0.5, episodes, given, near),
        row(what, "the former", said, limit < 0.2 * apart < full),
        row(alone, "T, n₁ and τ grow", falls, 0.8 * late < last < 0.8 * first, reason=why),
        finite.slope_row(gao, -0.5, results["samples"], both, near),
    ]


def _figure(results: Results) -> Figure:
    (given, outer, both), whole = _given(results), [one["whole"] for one in results["by_episodes"]]
    panels = {
        "tasks T": ("tasks", {"τ = ∞": results["between"]}),
        "episodes τ of each task": ("episodes", {"tasks given": given, "whole": whole}),
        "samples n₁ = n₂, τ = 1": ("samples", {"tasks given": both}),
        "samples n₁, n₂ fixed, τ = 1": ("outers", {"tasks given": outer}),
    }
    return panels_figure([finite.law_panel(x, results[key], curves) for x, (key, curves) in panels.items()])
