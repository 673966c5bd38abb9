"""MetaNTK, Theorem 2 and Bridge, Lemma 1: trained wide networks predict what the kernels say."""

from typing import Any

import torch
from torch import Tensor

from innerloop.core.types import TaskBatch
from innerloop.kernels import Descent, fit, mlp_kernel, predict_tasks
from innerloop.kernels.meta.kernel import anil_kernel, maml_kernel, mtl_kernel, stack
from innerloop.nets import antisymmetric, mlp
from innerloop.report.plots.panels import line, panels_figure
from innerloop.theory.kernels import log_slope, spectrum
from innerloop.training.wide import meta_outputs
from innerloop_studies.papers.bridge.shared import DIM, bridge_tasks, train_wide, wide_learner
from innerloop_studies.papers.figures import loglog
from innerloop_studies.reproduce.rows import Reproduction, Row, Say, row

TITLE = "MetaNTK, Theorem 2: trained wide networks against kernel predictions"
VERSION = 1
DEPTH, TASKS, SHOTS, TESTS = 3, 4, 5, 4
INNER, TEST = Descent(0.06, 3), Descent(0.2, 10)
METHODS: dict[str, dict[str, Any]] = {
    "maml": {"inner": INNER},
    "anil": {"inner": INNER, "split": True, "test_head": "trained"},
    "mtl": {},
}
NOT_THE_PAPERS = (
    "ours, not an experiment of the paper, which has standard parametrisation and biases (eq. 16), ‖x‖ ≤ 1 "
    "(Assumption 1), small weights (Assumption 5) and infinitesimal rates; here NTK parametrisation, no "
    "biases, ‖x‖ = √d, f_0 = 0 by an antisymmetric start, and real steps on both sides"
)
"""What every row says."""
SIZES = {  # widths, draws of the network, outer steps
    "smoke": ([16, 128], 2, 15),
    "cpu": ([32, 64, 128, 256, 512], 4, 40),
    "paper": ([64, 128, 256, 512, 1024, 2048, 4096], 10, 200),
}


def run(scale: str, say: Say) -> Reproduction:
    """Trains each method at every width on the same tasks, and compares with the analytic prediction."""
    widths, draws, steps = SIZES[scale]
    wide = [float(w) for w in widths]
    train = bridge_tasks(0, "train", TASKS, SHOTS, SHOTS, standard=True)
    test = bridge_tasks(0, "test", TESTS, SHOTS, SHOTS, standard=True)
    errors, spread = ({method: list[float]() for method in METHODS} for _ in range(2))
    for method in METHODS:
        outer = _outer(method, train, steps)
        made = fit(mlp_kernel(DEPTH), train, method, outer=outer, test=TEST, **METHODS[method])  # type: ignore[arg-type]
        given = train, test, outer, predict_tasks(made, test.x_query, test.x_support, test.y_support)
        for width in widths:
            off = torch.tensor([_error(method, width, seed, *given) for seed in range(draws)])
            errors[method].append(float(off.mean()))
            spread[method].append(float(off.std() / draws**0.5))
            say(f"{method}, width {width}: off by {errors[method][-1]:.3g} of the prediction's norm")
    slopes = {m: log_slope(wide, errors[m]) for m in METHODS}
    near = 0.15 if len(widths) > 3 else 0.35
    why, rows = f"slope of the relative error on log–log axes, within {near}; {NOT_THE_PAPERS}", list[Row]()
    for m, (first, *_, last) in errors.items():
        what = f"{m}: trained networks approach the kernel's prediction as width grows, like width^−½"
        said = f"slope {slopes[m]:.2f}: {first:.3f} at width {widths[0]}, {last:.3f} at {widths[-1]}"
        rows.append(row(what, -0.5, said, abs(slopes[m] + 0.5) < near, reason=why))
    lines = [line(m.upper(), wide, errors[m], spread[m]) for m in METHODS]
    lines.append(line("∝ width^−½", wide, [errors["anil"][0] * (wide[0] / w) ** 0.5 for w in wide]))
    one = loglog("width", "‖F_network − F_kernel‖/‖F_kernel‖ on test tasks", lines)
    protocol = {
        "network": f"{DEPTH} layers, ReLU, NTK parametrisation, antisymmetric start (f_0 = 0), float32",
        "tasks": f"{TASKS} training and {TESTS} test Bridge tasks, {SHOTS} + {SHOTS} samples, ‖x‖ = √d",
        "inner loop": f"λτ = {INNER.time} in {INNER.steps} steps; at test {TEST.time} in {TEST.steps}",
        "outer loop": f"{steps} full-batch steps of 1/σ_max of the method's analytic kernel",
        "heads": "ANIL with split, trained head kept; MTL on all samples, shared first draw",
        "draws": f"{draws} networks per width (seeds 0 to {draws - 1})",
        "not the paper's": NOT_THE_PAPERS,
    }
    data = {"widths": widths, "errors": errors, "standard_errors": spread, "slopes": slopes}
    return Reproduction(rows, {"metantk-regression": panels_figure([one], width=5.0)}, data, protocol)


def _outer(method: str, tasks: TaskBatch, steps: int) -> Descent:
    """Full-batch steps at a rate that every kernel bears."""
    split = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
    x = stack(torch.cat([tasks.x_support, tasks.x_query], 1)) if method == "mtl" else split
    base = mlp_kernel(DEPTH)(x, x)
    if method == "mtl":
        phi = mtl_kernel(base.ntk, base.nngp, tasks.size)
    elif method == "anil":
        phi = anil_kernel(base.ntk, base.nngp, tasks.size, SHOTS, INNER)
    else:
        phi = maml_kernel(base.ntk, tasks.size, SHOTS, INNER)
    return Descent(steps / float(spectrum(phi)[0]), steps)


def _error(
    method: str, width: int, seed: int, train: TaskBatch, test: TaskBatch, outer: Descent, expected: Tensor
) -> float:
    """‖F_network − F_kernel‖/‖F_kernel‖ over the queries of all test tasks."""
    net = antisymmetric(mlp(DIM, [width] * (DEPTH - 1), 1, parametrisation="ntk"))
    params, _ = net.init(torch.Generator().manual_seed(1000 * width + seed))
    train, test = train.to(dtype=torch.float32), test.to(dtype=torch.float32)
    assert outer.steps is not None
    trained, _ = train_wide(method, net, params, train, outer.time / outer.steps, outer.steps, INNER)
    with torch.no_grad():
        outputs = meta_outputs(wide_learner(method, net, TEST), trained, test).double()
    return float((outputs - expected).norm() / expected.norm())
