"""Side by side with peers, here and now: one file per benchmark, with ``run(*, quick, say) -> Report``.

It states its ``TITLE`` and a ``VERSION``, raised by hand when a side or a case changes, and has a function
``figure`` if its result can be drawn. What it states is read, not imported: nothing here imports torch.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.core.errors import UserError, did_you_mean
from innerloop_studies.reproduce import stated


class Benchmark(NamedTuple):
    """What a module states: what it measures, which version of it, and whether its result can be drawn."""

    what: str
    version: int
    is_drawn: bool


BENCHMARKS: dict[str, Benchmark] = {
    file.stem.replace("_", "-"): Benchmark(
        known["TITLE"], known["VERSION"], "\ndef figure(" in file.read_text("utf-8")
    )
    for file in sorted(Path(__file__).parent.glob("[a-z]*.py"))
    if "TITLE" in (known := stated(file))
}


def module_of(name: str) -> Any:
    """The module of a benchmark, imported."""
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise UserError(f"unknown benchmark '{name}'{did_you_mean(name, BENCHMARKS)}: there are {known}.")
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def run(name: str, *, quick: bool = False, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs a benchmark: its ``Report``, with its name."""
    return {"name": name, **module_of(name).run(quick=quick, say=say)}
