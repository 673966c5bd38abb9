"""Ask whether MAML is worth its price before training, and train both ways to see.

Half of the tasks are easy and half are hard (inputs of small variance, so that a gradient step
moves little). The closed form says where ordinary training over all tasks ("NAL") and MAML start a
new task, and how much less MAML then loses. Training both on such tasks confirms it.
"""

import torch
from matplotlib.figure import Figure

import innerloop as il
from innerloop.theory.landscape import Geography, geography

SHOTS, DIM = 200, 10


def environment(rho_hard, distance=2.0):
    """Easy tasks around 0 and hard tasks around ``distance``, in every coordinate."""
    return Geography(dim=DIM, rho_hard=rho_hard, rho_easy=1.0, R=distance, r_hard=0.2, r_easy=0.2)


predicted = geography(environment(0.1), lr=1.0, shots=SHOTS)
network, loss, plan = il.mlp(DIM, [], 1, bias=False), il.get_loss("half-mse"), il.Plan("vmap")
maml = il.maml(network, loss, lr=1.0, steps=1)
settings = {"dim": DIM, "rho_hard": 0.1, "rho_easy": 1.0, "R": 2.0, "r_hard": 0.2, "r_easy": 0.2}
train, test = (
    il.make_sampler(il.get_family("linear"), seed=0, split=split, shots=SHOTS, queries=20, settings=settings)
    for split in ("train", "test")
)
errors = []
for name, objective, place in (
    ("NAL", il.erm(network, loss), predicted.nal),
    ("MAML", il.episodic(maml, loss), predicted.maml),
):
    start = il.initial_state(*network.init(torch.Generator().manual_seed(0)))
    sgd = il.make_optimiser("sgd", lr=0.5)
    state = il.fit(objective, start, train, sgd, steps=120, batch=80, plan=plan)
    result = il.evaluate(maml, state.params, state.buffers, test, loss, episodes=1000, plan=plan)
    errors.append(result.interval.mean)
    weights = next(iter(state.params.values()))
    print(f"{name} starts at {weights.mean():.2f} (predicted {place.coordinate:.2f})")
print(f"NAL's error is {errors[0] / errors[1]:.2g} times MAML's (predicted {predicted.gain:.2g})")

hardness = torch.logspace(-2, 0, 100)
axes = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
for distance in (1.0, 2.0, 4.0):
    gain = geography(environment(hardness, distance), lr=1.0, shots=SHOTS).gain
    axes.plot(hardness, gain, label=f"hard tasks {distance:g} away")
axes.plot(0.1, errors[0] / errors[1], "o", color="black", label="measured")
axes.set(xscale="log", xlabel="variance of hard inputs over easy ones", ylabel="gain of MAML")
axes.legend(frameon=False)
figure.savefig("is_maml_worth_it.png", dpi=100)
