"""Algorithm 1 of MetaNTK-NAS the slow way: every network by itself, one gradient for every sample."""

from __future__ import annotations

import torch
from torch import Tensor

from innerloop.choose.scores.patterns import watch_kinks
from innerloop.core.random import derive_seed
from innerloop.nets.cells import Choices, remaining, without
from innerloop.nets.cells.network import cell_network
from innerloop.nets.network import apply
from oracles.scores import block_metantk, gram_regions


def seeded(seed: int, *names: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, *names))


def as_double(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.double() for name, value in values.items()}


def slow_condition(choices: Choices, shape: tuple[int, int, int], draw, ridge: float, **settings) -> float:
    """λ_max/λ_min of MAML's kernel, from one backward pass per sample."""
    network = cell_network(*shape, genotype=choices, norm="group", final_norm=True, **settings)
    params, buffers = network.init(seeded(draw.seed, "weights"))
    params, ways = as_double(params), draw.tasks.y_support.unique().numel()
    bound = params["head.weight"].shape[1] ** -0.5
    head = torch.Generator().manual_seed(derive_seed(draw.seed, "head"))
    for name, size in (("head.weight", (ways, params["head.weight"].shape[1])), ("head.bias", (ways,))):
        params[name] = ((2 * torch.rand(size, generator=head) - 1) * bound).double()
    weights = [p.requires_grad_() for p in params.values() if p.ndim >= 2]
    rows = []
    for x in torch.cat([draw.tasks.x_query.flatten(0, 1), draw.tasks.x_support.flatten(0, 1)]):
        out, _ = apply(network, params, as_double(buffers), x[None], "batch")
        grads = torch.autograd.grad(out.sum(), weights, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([grad.flatten() for grad in grads]))
    gram = torch.stack(rows) @ torch.stack(rows).T
    values = torch.linalg.eigvalsh(block_metantk(gram, gram, draw.tasks, float("inf"), ridge))
    return float(values[-1] / values[0])


def slow_regions(choices: Choices, outputs: int, draw, **settings) -> float:
    """Distinct patterns on the thin network, by the matrix of all pairs."""
    network = cell_network(
        1,
        3,
        outputs,
        genotype=choices,
        cells=2,
        channels=1,
        reductions=(1,),
        stem=False,
        final_norm=True,
        **settings,
    )
    params, buffers = network.init(seeded(draw.seed, "thin", 0))
    patterns = []
    for crops in draw.crops.split(1000):
        seen: list[Tensor] = []
        watch_kinks(network, as_double(params), as_double(buffers), crops, seen.append, "batch")
        patterns.append(torch.cat(seen, 1).double())
    return round(gram_regions(torch.cat(patterns)))


def shared_places(values: list[float], descending: bool) -> list[int]:
    """How many distinct values come before each."""
    distinct = sorted(set(values), reverse=descending)
    return [distinct.index(value) for value in values]


def slow_prune(choices: Choices, score_condition, score_regions, draws, repeats: int) -> list[tuple]:
    """What Algorithm 1 removes, one round after the other, each on ``repeats`` common draws.

    Rounds have draws of their own: 100,000 per round. Then nodes lose edges, one node after the other.
    """
    removed: list[tuple] = []
    round_ = 0

    def sums(items: list[tuple]) -> dict[tuple, int]:
        by_condition, by_regions = [], []
        for item in items:
            c, r = [], []
            for repeat in range(repeats):
                draw = draws(round_ * 100_000 + repeat)
                whole, less = (score_condition(each, draw) for each in (choices, without(choices, *item)))
                c.append(round((whole - less) / whole, 3))
                whole, less = (score_regions(each, draw) for each in (choices, without(choices, *item)))
                r.append(round((whole - less) / whole, 3))
            by_condition.append(sum(c) / repeats)
            by_regions.append(sum(r) / repeats)
        first, second = shared_places(by_condition, True), shared_places(by_regions, False)
        order = sorted(range(len(items)), key=lambda i: (-by_condition[i], i))
        return {items[i]: first[i] + second[i] for i in order}  # ties go to the larger change

    while True:
        edges: dict[tuple, list[tuple]] = {}
        for item in remaining(choices):
            edges.setdefault(item[:3], []).append(item)
        several = [item for edge in edges.values() if len(edge) > 1 for item in edge]
        if not several:
            break
        found = sums(several)
        for edge in edges.values():
            if len(edge) > 1:
                gone = min((item for item in found if item in edge), key=found.__getitem__)
                removed.append(gone)
                choices = without(choices, *gone)
        round_ += 1
    for kind in ("normal", "reduce"):
        for node in (3, 4):
            into = [item for item in remaining(choices) if (item[0], item[2]) == (kind, node)]
            if len(into) > 2:
                found = sums(into)
                for gone in sorted(found, key=found.__getitem__)[: len(into) - 2]:
                    removed.append(gone)
                    choices = without(choices, *gone)
                round_ += 1
    return removed
