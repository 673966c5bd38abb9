"""Scores of architectures against the released manner: a kernel, regions, a round; and whole searches."""

import atexit
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from innerloop.choose.architectures.draws import CROP_BATCH, Draw
from innerloop.choose.architectures.measure import Bench, ScoringJob, Seeds
from innerloop.choose.architectures.space import cell_space
from innerloop.choose.scores import conditions
from innerloop.choose.scores.patterns import linear_regions
from innerloop.core.resources import available_cores
from innerloop.core.types import Params, TaskBatch
from innerloop.kernels.empirical.kernel import empirical_ntk
from innerloop.kernels.meta.kernel import maml_kernel, stack
from innerloop.nets.cells.genotype import EDGES, KINDS, OPERATORS, Choices, all_choices, remaining, without
from innerloop.nets.cells.operators import reduction_places
from innerloop.nets.cells.operators import stack as stacked
from innerloop_studies.bench import harness
from innerloop_studies.bench.harness import Child, Comparison, Report, Say, thread_limits
from innerloop_studies.bench.search_modules import CellModule, has_opacus, released_kernel, released_regions
from innerloop_studies.bench.worker import Answer, Spec, Worker, flat

TITLE = "scores of architectures against per-sample gradients, a round of a search, and whole searches"
VERSION = 1
SIZES = {"channels": 16, "cells": 5, "side": 32, "crops": 3000, "candidates": 7}

PARTS = {
    "kernel": ("one kernel of the supernet, 30 pictures", 2.0, (1,), (5, 2)),
    "regions": ("linear regions of the thin supernet", 3.5, (1, 0), (3, 1)),
    "regions, float32": ("linear regions of the thin supernet", 3.5, (1, 0), (7, 2)),
    "round": ("a round of candidates, all cores", 6.0, (0,), (3, 1)),
}
"""What is measured, what we promise, threads of the peer (ours has one; 0 for all), rounds, many and few."""
PAIRS = {"regions": "half precision as released", "regions, float32": "float32"}
"""Precisions of peers that count regions."""


def run(quick: bool = False, say: Say = print, sizes: dict[str, int] | None = None) -> Report:
    """Every part; whole searches after them."""
    peer = "per-sample gradients by Opacus" if has_opacus() else "per-sample gradients as Opacus takes them"
    if not has_opacus():
        say("Opacus is not installed: its per-sample gradients are taken by hooks and patches of our own")
    common = {**SIZES, **({"candidates": 3} if quick else {}), **(sizes or {})}
    cases = [one_case(part, common, peer, quick, say) for part in PARTS]
    if not quick and sizes is None:
        cases.append(one_case("kernel", {**common, "channels": 48}, peer, quick, say))
    if sizes is None:
        cases += [robust(common, quick, say), glyphs(say)]
    return {"cases": cases, "machine": harness.machine(quick)}


def one_case(name: str, sizes: dict[str, int], peer: str, quick: bool, say: Say) -> Comparison:
    """Ours against the released manner."""
    (title, at_least, threads, rounds), spec = PARTS[name], {"part": name, "sizes": sizes}
    counts = sorted({count or available_cores() for count in threads})
    sides = harness.on_threads(["ours"], spec, [1]) + harness.on_threads(["peer"], spec, counts)
    with harness.started(sides, __name__, say) as both:
        off = harness.disagreement(both.results, sides[-1].name)
        if name in PAIRS and off:
            raise RuntimeError(f"counts of regions differ by {off:.2g}")
        many, few = ((count, 0.2) for count in rounds)
        measured = both.measured(quick, few, many, warm=1)
    if name in PAIRS:
        about, notes = f"{sizes['crops']:,} crops", ["identical counts"]
        peer = f"matrix of pairs, {PAIRS[name]}"
    else:
        about = _described(sizes)
        notes = [f"{'kernels' if name == 'kernel' else 'logarithms of scores'} agree to {off:.0e}"]
    if name == "round":
        tried = sizes["candidates"]
        told = f"{tried} candidates of the first round's 126, and the network they are compared with: "
        told += f"measured {tried} times as released and once by us, where a whole round has 126 candidates "
        notes.append(f"{told}for that once")
    return measured.row(f"{title}, {about}", "peer", at_least, notes, peer)


def _described(sizes: dict[str, int]) -> str:
    return f"C = {sizes['channels']}, {sizes['cells']} cells, {sizes['side']}×{sizes['side']}"


# ---- both sides: a kernel, a network's regions, a part of a round ----

WAYS, TASKS = 5, 3
SMALL = {"channels": 2, "cells": 2, "side": 8, "crops": 40, "candidates": 1}
"""Sizes at which a side is run first, so that what it loads counts as a library."""


def noise_draw(repeat: int, sizes: dict[str, int]) -> Draw:
    """Pictures of smooth noise, 30 of them in three tasks, and crops of one channel."""
    draw, side, crops = torch.Generator().manual_seed(repeat), sizes["side"], sizes["crops"]
    x = F.avg_pool2d(torch.randn(2 * TASKS * WAYS, 3, side + 4, side + 4, generator=draw), 5, 1)
    x = (x / x.std()).view(2, TASKS, WAYS, 3, side, side)
    y = torch.arange(WAYS).expand(TASKS, WAYS)
    small = F.avg_pool2d(torch.randn(crops, 1, 5, 5, generator=draw), 3, 1)
    return Draw(TaskBatch(x[0], y, x[1], y, torch.arange(TASKS)), small / small.std(), repeat)


def build(spec: Spec) -> Callable[[], Tensor]:
    """The side that is asked for by ``part``, ``side`` and ``sizes``."""
    torch.set_num_threads(spec["threads"])
    ours, sizes = spec["side"] == "ours", spec["sizes"]
    if spec["part"] in PAIRS:
        return regions(ours, sizes, torch.half if spec["part"] == "regions" else torch.float32)
    return (kernel if spec["part"] == "kernel" else part_of_round)(ours, sizes)


def space_of(sizes: dict[str, int]) -> Any:
    """Cells for pictures of three channels."""
    return cell_space(3, sizes["side"], WAYS, cells=sizes["cells"], channels=sizes["channels"])


def kernel(ours: bool, sizes: dict[str, int]) -> Callable[[], Tensor]:
    """The 30 × 30 tangent kernel of the supernet, all its weights."""
    draw = noise_draw(0, {**sizes, "crops": 1})
    x = torch.cat([stack(draw.tasks.x_query), stack(draw.tasks.x_support)])
    if not ours:
        whole = _module(all_choices(), sizes, 1)
        return lambda: whole(x)
    network = space_of(sizes).build(all_choices(), "group")
    params, buffers = _weights(network, 1)
    names = conditions.kernel_names(params)
    return lambda: empirical_ntk(
        network, params, x, buffers=buffers, names=names, output="sum", memory=conditions.SCORE_MEMORY
    )


def regions(ours: bool, sizes: dict[str, int], precision: torch.dtype) -> Callable[[], Tensor]:
    """Regions of the thin supernet on 3,000 crops; pairs are multiplied in this precision."""
    batches = noise_draw(0, sizes).crops.split(CROP_BATCH)
    if not ours:
        module = _thin_module(all_choices(), sizes, 2)
        return lambda: torch.tensor([released_regions(module, batches, precision)])
    thin = space_of(sizes).thin(all_choices())
    params, buffers = thin.init(torch.Generator().manual_seed(2))
    return lambda: torch.tensor([linear_regions(thin, params, buffers, batches).value])


def candidates(sizes: dict[str, int]) -> list[Choices]:
    """The first of a round: every one lacks one operator, from the first edge of the normal cell on."""
    whole = all_choices()
    places = list(remaining(whole))
    every = max(1, len(places) // sizes["candidates"])
    return [without(whole, *place) for place in islice(places, 0, None, every)][: sizes["candidates"]]


def part_of_round(ours: bool, sizes: dict[str, int]) -> Callable[[], Tensor]:
    """MetaNTK's condition number and the regions of some candidates of the first round and of the whole."""
    networks, draw = [all_choices(), *candidates(sizes)], noise_draw(0, sizes)
    if ours:  # the network without a removal once, in one process per core
        bench, turns = Bench(space_of(sizes), partial(noise_draw, sizes=sizes)), count()
        atexit.register(bench.close)

        def measured() -> Tensor:
            # finished measurements are known by their job: another unread setting makes it a new one
            turn = {"metantk": {"memory": conditions.SCORE_MEMORY + next(turns)}}
            names, seeds = ("metantk", "regions"), Seeds(1, 3, (2,))
            jobs = [ScoringJob(each, names, 0, seeds, settings=turn) for each in networks]
            return torch.tensor([[one.values[name] for name in names] for one in bench.run(jobs)]).log()

        return measured
    whole, *few = [(_module(one, sizes, 1), _thin_module(one, sizes, 2)) for one in networks]

    def released() -> Tensor:  # beside every candidate, one network after the other, each on all cores
        scores = []
        for one in few:
            beside = _released_scores(*whole, draw)
            scores.append(_released_scores(*one, draw))
        return torch.tensor([beside, *scores]).log()

    return released


def _released_scores(theta: Callable[[Tensor], Tensor], thin: Any, draw: Draw) -> list[float]:
    tasks = draw.tasks
    x = torch.cat([stack(tasks.x_query), stack(tasks.x_support)])
    phi = maml_kernel(theta(x).double(), TASKS, WAYS, conditions.PUBLISHED)
    return [conditions.condition_number(phi).value, released_regions(thin, draw.crops.split(CROP_BATCH))]


def _weights(network: Any, seed: int) -> tuple[Params, Any]:
    params, buffers = network.init(torch.Generator().manual_seed(seed))
    return conditions.fresh_head(network, params, torch.Generator().manual_seed(3), WAYS), buffers


def _module(choices: Choices, sizes: dict[str, int], seed: int) -> Callable[[Tensor], Tensor]:
    params, _ = _weights(space_of(sizes).build(choices, "group"), seed)
    cells = sizes["cells"]
    plan = stacked(choices, 3, cells, sizes["channels"], reduction_places(cells))
    return released_kernel(CellModule(plan, params))


def _thin_module(choices: Choices, sizes: dict[str, int], seed: int) -> CellModule:
    params, _ = space_of(sizes).thin(choices).init(torch.Generator().manual_seed(seed))
    return CellModule(stacked(choices, 1, 2, 1, (1,), with_stem=False), params, group=False)


class SearchWorker(Worker):
    """A side of a part; or a whole search."""

    def whole(self, sizes: dict[str, int], quick: bool) -> Answer:
        """A robust search, or what it would take."""
        return {"measured": robust_seconds(sizes, quick)}


# ---- whole searches, timed: there is nothing beside them but a promise ----

ROBUST_MINUTES, GLYPHS_MINUTES = 30.0, 5.0
GLYPHS = ("search", "glyphs", "budget=60s")  # the command as the documentation has it


def robust(sizes: dict[str, int], quick: bool, say: Say) -> Comparison:
    """A robust search on pictures of noise, in a process of its own."""
    with Child("a robust search", __name__, thread_limits(1)) as child:
        seconds, notes = child.ask("whole", sizes=sizes, quick=quick)["measured"]
    return _row(f"a robust search, {_described(sizes)}", seconds, ROBUST_MINUTES, notes, say)


def glyphs(say: Say) -> Comparison:
    """The whole command on the embedded glyphs: shortlist, pilot and page."""
    words = " ".join(GLYPHS)
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = harness.timed_command(words, *GLYPHS, cwd=folder)
    return _row(f"innerloop {words}", seconds, GLYPHS_MINUTES, "from the command line to its end", say)


def _row(case: str, seconds: float, minutes: float, notes: str, say: Say) -> Comparison:
    say(f"{case}: {seconds / 60:.1f} minutes; {notes}")
    peer, threads = f"promised: under {minutes:g} minutes", str(available_cores())
    return harness.single_row(case, peer, {"ours_ms": seconds * 1e3}, notes, threads=threads)


def robust_seconds(sizes: dict[str, int], quick: bool) -> tuple[float, str]:
    """Seconds of the search, and how measured; if quick, what a few candidates of the first round come to."""
    from innerloop.choose.architectures.search import METHODS, search

    start = time.perf_counter()
    if not quick:
        result = search("robust", space_of(sizes), partial(noise_draw, sizes=sizes))
        return time.perf_counter() - start, f"{result.measured} measurements, on pictures of noise"
    call = part_of_round(True, sizes)
    call()
    start = time.perf_counter()
    call()
    each = (time.perf_counter() - start) / (sizes["candidates"] + 1)
    measured = f"extrapolated from {sizes['candidates'] + 1} measurements of the first round"
    return each * whole_in_first_candidates(METHODS["robust"].settings.budget), measured


def whole_in_first_candidates(budget: float) -> float:
    """What a search by pruning takes, in measurements of its first round."""
    # an edge has 7 operators at first and one less after every round; a measurement takes time in proportion
    edges, most = len(EDGES) * len(KINDS), len(OPERATORS)
    rounds = sum(edges * left * left / most for left in range(2, most + 1))
    at_the_end = 14 / most  # edges of the nodes that have more than two
    return budget * (rounds + at_the_end)


def small(spec: Spec) -> Spec | None:
    """Settings of a call that imports whatever the side needs; of a round, ours keeps its processes."""
    return {"sizes": SMALL} if spec["part"] != "round" else None


WORKER = SearchWorker(build, lambda answer: flat([answer]), small)
