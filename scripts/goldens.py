"""What the package answers on fixed seeds, written to files and compared: nothing may get lost in a refactor.

    PYTHONPATH=src python scripts/goldens.py write FOLDER [--only 'verbs/train-*' …]
    python scripts/goldens.py compare BEFORE AFTER [--tolerance 1e-4]
    PYTHONPATH=src python scripts/goldens.py smoke NAME …

``verbs/`` has the JSON of the commands in ``goldens.cases``, ``help/`` what every verb says of itself,
``losses/`` the first steps of every learner and objective in every execution mode, ``names.json`` all public
names. It knows the package by its command and by ``innerloop.*`` alone; ``golden_runs.py`` runs the cases.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import importlib
import inspect
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import golden_runs as runs
from golden_answers import plain

SMOKE = Path(__file__).parents[1] / "studies" / "tests" / "golden" / "smoke"
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
MODES = {
    "loop": "run.execution=loop",
    "vmap": "run.execution=vmap",
    "threads": "run.execution=threads run.threads=2",
    "processes": "run.execution=processes run.threads=2",
    "float64": "run.execution=vmap run.chunk=1 run.dtype=float64",
}
MOST = 5
"""Differing keys of a case that are printed."""


def public_names() -> dict[str, str]:
    """Every public name, as ``innerloop.room.name``, with its signature."""
    names, packages = {}, [importlib.import_module("innerloop")]
    for package in packages:  # grows
        for name in sorted(exported(package)):
            value, key = getattr(package, name), f"{package.__name__}.{name}"
            if isinstance(value, ModuleType):
                packages.append(value)
            else:
                names[key] = described(value)
                if inspect.isclass(value) and package.__name__ != "innerloop":
                    told = {k: described(v) for k, v in vars(value).items() if not k.startswith("_")}
                    names |= {f"{key}.{k}": v for k, v in told.items() if v != "_tuplegetter"}
    return dict(sorted(names.items()))


def exported(package: ModuleType) -> set[str]:
    """What a package's ``__init__`` imports ``as`` itself."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in imports for alias in node.names if alias.asname == alias.name}


def described(value: Any) -> str:
    """What kind of object it is, and its signature."""
    value = getattr(value, "__func__", value)
    if isinstance(value, dict):
        return f"dict: {', '.join(map(str, value))}"
    try:
        signature = re.sub(r"ForwardRef\((.*?)\)", r"\1", str(inspect.signature(value)))
        return (
            f"{type(value).__name__} {re.sub(r'([A-Za-z_]+[.])+(?=[A-Za-z])| at 0x[0-9a-f]+', '', signature)}"
        )
    except (TypeError, ValueError):
        return type(value).__name__


def write(folder: Path, *only: str) -> None:
    """Makes the golden files whose names fit one of the patterns."""
    if wanted("names", only):
        keep(folder / "names", public_names())
    if only == ("names",):
        return
    runs.preload()
    with tempfile.TemporaryDirectory(prefix="goldens-") as there:
        work = Path(there).resolve()
        runs.prepare(work)
        cases = {name: words for name, words in runs.read_cases().items() if not name.startswith("losses/")}
        if any(map(re.compile(r"help|[*]").match, only)):
            helped = {verb.replace(" ", "-") or "innerloop": verb for verb in runs.all_verbs(work)}
            cases |= {f"help/{name}": f"{verb} --help" for name, verb in helped.items()}
        made = {name: functools.partial(runs.run_case, name, words, work) for name, words in cases.items()}
        losses = {
            f"losses/{mode}": functools.partial(runs.run_losses, mode, MODES[mode], work) for mode in MODES
        }
        for name, make in {**made, **losses}.items():
            if wanted(name, only):
                began = time.perf_counter()
                keep(folder / name, make())
                told(f"{name}: {time.perf_counter() - began:.1f} s")


def wanted(name: str, only: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in only)


def keep(path: Path, value: Any) -> None:
    """Writes a golden file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=1, ensure_ascii=False)
    path.with_name(f"{path.name}.json").write_text(text + "\n", encoding="utf-8")


def told(line: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"{line}\n")


def differences(old: Any, new: Any, tolerance: float, key: str = "") -> Iterator[str]:
    """What differs between two JSON values, a line each."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            at = f"{key}.{name}"
            if name not in old or name not in new:
                yield f"{at} is {'new' if name in new else 'gone'}"
            else:
                yield from differences(old[name], new[name], tolerance, at)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{key} has {len(new)} entries, had {len(old)}"
        for place, (then, now) in enumerate(zip(old, new, strict=False)):
            yield from differences(then, now, tolerance, f"{key}[{place}]")
    elif not same(old, new, tolerance):
        yield f"{key}: {str(old)[:160]!r} → {str(new)[:160]!r}"


def same(old: Any, new: Any, tolerance: float) -> bool:
    """Whether two plain values agree; with a tolerance, so do texts whose numbers do."""
    if old == new and isinstance(old, type(new)):
        return True
    if not tolerance or isinstance(old, bool) or isinstance(new, bool):
        return False
    if isinstance(old, str) and isinstance(new, str):
        pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=False)
        alike = all(same(*(float(n.replace("−", "-")) for n in pair), tolerance) for pair in pairs)
        return alike and NUMBER.sub("#", old) == NUMBER.sub("#", new)
    numbers = isinstance(old, int | float) and isinstance(new, int | float)
    return numbers and math.isclose(old, new, rel_tol=tolerance)


def compare(before: Path, after: Path, tolerance: float = 0.0) -> dict[str, list[str]]:
    """Differences by the name of their file; only files of one side are differences, too."""
    files = sorted({str(file.relative_to(side)) for side in (before, after) for file in side.rglob("*.json")})
    found = {}
    for file in files:
        sides = [side / file for side in (before, after)]
        there = [side.is_file() for side in sides]
        if all(there):
            old, new = (json.loads(side.read_text(encoding="utf-8")) for side in sides)
            found[file] = [*differences(old, new, tolerance)]
        else:
            found[file] = [f"is only in {before if there[0] else after}"]
    return {file: lines for file, lines in found.items() if lines}


def smoke(name: str) -> dict[str, Any]:
    """The rows of a study at smoke, without times and reasons."""
    from innerloop_studies.reproduce import find

    reproduction = find(name)("smoke", lambda _: None)
    return rows_of([row._asdict() for row in reproduction.rows])


def rows_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a golden file holds of the rows of a study."""
    kept = ("what", "paper", "ours", "holds", "ok")
    return {"rows": [{key: plain(row[key]) for key in kept} for row in rows]}


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing, comparing, smoking = (verbs.add_parser(name) for name in ("write", "compare", "smoke"))
    writing.add_argument("folder", type=Path)
    writing.add_argument(
        "--only", nargs="+", default=["*"], help="patterns of names, such as 'verbs/train-*'"
    )
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--tolerance", type=float, default=0.0, help="relative, for numbers")
    smoking.add_argument("names", nargs="+")
    given = parser.parse_args()
    if given.verb == "write":
        write(given.folder, *given.only)
    elif given.verb == "smoke":
        os.environ.pop("INNERLOOP_TEST_DATA", None)  # photographs would add rows
        for name in given.names:
            keep(SMOKE / name, smoke(name))
    else:
        found = compare(given.before, given.after, given.tolerance)
        for file, lines in found.items():
            more = [f"… and {len(lines) - MOST} more"] if len(lines) > MOST else []
            told("\n  ".join([file, *lines[:MOST], *more]))
        told(f"{len(found)} files differ")
        return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
