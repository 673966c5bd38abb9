"""The gallery: its scripts, the page that shows them, and what they print."""

from __future__ import annotations

import ast
import math
import os
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from oracles.patience import PATIENCE
from support.places import ROOT
from support.warm import Warm

FOLDER = ROOT / "gallery"
PAGE = ROOT / "docs" / "gallery.md"
IMAGES = ROOT / "docs" / "images"

ORDER = {
    "Your own": ("own_pictures", "own_task_family", "own_learner", "own_network", "few_shot_head"),
    "Advice before training": (
        "inner_rate",
        "is_maml_worth_it",
        "network_kernels",
        "meta_kernels",
        "network_search",
    ),
    "Runs": ("resume_and_compare", "hardest_task", "two_ranks"),
}
"""The scripts by the headings of the page."""

SEEN = {
    "own_pictures": "24 five-pointed stars, each with the label that it was given",
    "own_task_family": "Points of a valley, and the network's curve before and after three gradient steps",
    "few_shot_head": "Accuracy against examples per digit, expected and found: both rise from below 65 %",
    "inner_rate": "Accuracy against the inner rate: highest at the point that was estimated before training",
    "is_maml_worth_it": "The gain of MAML against hardness, for three distances, and the measured gain",
    "network_kernels": "The distance to the limit falls with the width, close to its power of minus one half",
    "meta_kernels": "The error of ANIL and multi-task learning against the number of training tasks",
    "hardest_task": "The five characters of a task, an example and three queries each, right or wrong",
}
"""What a picture shows, for those who do not see it."""

ABOUT = (
    "These short scripts run as they are, each in a few seconds on one core and without a download. They are "
    "in the folder `gallery` of the repository. Tests run every one of them and compare what it prints with "
    "this page."
)

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ANY_PROCESSOR = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
"""What every processor can do: short trainings amplify the rounding in which processors differ."""
RELATIVE = 0.03
"""How far a number may be off: processors sum in different orders, and training amplifies rounding errors."""


class Script(NamedTuple):
    """A script in parts: the sentence it begins with, the rest of its docstring, and its code."""

    title: str
    words: str
    code: str


def read_script(name: str) -> Script:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    title, _, words = (ast.get_docstring(tree) or "").partition("\n\n")
    lines = text.splitlines()[tree.body[0].end_lineno :]
    return Script(title, words, "\n".join(lines).strip() + "\n")


def warm_process() -> Warm:
    """What runs the scripts: by what every processor can do, on one thread."""
    paths = os.pathsep.join([str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, **ANY_PROCESSOR, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    return Warm(environment, PATIENCE)


def run_script(warm: Warm, name: str, folder: Path) -> str:
    """What a script prints, in a process of its own that starts in an empty folder."""
    done = warm.run(FOLDER / f"{name}.py", folder)
    assert done.code == 0, done.err
    return done.out


def same_output(shown: str, printed: str) -> bool:
    """Whether words are the same, and numbers are as far as the processor does not decide.

    A number may differ by :data:`RELATIVE`, and by one in the last digit that is printed.
    """
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(
        math.isclose(float(a), float(b), rel_tol=RELATIVE, abs_tol=1.01 * _last_digit(a)) for a, b in pairs
    )


def _last_digit(number: str) -> float:
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def section(name: str, output: str) -> str:
    """The part of the page about one script."""
    script = read_script(name)
    title = script.title.rstrip(".")
    parts = [f"### {title}", _wrapped(script.words), f"```python\n{script.code}```"]
    parts += [f"`gallery/{name}.py` prints:", f"```text\n{output}```"]
    if (IMAGES / f"gallery-{name}.png").is_file():
        parts.append(f"![{SEEN[name]}](images/gallery-{name}.png)")
    return "\n\n".join(parts)


def page(outputs: dict[str, str]) -> str:
    """The text of docs/gallery.md."""
    parts = ["# Gallery", _wrapped(ABOUT)]
    for heading, names in ORDER.items():
        parts += [f"## {heading}", *(section(name, outputs[name]) for name in names)]
    return "\n\n".join(parts) + "\n"


def shown_outputs() -> dict[str, str]:
    """What the page says that each script prints."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^`gallery/(\w+)\.py` prints:\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return dict(found)
