"""MAML on pictures, 4 tasks, 5 inner steps and 1: Omniglot's shapes, and the field's canonical case."""

from typing import Any

from innerloop.core.resources import available_cores
from innerloop.training.execution.probes import native_works
from innerloop_studies.bench.harness import Report, Say
from innerloop_studies.bench.maml import Ours, run_cases

TITLE = "MAML on pictures (28×28, Conv4-64; 84×84, Conv4-32), a step of ProtoNet; peers as of maml-sine"
VERSION = 2
PEERS = ("jax",)


def run(quick: bool = False, say: Say = print) -> Report:
    """Ours runs whole tasks at once: in threads on native layers, and in processes on torch's."""
    cores, native = (available_cores(),), native_works()
    if not native.works:
        say(f"{native.reason}: native layers are left out")

    def ways(loop: float, jax: float, by_torch: float) -> list[Ours]:
        """What is promised of native layers against the plain loop and JAX, and of torch's."""
        promised = {"plain-loop": loop, "jax": jax}
        own = Ours("native", {"mode": "threads", "compile": "native"}, promised, cores)
        usual = Ours("processes", {"mode": "processes"}, {"plain-loop": by_torch}, cores)
        return [own, usual] if native.works else [usual]

    small = run_cases("conv", [(5, ways(3.5, 1.2, 2.0)), (1, ways(2.2, 1.2, 1.1))], quick=quick, say=say)
    # seconds a call: fewer of them, and no libraries. In float32 the largest of four is another one
    # for another rounding, and gradients are up to 5 % off those of float64
    given: dict[str, Any] = {"quick": quick, "say": say, "libraries": False}
    cases, one = [(5, ways(3.0, 1.3, 2.0)), (1, ways(2.8, 1.3, 1.6))], {"sizes": {"tasks": 1}}
    large = run_cases("pooled", cases, rounds=5, warm=1, prefix="canonical, ", exact=one, **given)
    own = Ours("native", {"mode": "loop", "compile": "native"}, {"plain-loop": 1.3, "jax": 1.0}, [1])
    usual = Ours("torch", {"mode": "loop"}, {})
    first_order, name = [own, usual] if native.works else [usual], "ProtoNet, Conv4-64, 84×84, "
    step = run_cases("protonet", [(1, first_order)], prefix=name, exact={"sizes": {"size": 32}}, **given)
    return {**small, "cases": small["cases"] + large["cases"] + step["cases"]}
