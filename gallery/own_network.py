"""Use any `nn.Module` as the network of a meta-learner.

The module here has sines as activations, which suits sinusoids. `from_module` turns it into pure
functions on named parameters and finds its last layer; `check_network` confirms that nothing was
lost on the way. ANIL then adapts that last layer only, on the same tasks as a plain network of the
same size.
"""

import torch
from torch import nn

import innerloop as il


class Waves(nn.Module):
    """Two hidden layers with sines as activations."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(1, 40), nn.Linear(40, 40), nn.Linear(40, 1)

    def forward(self, x):
        """Computes the outputs of a batch."""
        return self.last(torch.sin(self.second(torch.sin(self.first(x)))))


loss, plan = il.get_loss("mse"), il.Plan("vmap")
family, size = il.get_family("sine"), {"shots": 10, "queries": 10}
train, test = (il.make_sampler(family, seed=0, split=split, **size) for split in ("train", "test"))
waves = il.from_module(Waves, norm="none")
il.testing.check_network(waves, torch.linspace(-5, 5, 7)[:, None])
print("the last layer is", " and ".join(waves.head_names))

for name, network in (("sines", waves), ("ReLU", il.mlp(1, [40, 40], 1))):
    learner = il.anil(network, loss, lr=0.001, steps=3)
    start = il.initial_state(*network.init(torch.Generator().manual_seed(0)))
    adam = il.make_optimiser("adam", lr=3e-3)
    state = il.fit(il.episodic(learner, loss), start, train, adam, steps=100, batch=10, plan=plan)
    result = il.evaluate(learner, state.params, state.buffers, test, loss, episodes=100, plan=plan)
    print(f"{name}: squared error {result.interval.mean:.2g} on new sinusoids")
