"""Rank networks before training, then train the first and the last of the ranking.

Eighteen variants of Conv4 are ranked by their number of operations and by the condition number of
MAML's kernel, on three draws of data and weights. The script says how far the rankings repeat
themselves from draw to draw, and trains the first and the last network of each. `innerloop search`
does this within a budget of time, with more candidates and a race.
"""

from functools import cache

import torch

import innerloop as il
from innerloop.choose import PictureDraws, conv_space, search

source, loss = il.glyphs(size=16), il.get_loss("cross-entropy")
space = conv_space(1, 16, 5, depths=(1, 2, 3), widths=(4, 16), kernels=(3,), norms=("batch",))
draws = PictureDraws(source, seed=0, crops=20)
train, test = (il.few_shot_sampler(source, split, seed=0, shots=1, queries=5) for split in ("train", "test"))
print(f"the space has {space.total} networks")


@cache
def accuracy(candidate) -> il.Interval:
    """Accuracy on characters of new alphabets, after 20 steps as a prototypical network."""
    network = space.build(candidate, "transductive")
    start = il.initial_state(*network.init(torch.Generator().manual_seed(0)))
    adam, learner = il.make_optimiser("adam", lr=3e-3), il.protonet(network, ways=5)
    state = il.fit(il.episodic(learner, loss), start, train, adam, steps=20, batch=2)
    return il.evaluate(learner, state.params, state.buffers, test, loss, episodes=60).interval


for score, words in (("flops", "operations"), ("metantk", "condition number")):
    settings = {"names": (score,), "pool": space.total, "keep": space.total, "repeats": 3}
    ranking = search("shortlist", space, draws, settings=settings, workers=1)
    print(f"by {words}: tau between draws {ranking.reliability.tau:.1f}")
    for word, ranked in (("first", ranking.ranked[0]), ("last", ranking.ranked[-1])):
        reached = accuracy(ranked.candidate)
        print(f"  {word}: {space.describe(ranked.candidate)}")
        print(f"    reaches {100 * reached.mean:.0f} ± {100 * reached.ci95:.0f} %")
