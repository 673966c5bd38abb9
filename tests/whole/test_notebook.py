"""The notebook of the first five minutes is one, runs, and keeps the outputs that it gives.

To write its outputs anew: PYTHONPATH=tests python tests/whole/test_notebook.py
"""

import re
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from support import notebook
from support.gallery import same_output
from whole.test_docs import TINY

LONG = re.compile(r"maml\.evaluate|sine-erm")
QUICK = "eval.episodes=4", "eval.validation_episodes=2", "run.execution=loop", "run.compile=off"


def small(code):
    """The code with a few steps and tasks, and without measuring how to execute them."""
    for pattern, less in TINY:
        code = pattern.sub(less, code)
    return re.sub(r'"(sine-\w+)"', lambda name: ", ".join(f'"{word}"' for word in (name[1], *QUICK)), code)


def test_it_is_a_notebook_whose_cells_have_their_outputs():
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(notebook.NOTEBOOK, as_version=4))
    cells = notebook.code_cells(notebook.read())
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell["outputs"] for cell in cells[1:])
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell["outputs"])


def test_its_cells_run(tmp_path, monkeypatch):
    """With a few steps, without judging again and the baseline; ``make test-slow`` runs all as they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("innerloop.training.execution.auto.available_cores", lambda: 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cells = [notebook.source(cell) for cell in notebook.code_cells(notebook.read())]
        outputs = notebook.run_cells([cell for cell in cells if not LONG.search(cell)], small)
    finally:
        torch.set_num_threads(threads)
    assert any(output["output_type"] == "display_data" for cell in outputs for output in cell)


@pytest.mark.slow
def test_it_prints_what_it_shows(tmp_path):
    cells = notebook.code_cells(notebook.read())
    for cell, outputs in zip(cells, notebook.run_apart(tmp_path), strict=True):
        shown, now = notebook.printed(cell["outputs"]), notebook.printed(outputs)
        assert same_output(shown, now), f"shown:\n{shown}\nprinted:\n{now}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        notebook.NOTEBOOK.write_text(notebook.written(notebook.run_apart(Path(folder))), encoding="utf-8")
    sys.stdout.write(f"{notebook.NOTEBOOK}\n")
