"""The notebook of the first five minutes, and a runner that executes its cells without Jupyter.

``python -m support.notebook NOTEBOOK`` runs the cells in the current folder; it prints their outputs as JSON.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracles.patience import PATIENCE
from support.gallery import ANY_PROCESSOR
from support.places import ROOT

NOTEBOOK = ROOT / "examples" / "five_minutes.ipynb"
Outputs = list[dict[str, Any]]


def read(path: Path = NOTEBOOK) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def printed(outputs: Outputs) -> str:
    """What a cell has printed."""
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def run_cells(cells: list[str], change: Callable[[str], str] = str) -> list[Outputs]:
    """Executes cells one after the other in one namespace; gives what each prints, draws and ends with."""
    import matplotlib

    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell(change(cell), number, namespace) for number, cell in enumerate(cells, start=1)]


def run_apart(folder: Path) -> list[Outputs]:
    """The outputs of all cells, run in a process of their own that starts in ``folder``."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))
    # without a compiler: what it makes of sums differs between machines
    simple = {**ANY_PROCESSOR, "OMP_NUM_THREADS": "1", "CXX": "none"}
    environment = {**os.environ, **simple, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "support.notebook", str(NOTEBOOK)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    outputs: list[Outputs] = json.loads(done.stdout)
    return outputs


def written(outputs: list[Outputs]) -> str:
    """The text of the notebook with these outputs."""
    notebook = read()
    for number, (cell, made) in enumerate(zip(code_cells(notebook), outputs, strict=True), start=1):
        cell.update(outputs=made, execution_count=number)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run_cell(code: str, number: int, namespace: dict[str, Any]) -> Outputs:
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    stream, outputs, value = io.StringIO(), [], None
    with contextlib.redirect_stdout(stream), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*non-interactive")  # plt.show() where nothing is shown
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    if stream.getvalue():
        lines = stream.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    outputs += _figures()
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append(
            {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
        )
    return outputs


def _figures() -> Outputs:
    """Open figures as pictures, which are then closed, as in Jupyter."""
    from matplotlib import pyplot

    found = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, dpi=80, metadata={"Software": None})
        data = {
            "image/png": base64.b64encode(file.getvalue()).decode(),
            "text/plain": ["<Figure>"],
        }
        found.append({"output_type": "display_data", "metadata": {}, "data": data})
    pyplot.close("all")
    return found


if __name__ == "__main__":
    given = read(Path(sys.argv[1]))
    sys.stdout.write(json.dumps(run_cells([source(cell) for cell in code_cells(given)])))
