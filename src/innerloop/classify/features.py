"""Features of pictures: each computed once, kept as it comes, found again by what the picture holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache as once
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from innerloop.classify.backbones import Backbone, Forward, onnxruntime_forward, open_backbone
from innerloop.classify.cache import FeatureFiles, Outcome, digests, features_folder
from innerloop.classify.inputs import Digest, PictureInput, pictures_in
from innerloop.core.errors import UserError
from innerloop.core.resources import available_cores
from innerloop.data.folder import OnBad, unreadable
from innerloop.data.pictures import BadPictureError, Progress, cores, in_threads, prepare, silent
from innerloop.training.execution.plan import Plan, torch_threads

BATCH = 4  # pictures that a worker takes at a time: maps of more leave the processor's cache


class Features(NamedTuple):
    """What became of pictures.

    Attributes:
        values: ``(n, d)`` float32, a row for every picture that could be read.
        rows: which of the given pictures each row is of.
        names: their names.
        skipped: pictures that could not be read, with the reason.
        computed: how many were computed now; the others were kept from before, or are there twice.
        seconds: that it took.
        plan: how they were computed and what was measured; None where nothing was.
    """

    values: NDArray[np.float32]
    rows: NDArray[np.int64]
    names: list[str]
    skipped: list[tuple[str, str]]
    computed: int
    seconds: float
    plan: Plan | None = None


Done = list[tuple[Digest, NDArray[np.float32] | str]]
"""Pictures of a part with their features, or why there are none."""


def extract(
    backbone: Backbone | str,
    pictures: Any,
    *,
    cache: bool | str | Path = True,
    on_bad: OnBad = "refuse",
    progress: Progress = silent,
    batch: int = BATCH,
    threads: int | None = None,
    device: str = "cpu",
) -> Features:
    """Features of pictures by a pretrained backbone.

    Every picture is brought to what the weights were trained on, and goes through the network once: features
    are kept on disk as they come, by backbone, weights, preprocessing and content of the picture. What was
    interrupted goes on where it was. Files that have not changed since they were read are not read again.

    Args:
        backbone: from :func:`open_backbone`, or its name.
        pictures: file names, arrays or pictures of Pillow, one or several, or a source of pictures.
        cache: whether features are kept, in the data folder or in the folder given.
        on_bad: what to do with pictures that cannot be read: ``refuse`` names them all in the end, ``skip``
            leaves them out.
        progress: told how many of those to be computed are done.
        batch: pictures at a time; memory grows with it.
        threads: cores to use; all by default. How they are used, and for EfficientNet-Lite whether by
            onnxruntime (where it is installed), is measured on the first pictures.
        device: where the network computes.

    Raises:
        UserError: pictures that cannot be read, or weights that give no numbers.
    """
    start = time.perf_counter()
    backbone = open_backbone(backbone) if isinstance(backbone, str) else backbone
    items = pictures_in(pictures)
    place = None if cache is False else features_folder() if cache is True else Path(cache)
    outcomes = digests(items, place, min(cores(), threads or cores()))
    files = None
    if place is not None:
        files = FeatureFiles(place / backbone.fingerprint[:32], backbone.dimension, backbone.about())
    with files if files is not None else nullcontext():
        rows: dict[Digest, NDArray[np.float32] | str] = {}
        if files is not None:
            rows.update(files.find(one for one in outcomes if isinstance(one, bytes)))
        waiting = _waiting(items, outcomes, rows)
        progress("features", 0, len(waiting))
        parts = _parts(waiting, rows, outcomes, batch)
        plans = plans_for(threads or available_cores())
        # made when it is first needed: all may be kept already
        work = partial(_compute, backbone, once(partial(backbone.forward, device)), device)
        ways = [Way("torch", plan, work) for plan in plans]
        worth = device == "cpu" and len(parts) > _worth([ways[0]] * 2)  # else onnxruntime is not even loaded
        if worth and (quick := onnxruntime_forward(backbone)):
            ways.insert(1, Way("onnxruntime", plans[0], partial(_compute, backbone, lambda: quick, device)))
        done, used = 0, list[Plan]()
        for some in run_parts(parts, ways, used.append):
            made = {digest: row for digest, row in some if not isinstance(row, str)}
            if files is not None and made:
                files.add(list(made), np.stack(list(made.values())))
            rows.update(some)
            done += len(some)
            progress("features", done, len(waiting))
    computed = len([1 for _, digest in waiting if not isinstance(rows[digest], str)])
    found = _gathered(backbone, items, outcomes, rows, on_bad, computed, time.perf_counter() - start)
    return found._replace(plan=used[0] if used else None)


def _waiting(
    items: Sequence[PictureInput], outcomes: Sequence[Outcome], known: dict[Digest, Any]
) -> list[tuple[PictureInput, Digest]]:
    """Pictures that must be computed, each content once."""
    left = {
        digest: item
        for item, digest in zip(items, outcomes, strict=True)
        if isinstance(digest, bytes) and digest not in known
    }
    return [(item, digest) for digest, item in left.items()]


def _parts(
    waiting: Sequence[tuple[PictureInput, Digest]],
    known: Container[Digest],
    outcomes: Sequence[Outcome],
    batch: int,
) -> list[list[tuple[PictureInput, Digest]]]:
    """Pictures that go through the network together: the same ones after an interruption as without it."""
    # the last bits of features depend on how many pictures go together: so all are divided, those kept too,
    # and a part is kept at once; what is missing from parts of which some is kept is put together
    every = list(dict.fromkeys(one for one in outcomes if isinstance(one, bytes)))
    items = {digest: (item, digest) for item, digest in waiting}
    whole: list[list[tuple[PictureInput, Digest]]] = []
    single: list[tuple[PictureInput, Digest]] = []
    for start in range(0, len(every), batch):
        part = every[start : start + batch]
        left = [items[digest] for digest in part if digest not in known]
        if len(left) == len(part):
            whole.append(left)
        else:
            single += left
    return whole + [single[i : i + batch] for i in range(0, len(single), batch)]


def _compute(
    backbone: Backbone,
    forward: Callable[[], Forward],
    device: str,
    part: Sequence[tuple[PictureInput, Digest]],
) -> Done:
    """Decodes and prepares the pictures of a part, and computes their features."""
    ready: list[tuple[Digest, NDArray[np.uint8]]] = []
    done: Done = []
    for item, digest in part:
        try:
            ready.append((digest, prepare(item.image(), backbone.preprocessing)))
        except BadPictureError as error:
            done.append((digest, str(error)))
    if ready:
        with torch.inference_mode():
            x = backbone.standardised(np.stack([array for _, array in ready]), device=device)
            values = forward()(x).float().cpu().numpy()
        if not np.isfinite(values).all():
            raise UserError(
                f"{backbone.name} with weights from {backbone.weights} gives features that are not numbers: "
                "its weights are damaged, or of another network."
            )
        done += [(digest, row) for (digest, _), row in zip(ready, values, strict=True)]
    return done


def _gathered(
    backbone: Backbone,
    items: Sequence[PictureInput],
    outcomes: Sequence[Outcome],
    known: dict[Digest, NDArray[np.float32] | str],
    on_bad: OnBad,
    computed: int,
    seconds: float,
) -> Features:
    results = [known[one] if isinstance(one, bytes) else one for one in outcomes]
    bad = [(item.name, row) for item, row in zip(items, results, strict=True) if isinstance(row, str)]
    if bad and on_bad == "refuse":
        raise unreadable(bad)
    good = [(i, row) for i, row in enumerate(results) if not isinstance(row, str)]
    values = np.empty((len(good), backbone.dimension), np.float32)
    for place, (_, row) in enumerate(good):
        values[place] = row
    rows = np.array([i for i, _ in good], np.int64)
    return Features(values, rows, [items[i].name for i in rows], bad, computed, seconds)


A = TypeVar("A")
B = TypeVar("B")
TRIAL = 2  # parts that every worker of a plan gets before the plans are compared
WORTH = 6  # trials of every plan that must remain, for comparing to pay


class Way(NamedTuple, Generic[A, B]):
    """Whose network, how many workers, and what each of them does with a part."""

    engine: str
    plan: Plan
    work: Callable[[A], B]

    @property
    def workers(self) -> int:
        """How many."""
        return self.plan.threads if self.plan.mode == "threads" else 1


def plans_for(cores: int) -> list[Plan]:
    """Workers that decode and compute whole parts, one core each; or one that computes with all cores."""
    return [Plan("threads", cores)] * (cores > 1) + [Plan("loop", cores)]


def _worth(ways: Sequence[Way[A, B]]) -> int:
    """Parts that must be there for comparing these to pay."""
    return WORTH * sum(TRIAL * way.workers for way in ways)


def run_parts(
    parts: Sequence[A],
    ways: Sequence[Way[A, B]],
    say: Callable[[Plan], object] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[B]:
    """Results in order: by every way in turn, of those that can be compared, then by the fastest.

    ``say`` is told the plan of most parts, whose reason has what was measured.
    """
    rest = iter(parts)
    ways = [way for i, way in enumerate(ways) if i == 0 or len(parts) > _worth(ways[: i + 1])]
    paces: list[float] = []
    for way in ways if len(ways) > 1 else ():
        yield from _carried_out(way, islice(rest, way.workers))  # what a first call prepares
        some = list(islice(rest, TRIAL * way.workers))
        start = clock()
        done = list(_carried_out(way, some))
        paces.append((clock() - start) / len(some))
        yield from done
    best = ways[paces.index(min(paces)) if paces else 0]
    told = [f"{way.engine} {way.plan.label} {1e3 * ms:.1f} ms" for way, ms in zip(ways, paces, strict=False)]
    if parts:
        reason = f"fastest of those measured: {', '.join(told)} a part" if told else "too few to compare"
        say(best.plan._replace(reason=f"{best.engine}: {reason}"))
    yield from _carried_out(best, rest)


def _carried_out(way: Way[A, B], parts: Iterable[A]) -> Iterator[B]:
    with torch_threads(way.plan):
        yield from in_threads(way.work, parts, way.workers)
