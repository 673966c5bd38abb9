"""Started as a process of its own: compiles the native layers, and compares what they compute with torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from innerloop.training.execution.try_compiler import flags


def build(compiler: str, folder: Path, library: Path) -> None:
    """Compiles the sources, and puts the library in its place when it is whole."""
    library.parent.mkdir(parents=True, exist_ok=True)
    made = library.with_name(f"{library.name}.{os.getpid()}.tmp")
    try:
        sources = sorted(map(str, folder.glob("*.cpp")))
        command = [compiler, *(flag for flag in flags() if flag != "-fopenmp"), *sources, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            raise SystemExit((lines or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0])
        os.replace(made, library)
    finally:
        made.unlink(missing_ok=True)


def check(library: Path) -> None:
    """Leaves with an error where gradients of a network differ from torch's."""
    import torch

    from innerloop.core.autodiff import plain_autograd
    from innerloop.nets.convolutional import conv4
    from innerloop.nets.ops.engine import use

    use(library)
    net = conv4(1, 16, 2, filters=4)
    params, buffers = net.init(torch.Generator().manual_seed(0))
    x = torch.randn(3, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for native in (False, True):
        leaves = {name: value.double().requires_grad_() for name, value in params.items()}
        with plain_autograd(native):
            features, _ = net.features(leaves, buffers, x, "batch")
            weight = leaves["conv1.weight"]
            (grad,) = torch.autograd.grad(features.square().sum(), weight, create_graph=True)
            found.append(torch.autograd.grad(grad.square().sum(), weight)[0])
    gap = float((found[0] - found[1]).abs().max() / found[0].abs().max())
    if not gap < 1e-9:
        raise SystemExit(f"what it compiled computes wrong gradients (off by {gap:.0e})")


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[3]), Path(sys.argv[4]))
    check(Path(sys.argv[4]))
