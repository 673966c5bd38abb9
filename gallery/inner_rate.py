"""Estimate the inner learning rate before training, and see what training says about it.

`advise_rate` looks at the features of the untrained network on its own tasks (handwritten
characters, 5-way 1-shot) and gives a point within a bracket, in a second or so. Short runs at rates
around that point then show how much a wrong rate costs.
"""

import torch
from matplotlib.figure import Figure

import innerloop as il

loss, plan = il.get_loss("cross-entropy"), il.Plan("vmap")
network = il.conv4(1, 28, 5, filters=8, pooling="stride")
train, test = (
    il.few_shot_sampler(il.glyphs(), split, seed=0, shots=1, queries=4) for split in ("train", "test")
)
params, buffers = network.init(torch.Generator().manual_seed(0))

advice = il.advise_rate(network, params, buffers, train, loss, method="anil", steps=3, tasks=32)
print(f"before training: start at {advice.alpha:.2g}, between {advice.low:.2g} and {advice.high:.2g}")

rates, accuracies = [advice.alpha * factor for factor in (1 / 16, 1 / 4, 1, 4)], []
for rate in rates:
    learner = il.anil(network, loss, lr=rate, steps=3)
    start, adam = il.initial_state(params, buffers), il.make_optimiser("adam", lr=3e-3)
    state = il.fit(il.episodic(learner, loss), start, train, adam, steps=40, batch=4, plan=plan)
    result = il.evaluate(learner, state.params, state.buffers, test, loss, episodes=50, plan=plan)
    accuracies.append(100 * result.interval.mean)
    print(f"inner rate {rate:.2g}: {accuracies[-1]:.0f} %")

axes = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
axes.axvspan(advice.low, advice.high, alpha=0.2, label="bracket, before training")
axes.axvline(advice.alpha, linestyle="--", label="the point in it")
axes.plot(rates, accuracies, "o-", color="black", label="after 40 meta-steps")
axes.set(xscale="log", xlabel="inner learning rate", ylabel="accuracy on new characters, %")
axes.legend(frameon=False)
figure.savefig("inner_rate.png", dpi=100)
