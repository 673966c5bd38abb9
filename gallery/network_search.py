"""Rank networks before training, then train the first and the last of the ranking.

Twelve variants of Conv4 are scored by their number of operations, and by the condition number of
MAML's kernel on three draws. The script says how far the ranking repeats itself, and whether its
first is really better than its last. `innerloop search` does the same on a budget of time, with
more candidates and a race.
"""

import torch

import innerloop as il
from innerloop.search import PictureDraws, conv_space, search

source, loss = il.glyphs(size=16), il.get_loss("cross-entropy")
space = conv_space(1, 16, 5, depths=(1, 2, 3), widths=(4, 16), kernels=(3,), norms=("batch",))
draws = PictureDraws(source, seed=0, crops=20)
train, test = (il.few_shot_sampler(source, split, seed=0, shots=1, queries=5) for split in ("train", "test"))
print(f"the space has {space.total} networks")

for score, better in (("flops", "operations"), ("metantk", "condition number")):
    settings = {"names": (score,), "pool": space.total, "keep": space.total, "repeats": 3}
    found = search("shortlist", space, draws, settings=settings, workers=1)
    print(f"by {better}; the ranking agrees with itself by tau = {found.reliability['tau']:.2f}")
    results = []
    for place in (0, -1):
        chosen = found.ranked[place]
        network = space.build(chosen.candidate, "transductive")
        start = il.initial_state(*network.init(torch.Generator().manual_seed(0)))
        adam, learner = il.make_optimiser("adam", lr=3e-3), il.protonet(network, ways=5)
        state = il.fit(il.episodic(learner, loss), start, train, adam, steps=30, batch=2)
        results.append(il.evaluate(learner, state.params, state.buffers, test, loss, episodes=100))
        print(f"  {space.describe(chosen.candidate)}: {100 * results[-1].interval.mean:.0f} %")
    verdict = {"first": "the first is better", "second": "the last is better"}
    print(" ", verdict.get(il.compare(*results).verdict, "no clear difference"))
