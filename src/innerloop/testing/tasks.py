"""Does a stream of tasks behave?"""

from __future__ import annotations

import torch

from innerloop.core.types import Task
from innerloop.tasks.sampler import Sampler
from innerloop.testing.collect import Failures


def _same(a: Task, b: Task) -> bool:
    return all(x.shape == y.shape and torch.equal(x, y) for x, y in zip(a, b, strict=True))


def check_tasks(sampler: Sampler, episodes: int = 6) -> None:
    """Episodes are pure, addressable, of equal shape, and not all the same.

    Raises:
        AssertionError: listing everything that failed.
    """
    failures = Failures(f"sampler '{sampler.name}'")
    failures.attempt("episodes", lambda: _check(sampler, episodes, failures))
    failures.report()


def _check(sampler: Sampler, n: int, failures: Failures) -> None:
    alone = [sampler.episode(i) for i in range(n)]
    again, backwards = (
        sampler.episodes(range(n)).tasks(),
        sampler.episodes(range(n - 1, -1, -1)).tasks()[::-1],
    )
    pure = all(_same(a, b) for a, b in zip(alone, again, strict=True))
    failures.expect(pure, "episode(i) differs between being asked for alone and in a batch")
    ordered = all(_same(a, b) for a, b in zip(alone, backwards, strict=True))
    failures.expect(ordered, "episode(i) depends on the order in which episodes are asked for")
    batch = sampler.batch(1, n // 2)
    same = all(_same(a, b) for a, b in zip(alone[n // 2 : 2 * (n // 2)], batch.tasks(), strict=True))
    failures.expect(same, "batch(step, size) is not episodes step·size and following")
    first = alone[0]
    for name in ("support", "query"):
        x, y = getattr(first, f"x_{name}"), getattr(first, f"y_{name}")
        failures.expect(len(x) == len(y), f"{name}: {len(x)} inputs but {len(y)} targets")
        failures.expect(bool(torch.isfinite(x).all()), f"{name} inputs are not all finite")
        ok = y.is_floating_point() or y.dtype == torch.int64
        failures.expect(ok, f"{name} targets must be floating point or int64, not {y.dtype}")
    failures.expect(first.id.dtype == torch.int64, f"id must be int64, not {first.id.dtype}")
    differ = sampler.n_tasks == 1 or not all(_same(first, other) for other in alone[1:])
    failures.expect(differ, "all episodes are the same")
