"""Thousands of few-shot heads at once, against a loop of scikit-learn's estimators without torch."""

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from innerloop_studies.bench import environments, harness
from innerloop_studies.bench.environments import Environment
from innerloop_studies.bench.harness import Array, Child, Comparison, Report, Say, Side
from innerloop_studies.bench.worker import WITHOUT_TORCH, Answer, Spec, Worker

TITLE = "2,000 few-shot heads on 640-d features, against a loop of scikit-learn's and JAX"
VERSION = 2
PEERS = ("jax",)
PROBLEMS = 2000
LOOPED = 100  # problems of a peer's block; a loop takes twenty times as long for twenty times as many
AT_LEAST = {"logistic": 20.0}
WAYS, SHOTS, QUERIES, DIMENSIONS = 5, 5, 100, 640
TIGHT = 40  # problems that scikit-learn also solves at tol=1e-10, for the comparison of solutions
C = {"logistic": 3.0, "svm": 1.0, "svc": 1.0, "crammer-singer": 0.1}
DTYPES = ("float32", "float64")
JAX = "innerloop_studies.bench.jax_heads"
SAME = 1e-6  # of the objective: JAX's must be as good as scikit-learn's at tol=1e-10


def problems(count: int, normalise: bool, dimensions: int, queries: int = 0) -> tuple[Array, Array, Array]:
    """Non-negative features around overlapping class means: support, its labels, and queries; float32."""
    rng = np.random.default_rng(0)
    means = np.float32(0.3) * rng.standard_normal((count, WAYS, 1, dimensions), np.float32)

    def draw(n: int) -> Array:
        x = np.maximum(rng.standard_normal((count, WAYS, n, dimensions), np.float32) + means, 0)
        if normalise:
            x /= np.linalg.norm(x, axis=-1, keepdims=True)
        return x.reshape(count, WAYS * n, dimensions)

    y = np.tile(np.repeat(np.arange(WAYS), SHOTS), (count, 1))
    return draw(SHOTS), y, draw(queries)


def objectives(x: Array, y: Array, weights: Array, bias: Array) -> Array:
    """What logistic regression minimises, of every problem; in float64."""
    outputs = x.astype(np.float64) @ weights.transpose(0, 2, 1) + bias[:, None]
    likely = np.take_along_axis(outputs, y[..., None], 2)[..., 0] - np.logaddexp.reduce(outputs, 2)
    value: Array = 0.5 * (weights**2).sum((1, 2)) - C["logistic"] * likely.sum(1)
    return value


def difference(values: Array, right: Array) -> float:
    """The largest, relative."""
    return float(np.abs(values / right - 1).max())


def estimator(head: str, **options: Any) -> Any:
    """Scikit-learn's, with its own tolerance unless one is given."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC, LinearSVC

    if head == "svc":
        return SVC(**{"kernel": "linear", "C": C[head], **options})
    if head == "logistic":
        return LogisticRegression(**{"C": C[head], "max_iter": 1000, **options})
    kind = "crammer_singer" if head == "crammer-singer" else "ovr"
    return LinearSVC(**{"C": C[head], "multi_class": kind, **options})


def build(spec: Spec) -> Callable[[], Any]:
    """The side asked for by ``side``, ``head``, ``dtype``, ``threads``, ``normalise`` and ``sizes``."""
    head, sizes = spec["head"], spec.get("sizes", {})
    count = sizes.get("problems", PROBLEMS) if spec["side"] == "ours" else sizes.get("looped", LOOPED)
    x, y, _ = problems(count, spec["normalise"], sizes.get("dimensions", DIMENSIONS))
    x = x.astype(spec["dtype"])
    if spec["side"] == WITHOUT_TORCH:
        return looped(lambda a, b: estimator(head).fit(a, b), spec["threads"], x, y)
    import torch

    from innerloop import solvers

    torch.set_num_threads(1)
    fit = getattr(solvers, {"svm": "linear_svm", "crammer-singer": "crammer_singer"}.get(head, str(head)))
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    return lambda: fit(features, labels, WAYS, C=C[head], threads=spec["threads"])


def looped(fit: Callable[..., Any], threads: int, *columns: Array) -> Callable[[], Any]:
    """Scikit-learn's side: a loop of fits on exactly this many threads, in a process without torch."""
    from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped,unused-ignore]

    warnings.simplefilter("ignore")
    fit(*(column[0] for column in columns))  # loads libraries: those loaded later would not obey the limit
    threadpool_limits(threads)
    assert all(library["num_threads"] <= threads for library in threadpool_info())
    return lambda: [fit(*one) for one in zip(*columns, strict=True)]


class HeadsWorker(Worker):
    """Ours also says whether all problems converged."""

    def remarks(self, outcome: Any) -> Answer:
        """The share of problems that converged, and the steps that they took."""
        if isinstance(outcome, list):
            return {}
        shares = {"converged": outcome.converged, "steps": outcome.iterations}
        return {name: float(value.double().mean()) for name, value in shares.items()}

    def solutions(self, normalise: bool, sizes: dict[str, int]) -> Answer:
        """Logistic regressions beside scikit-learn's at tol=1e-10: how objectives and labels differ."""
        import torch

        from innerloop import solvers

        count, dimensions = min(TIGHT, sizes.get("looped", TIGHT)), sizes.get("dimensions", DIMENSIONS)
        drawn = problems(count, normalise, dimensions, QUERIES)
        warnings.simplefilter("ignore")
        tight = [estimator("logistic", tol=1e-10, max_iter=100_000) for _ in range(count)]
        fitted = [m.fit(a.astype(np.float64), b) for m, a, b in zip(tight, *drawn[:2], strict=True)]
        x, y, queries = (torch.from_numpy(part) for part in drawn)
        found = np.stack([m.coef_ for m in fitted]), np.stack([m.intercept_ for m in fitted])
        weights, bias = (torch.from_numpy(part) for part in found)
        labels = solvers.scores((weights, bias), queries.double()).argmax(-1)
        reference, out = objectives(*drawn[:2], *found), dict[str, Any]()
        for name in DTYPES:
            dtype = getattr(torch, name)
            solved = solvers.logistic(x.to(dtype), y, WAYS, C=C["logistic"])
            mine = objectives(*drawn[:2], solved.weights.double().numpy(), solved.bias.double().numpy())
            same = solvers.scores(solved, queries.to(dtype)).argmax(-1) == labels
            out[f"objective {name}"] = difference(mine, reference)
            out[f"labels {name}"] = float(same.double().mean())
        return {**out, "objectives": reference.tolist()}


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Logistic regression on features of unit length and as they come; then the support vector machines."""
    jax = environments.find("jax", say)
    cases = [("logistic", True), ("logistic", False)]
    if not quick:
        cases += [("svm", True), ("svc", True), ("crammer-singer", True)]
    given = quick, say, sizes or {}, jax
    rows = [row for head, normalise in cases for row in one_case(head, normalise, *given)]
    return {"cases": rows, "machine": harness.machine()}


def one_case(
    head: str, normalise: bool, quick: bool, say: Say, sizes: dict[str, int], jax: Environment | None = None
) -> list[Comparison]:
    """Ours in float32 and float64 against scikit-learn and JAX, each at its better thread count."""
    base = {"head": head, "normalise": normalise, "sizes": sizes}
    sides: list[Side] = []
    for who, dtype in product(("ours", WITHOUT_TORCH), DTYPES):
        sides += harness.on_threads([f"{who} {dtype}"], {**base, "side": who, "dtype": dtype})
    if jax and head == "logistic":
        sides += jax_sides(base, jax)

    def scale(side: Side) -> float:
        looped = side.spec["side"] == WITHOUT_TORCH
        return sizes.get("problems", PROBLEMS) / sizes.get("looped", LOOPED) if looped else 1.0

    with harness.started(sides, __name__, say) as both:
        off: dict[str, Any] = {}
        if head == "logistic":
            with Child("solutions", __name__) as child:  # torch and scikit-learn in one process: apart
                off = child.ask("solutions", normalise=normalise, sizes=sizes)
            for dtype in DTYPES if jax else ():
                name, right = f"jax {dtype}", np.array(off["objectives"])
                asked = {"count": len(right), "normalise": normalise, "dtype": dtype, "sizes": sizes}
                told = both.children[f"{name}@1"].ask("solutions", **asked)
                off[name] = difference(np.array(told["objectives"]), right)
                if not off[name] <= SAME:
                    raise RuntimeError(f"{name} is {off[name]:.2g} off scikit-learn's objective")
        timings = (measured := both.measured(quick, (3, 0.5), (9, 1.0), scale=scale)).timings
    title = f"{head}, {WAYS}-way {SHOTS}-shot, {'unit length' if normalise else 'as they come'}"
    peer = harness.better(timings, WITHOUT_TORCH).side.name.partition("@")[0]
    peers = [t for name, t in timings.items() if name.startswith(WITHOUT_TORCH)]
    times = ", ".join(f"{t.side.name.removeprefix('scikit-learn ')} {t.ms:,.0f} ms" for t in peers)
    rows = []
    for dtype in DTYPES:
        answer = both.answers[f"ours {dtype}@1"]
        notes = [f"scikit-learn's better of {times}"]
        notes += [f"{100 * answer['converged']:.1f} % converged, {answer['steps']:.1f} steps"]
        if off:
            notes.append(f"objective within {off[f'objective {dtype}']:.0e} of scikit-learn's at tol=1e-10")
            notes.append(f"{100 * off[f'labels {dtype}']:.2f} % of labels the same")
        given = f"{title}, {dtype}", WITHOUT_TORCH, AT_LEAST.get(head), notes
        rows.append(measured.row(*given, name=peer, ours=f"ours {dtype}"))
        if f"jax {dtype}" in off:
            told = ["Newton's method", f"objective within {off[f'jax {dtype}']:.0e} of the same"]
            rows.append(measured.row(given[0], f"jax {dtype}", None, told, "jax", f"ours {dtype}"))
    return rows


def jax_sides(base: Spec, environment: Environment) -> list[Side]:
    """JAX in both precisions."""
    sides = list[Side]()
    for dtype in DTYPES:
        spec, where = {**base, "side": "jax", "dtype": dtype}, environments.jax_devices(environment, 1, dtype)
        sides += harness.on_threads([f"jax {dtype}"], spec, None, JAX, where)
    return sides


WORKER = HeadsWorker(build)
