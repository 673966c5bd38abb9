"""How well iMAML's inner problem is solved on pictures, by its penalty: the table of docs/taxonomy.md.

    python -m innerloop_studies.measurements.proximal [--tasks 4]

It prints a table, with ``--json`` its numbers. The network of ``omniglot-imaml-cpu`` at its first weights, on
validation tasks of Omniglot (``innerloop data get omniglot``); eigenvalues of the support loss's Hessian
where the steps end are by Lanczos' method (scipy).
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

import innerloop as il
from innerloop.core.autodiff import hessian_product
from innerloop.core.types import Params, Task
from innerloop.experiment.parts import Parts, build
from innerloop.learners.inner import InnerLoss, network_loss, predictor, settled
from innerloop.learners.proximal import Proximal, solve
from innerloop.learners.updates import sgd
from innerloop_studies.recorded import table as markdown

RECIPE = "omniglot-imaml-cpu"
SETTINGS = ((2.0, 16, 0.1), (2.0, 80, 0.02), (0.5, 16, 0.1), (0.1, 16, 0.1), (0.1, 8, 0.2))
"""Penalty λ, inner steps and their size; the last one is the recipe's."""
HEADING = {
    "residual": "inner residual",
    "loss": "support loss at the end",
    "largest": "largest eigenvalue of H there",
    "smallest": "smallest",
}


def solve_task(parts: Parts, task: Task, problem: Proximal) -> dict[str, float]:
    """Where the steps of one task end: how far from a solution, on what ground, and what it is worth."""
    network, buffers = parts.network, parts.buffers
    loss = il.get_loss(parts.recipe.inner.loss)
    inner = network_loss(network, loss, parts.params, buffers, task.x_support, task.y_support, training=False)
    solved = solve(problem, inner, parts.params)
    found = {"residual": float(solved.residual), "loss": float(inner(solved.moved).detach())}
    ends = {"largest": "LA", "smallest": "SA"}
    found |= {name: eigenvalue(inner, solved.moved, which) for name, which in ends.items()}
    with torch.no_grad():
        adapted = settled(network, solved.moved, buffers, task.x_support)
        outputs, _ = predictor(network)(adapted, task.x_query)
    return {**found, "accuracy": float((outputs.argmax(-1) == task.y_query).double().mean())}


def eigenvalue(inner: InnerLoss, at: Params, which: str) -> float:
    """An extreme eigenvalue of the Hessian: the largest (``LA``) or the smallest (``SA``)."""
    product, sizes = hessian_product(inner, at), [value.numel() for value in at.values()]

    def times(vector: NDArray[Any]) -> NDArray[Any]:
        pieces = torch.from_numpy(vector.reshape(-1)).float().split(sizes)
        v = {name: piece.view_as(at[name]) for name, piece in zip(at, pieces, strict=True)}
        return torch.cat([one.reshape(-1) for one in product(v).values()]).double().numpy()

    size = sum(sizes)
    operator = LinearOperator((size, size), matvec=times, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    return float(eigsh(operator, k=1, which=which, v0=start, tol=1e-2, return_eigenvectors=False)[0])


def measure(parts: Parts, tasks: Sequence[Task], penalty: float, steps: int, lr: float) -> dict[str, Any]:
    """One line of the table: least and largest value over the tasks, and the mean accuracy."""
    each = [solve_task(parts, task, Proximal(penalty, lr, steps, sgd())) for task in tasks]
    ranges = {name: [f(one[name] for one in each) for f in (min, max)] for name in HEADING}
    right = sum(one["accuracy"] for one in each) / len(each)
    return {"penalty": penalty, "steps": steps, "lr": lr, **ranges, "accuracy": right}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As Markdown."""
    lines = []
    for row in rows:
        ranges = (" … ".join(f"{end:.2g}".replace("-", "−") for end in row[name]) for name in HEADING)
        asked = f"{row['penalty']:g}", f"{row['steps']} of {row['lr']:g}"
        lines.append((*asked, *ranges, f"{100 * row['accuracy']:.0f} %"))
    return markdown(("λ", "inner steps", *HEADING.values(), "query accuracy"), lines)


def main() -> None:
    """Prints the table as Markdown, or its numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    parts = build(il.load_recipe(RECIPE))
    tasks = [parts.data.validation.episode(number) for number in range(given.tasks)]
    rows = [measure(parts, tasks, *setting) for setting in SETTINGS]
    told = json.dumps({"rows": rows, "settings": {"tasks": given.tasks}}) if given.json else table(rows)
    sys.stdout.write(f"{told}\n")


if __name__ == "__main__":
    main()
