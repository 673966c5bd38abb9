"""MAML on sinusoids: MLP 1-40-40-1, 25 tasks, 10 support and 10 query points, 5 inner steps and 1."""

from innerloop.training.execution.probes import compiler_works
from innerloop_studies.bench.harness import Report, Say
from innerloop_studies.bench.maml import Ours, run_cases

TITLE = "MAML on sinusoids, MLP 1-40-40-1, 25 tasks, against a plain loop, higher, torchopt and JAX"
VERSION = 2
PEERS = ("jax",)

EAGER = {"plain-loop": 5.0, "higher": 8.0}
COMPILED = {"plain-loop": 30.0, "higher": 50.0}
NATIVE = {"plain-loop": 60.0, "jax": 1.1}


def run(quick: bool = False, say: Say = print) -> Report:
    """Ours in native code, compiled to C++, with the graph captured, and eager; all under ``vmap``."""
    uncompiled = {"eager": "off", "captured": "trace"}
    ways = [Ours(name, {"mode": "vmap", "compile": how}, EAGER) for name, how in uncompiled.items()]
    compiler = compiler_works()
    if not compiler.works:
        say(f"{compiler.reason}: the compiled cases are left out")
    else:
        ways.append(Ours("native", {"mode": "vmap", "compile": "native"}, NATIVE))
    if compiler.works and not quick:  # compiling takes most of a minute
        ways.append(Ours("compiled", {"mode": "vmap", "compile": "full"}, COMPILED))
    once = [way._replace(at_least={}) for way in ways]
    return run_cases("sine", [(5, ways), (1, once)], quick=quick, say=say)
