"""The child process of a benchmark: sets one side up, then runs it as often as it is told.

``python -m innerloop.bench.worker module:function THREADS JSON-OPTIONS``, requests and answers as JSON lines.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from innerloop.core.types import Params


def peak_megabytes() -> float:
    """The largest resident memory that this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


def digest(grads: Params) -> list[float]:
    """The norm of a gradient and three random projections: enough to see whether two sides agree."""
    import torch

    flat = torch.cat([grads[name].detach().reshape(-1).double() for name in sorted(grads)])
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(3, len(flat), generator=generator, dtype=torch.float64)
    return [float(flat.norm()), *(draws @ flat).tolist()]


def serve(step: Callable[[], Params], setup_seconds: float) -> None:
    """Answers requests on standard input until told to quit."""
    step()
    start = time.perf_counter()
    grads = step()
    answer({"setup_seconds": setup_seconds, "call_seconds": time.perf_counter() - start})
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "run":
            times = []
            for _ in range(request["calls"]):
                start = time.perf_counter()
                grads = step()
                times.append(time.perf_counter() - start)
            answer({"seconds": times})
        elif request["do"] == "digest":
            answer({"digest": digest(grads)})
        else:
            answer({"peak_mb": peak_megabytes()})
            return


def answer(message: dict[str, Any]) -> None:
    """One JSON line on the real standard output."""
    _OUT.write(json.dumps(message) + "\n")
    _OUT.flush()


_OUT = sys.stdout


def main() -> None:
    """Entry of the child process."""
    target, threads, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    sys.stdout = sys.stderr  # whatever a library prints must not mix with the answers
    import torch

    torch.set_num_threads(threads)
    module, _, function = target.partition(":")
    start = time.perf_counter()
    step = getattr(importlib.import_module(module), function)(threads=threads, **options)
    step()
    serve(step, time.perf_counter() - start)


if __name__ == "__main__":
    main()
