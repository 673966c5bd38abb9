"""Write a learner of your own, check it, and compare it with MAML on the same tasks.

A learner is a pair of pure functions. This one fits the last layer by ridge regression in closed
form, so that meta-training only has to learn features. `check_learner` tests, among other things,
its meta-gradient against finite differences.
"""

import torch

import innerloop as il


def ridge(network: il.Network, penalty: float = 0.1) -> il.Learner:
    """Ridge regression on the features of a network."""

    def design(params, buffers, x):
        z, _ = network.features(params, buffers, x, "batch")
        return torch.cat([z, torch.ones_like(z[:, :1])], dim=1)

    def adapt(params, buffers, x, y, training=False):
        z = design(params, buffers, x)
        gram = z.mT @ z + penalty * torch.eye(z.shape[1], dtype=z.dtype)
        return params, buffers, torch.linalg.solve(gram, z.mT @ y)

    def predict(adapted, x, training=False):
        params, buffers, weights = adapted
        return design(params, buffers, x) @ weights, buffers

    return il.Learner("ridge", adapt, predict)


network, loss, plan = il.mlp(1, [40, 40], 1), il.get_loss("mse"), il.Plan("vmap")
family, size = il.get_family("sine"), {"shots": 10, "queries": 10, "dtype": torch.float64}
train, test = (il.make_sampler(family, seed=0, split=split, **size) for split in ("train", "test"))
params, buffers = network.init(torch.Generator().manual_seed(0))
params = {name: value.double() for name, value in params.items()}  # solved in float64
il.testing.check_learner(ridge(network), params, buffers, train.batch(0, 2))
print("the conformance suite found nothing wrong")

results = []
for learner in (ridge(network), il.maml(network, loss, lr=0.01, steps=1)):
    start, adam = il.initial_state(params, buffers), il.make_optimiser("adam", lr=1e-2)
    state = il.fit(il.episodic(learner, loss), start, train, adam, steps=100, batch=10, plan=plan)
    results.append(il.evaluate(learner, state.params, state.buffers, test, loss, episodes=100, plan=plan))
    print(f"{learner.name}: squared error {results[-1].interval.mean:.2g}")
better = {"first": "ridge is better", "second": "maml is better"}
print("task by task:", better.get(il.compare(*results).verdict, "no clear difference"))
