"""Started as a process of its own: products in bfloat16, which a processor may announce and die of."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

SIZES = (1, 3, 8, 16, 17, 32, 64, 160, 256)
PICTURES = ((1, 16, 16, 3), (8, 16, 8, 3), (64, 64, 8, 3), (64, 160, 4, 1), (16, 32, 10, 5))
NEAR = 0.05


def no_core_dump() -> None:
    """A trial that dies leaves nothing behind."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Leaves with an error if a product is not what float32 says; dies where the machine makes it die."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    no_core_dump()
    draw = torch.Generator().manual_seed(0)

    def compare(what: str, run: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        """Ends the process with a message if ``run`` in bfloat16 is far from what it is in float32."""
        inputs = [torch.randn(*shape, generator=draw) for shape in shapes]

        def outcome(dtype: torch.dtype) -> list[Tensor]:
            """The result of ``run`` in ``dtype``, and the gradients of its sum."""
            leaves = [x.to(dtype).requires_grad_() for x in inputs]
            y = run(*leaves)
            return [y.detach().float(), *(g.float() for g in torch.autograd.grad(y.float().sum(), leaves))]

        for exact, rounded in zip(outcome(torch.float32), outcome(torch.bfloat16), strict=True):
            off = float((rounded - exact).norm() / (exact.norm() + 1))
            if not off <= NEAR:
                raise SystemExit(f"{what} in bfloat16 is wrong by {off:.2g} of its norm")

    for n in SIZES:
        compare(f"a product of {n}×{n} matrices", torch.matmul, (n, n), (n, n))
        compare(f"a linear layer of {n} features", F.linear, (5, n), (7, n), (7,))
        compare(f"a matrix of {n}×{n} times a vector", torch.mv, (n, n), (n,))
    for n in (1, 4, 16, 64):
        compare(f"a batched product of {n}×{n} matrices", torch.bmm, (3, n, n), (3, n, n))
    for inputs, outputs, side, kernel in PICTURES:
        shapes = ((4, inputs, side, side), (outputs, inputs, kernel, kernel))
        for form in (torch.contiguous_format, torch.channels_last):

            def convolve(x: Tensor, w: Tensor, form: torch.memory_format = form) -> Tensor:
                """A convolution that keeps the size of its pictures, in the memory format ``form``."""
                return F.conv2d(x.contiguous(memory_format=form), w, padding=w.shape[-1] // 2)

            compare(f"a convolution of {inputs} to {outputs} channels", convolve, *shapes)
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(64, 64, generator=draw)
        sys.exit(0 if (x @ x).dtype == torch.bfloat16 else "autocast does not choose bfloat16")


if __name__ == "__main__":
    main()
