"""Bridge, Theorem 3: training losses of ANIL and MTL under their bounds; how far the parameters go."""

from statistics import fmean
from typing import Any

import torch

from innerloop.core.types import TaskBatch
from innerloop.kernels import Descent, mlp_kernel
from innerloop.kernels.meta.kernel import anil_kernel_without_split, mtl_kernel, stack
from innerloop.report.plots.panels import line, panels_figure
from innerloop.theory.convergence import common_rate, linear_loss, rates
from innerloop.theory.kernels import log_slope
from innerloop.training.wide import Course, off_linear, watch_method, without_split
from innerloop_studies.papers.bridge import shared
from innerloop_studies.papers.figures import loglog
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "Bridge, Theorem 3: losses of ANIL and MTL under their bounds (eqs. 29 to 31)"
VERSION = 1
DEPTH, TASKS, SAMPLES = 3, 3, 4
INNER = (0.05, 1)  # rate and steps of ANIL's inner loop
ETA = 0.5  # outer rate in units of η₀; eqs. 29 and 30 hold with it
SLOW = 0.1  # a rate far below η₀, at which the printed bound, with η₀ for η, asks for too much
METHODS = {"anil": "eq. 29, ANIL", "mtl": "eq. 30, MTL"}
SIZES = {"smoke": ([64, 256], 2, 15), "cpu": ([64, 128, 256, 512], 3, 60)}
SIZES["paper"] = ([64, 128, 256, 512, 1024, 2048], 10, 200)  # widths, draws of the network, outer steps


def run(scale: str, say: Say) -> Reproduction:
    """Trains both full-batch at every width on the same tasks, no split of support and query."""
    widths, draws, steps = SIZES[scale]
    tasks = shared.bridge_tasks(0, "train", TASKS, SAMPLES // 2, SAMPLES // 2, standard=True)
    kernels = limits(tasks)
    eta0 = common_rate(*kernels.values())
    summaries: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for width in widths:
        for method, phi in kernels.items():
            courses = [course(method, width, seed, tasks, ETA * eta0, steps) for seed in range(draws)]
            slow = course(method, width, 0, tasks, SLOW * eta0, steps)
            summaries[method].append(one := _summary(width, courses, slow, phi, eta0))
            say(f"{method}, width {width}: bound holds in {one['holds']:.0%}, distance {one['distance']:.3g}")
    rows = [one for m in METHODS for one in _rows(m, summaries[m], draws, kernels[m], eta0)]
    rows.append(_printed_rate_row(kernels, tasks, steps))
    constants = {method: rates(phi)._asdict() for method, phi in kernels.items()}
    data = {"eta0": eta0, "rates": constants, "found": summaries}
    protocol = {
        "network": f"{DEPTH} layers, ReLU, NTK parametrisation, its first outputs as drawn, float64",
        "tasks": f"{TASKS} Bridge tasks of {SAMPLES} samples, ‖x‖ = √d, labels standardised, no split",
        "inner loop of ANIL": f"{INNER[1]} step of λ = {INNER[0]}, summed loss",
        "heads of MTL": "one shared draw",
        "outer loop": f"{steps} full-batch steps of {ETA} η₀, η₀ the smaller of both analytic kernels'",
        "draws": f"{draws} networks per width (seeds 0 to {draws - 1})",
    }
    return Reproduction(rows, {"bridge-convergence": _figure(summaries, kernels, eta0)}, data, protocol)


def limits(tasks: TaskBatch) -> dict[str, torch.Tensor]:
    """Φ of both methods at infinite width, over all samples."""
    x = stack(torch.cat([tasks.x_support, tasks.x_query], 1))
    base = mlp_kernel(DEPTH)(x, x)
    inner = Descent(INNER[0] * INNER[1], INNER[1])
    given = base.ntk, base.nngp, tasks.size
    return {"anil": anil_kernel_without_split(*given, inner), "mtl": mtl_kernel(*given)}


def course(method: str, width: int, seed: int, tasks: TaskBatch, eta: float, steps: int) -> Course:
    """One network's training."""
    net, params = shared.wide_net(width, DEPTH, seed)
    tasks = without_split(tasks) if method == "anil" else tasks
    return watch_method(method, net, params, tasks, eta, steps, inner=INNER)  # type: ignore[arg-type]


def _summary(
    width: int, courses: list[Course], slow: Course, phi: torch.Tensor, eta0: float
) -> dict[str, Any]:
    """What one method did at one width, over all draws of the network."""
    constants, ways = rates(phi), ("distance", "path", "drift")
    holds = fmean(shared.is_under_bound(one.losses, ETA * eta0, constants) for one in courses)
    found: dict[str, Any] = {"width": width, "holds": holds}
    for key, eta in (("slow_holds", SLOW * eta0), ("printed_holds", eta0)):
        found[key] = shared.is_under_bound(slow.losses, eta, constants)
    found["loss"] = shared.mean_losses([one.losses for one in courses])
    found["error"] = fmean(float((one.first - phi).norm() / phi.norm()) for one in courses)
    found["linear"] = fmean(off_linear(one, ETA * eta0) for one in courses)
    return found | {key: sum(getattr(one, key) for one in courses) / len(courses) for key in ways}


def _rows(method: str, summaries: list[Any], draws: int, phi: torch.Tensor, eta0: float) -> list[Row]:
    widths = [float(one["width"]) for one in summaries]
    slope = log_slope(widths, [one["distance"] / one["width"] ** 0.5 for one in summaries])
    near = 0.15 if len(widths) > 3 else 0.35
    printed, slow = (sum(one[f"{which}_holds"] for one in summaries) for which in ("printed", "slow"))
    last, share = summaries[-1]["loss"][-1], eta0 / rates(phi).eta0
    slopes, said = {}, {}
    for key in ("error", "linear"):
        slopes[key] = log_slope(widths, [one[key] for one in summaries])
        said[key] = f"slope {slopes[key]:.3f}: {shared.listed_by_width(summaries, key, '.3f')}"
    what = f"{METHODS[method]}: L(θ_t) ≤ (1 − ησ_min/3)^{{2t}} R at every step, η = {ETA} η₀"
    told = f"{shared.listed_by_width(summaries, 'holds', '.0%')} of {draws} draws; {last:.1e} of the first "
    told += f"loss is left at width {widths[-1]:g} (η₀ is {share:.2f} of this kernel's own)"
    all_hold, why = all(one["holds"] == 1 for one in summaries[1:]), "judged from the second width on"
    rows = [row(what, "holds from some width on", told, all_hold, reason=why)]
    what = f"{METHODS[method]} as printed, with η₀ for η, at η = {SLOW} η₀"
    told = f"in {printed} of {len(summaries)} widths; with η in its place in {slow}"
    why = "the rate must carry the η that is used"
    rows.append(row(what, "holds", told, printed == len(summaries), fails=why))
    what = f"eq. 31, {method.upper()}: ‖θ_t − θ_0‖/√width ∝ width^−½"
    told = f"slope {slope:.3f}; ‖θ_t − θ_0‖ " + ", ".join(f"{one['distance']:.2f}" for one in summaries)
    why = f"slope on log–log axes, within {near}: the distance itself stays O(1)"
    rows.append(row(what, -0.5, told, abs(slope + 0.5) < near, reason=why))
    # what lies behind the theorem: the network's own kernel, and training with it standing still
    what = f"Lemma 3 (B.3), {method.upper()}: the network's own kernel approaches Φ, like width^−½"
    why = f"‖Φ̂_0 − Φ‖/‖Φ‖, slope on log–log axes, within {near}"
    rows.append(row(what, -0.5, said["error"], abs(slopes["error"] + 0.5) < near, reason=why))
    what = f"Corollary 3.1, Lemma 2 (B.1, B.2), {method.upper()}: linearised training is off by O(width^−½)"
    why = f"largest difference of the errors over the first one; within {near}, or steeper"
    return [*rows, row(what, "≤ −0.5", said["linear"], slopes["linear"] < -0.5 + near, reason=why)]


def _printed_rate_row(kernels: dict[str, torch.Tensor], tasks: TaskBatch, steps: int) -> Row:
    """Theorem 3's own η₀ and its "η > η₀", where the kernels stand still."""
    mtl, anil = rates(kernels["mtl"]), rates(kernels["anil"])
    mixed = 2 / (mtl.smallest + anil.largest)
    left = -stack(torch.cat([tasks.y_support, tasks.y_query], 1))
    times = torch.tensor([0.0, float(steps)], dtype=torch.float64)
    above = [linear_loss(kernels["mtl"], left, 1.01 * eta, times) for eta in (mixed, mtl.eta0)]
    grown = [float(one[1] / one[0]) for one in above]
    what = "Theorem 3 as printed: MTL converges at rates above η₀ = 2/(σ_min(Φ_MTL) + σ_max(Φ_ANIL))"
    said = f"at 1.01 η₀ as printed ({mixed:.3g}) the loss is {grown[0]:.1e} of its first after {steps} steps"
    said += f", at 1.01 of MTL's own 2/(σ_min + σ_max) ({mtl.eta0:.3g}) {grown[1]:.1e}"
    why = "each kernel has its own η₀, and η must lie below it: ANIL's kernel is damped, MTL's is not"
    return row(what, "converges for η > η₀", said, grown[0] < 1, fails=why)


def _figure(summaries: dict[str, list[dict[str, Any]]], kernels: dict[str, torch.Tensor], eta0: float) -> Any:
    panels = [
        shared.losses_panel(f"{METHODS[m]}: loss / first loss", summaries[m], ETA * eta0, rates(phi))
        for m, phi in kernels.items()
    ]
    widths = [float(one["width"]) for one in summaries["mtl"]]
    ways = {m: [one["distance"] / one["width"] ** 0.5 for one in summaries[m]] for m in METHODS}
    lines = [line(method.upper(), widths, way) for method, way in ways.items()]
    panels.append(loglog("width", "eq. 31: ‖θ_T − θ_0‖/√width", lines))
    return panels_figure(panels, columns=3)
