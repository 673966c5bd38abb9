"""Compare learners on the same tasks, then look at the hardest one.

ProtoNet, R2D2 and ANIL train for a few steps on handwritten characters. Because episode 17 is the
same for all of them, they can be compared task by task, and the task on which the best one fails
most can be drawn again, down to the names of its files.
"""

import numpy as np
import torch
from matplotlib.figure import Figure

import innerloop as il

loss, plan = il.get_loss("cross-entropy"), il.Plan("vmap")
network = il.conv4(1, 28, 5, filters=8, pooling="stride")
train, test = (
    il.few_shot_sampler(il.glyphs(), split, seed=0, shots=1, queries=3) for split in ("train", "test")
)
params, buffers = network.init(torch.Generator().manual_seed(0))
learners = [il.protonet(network, ways=5), il.r2d2(network, ways=5), il.anil(network, loss, lr=0.5, steps=3)]
results, states = {}, {}
for learner in learners:
    start, adam = il.initial_state(learner.init(params), buffers), il.make_optimiser("adam", lr=3e-3)
    state = il.fit(il.episodic(learner, loss), start, train, adam, steps=40, batch=4, plan=plan)
    found = il.evaluate(learner, state.params, state.buffers, test, loss, episodes=100, plan=plan)
    results[learner.name], states[learner.name] = found, (learner, state)
    print(f"{learner.name}: {100 * found.interval.mean:.0f} ± {100 * found.interval.ci95:.0f} %")

best = max(results, key=lambda name: results[name].interval.mean)
learner, state = states[best]
hardest = int(np.argmin(results[best].scores))
task = test.episode(hardest)
print("the hardest task shows", sorted({name.rpartition("/")[0] for name in test.files(hardest)["support"]}))

adapted = learner.adapt(state.params, state.buffers, task.x_support, task.y_support)
said = learner.predict(adapted, task.x_query)[0].argmax(1)
figure = Figure(figsize=(5, 4.4), layout="constrained")
for way, row in enumerate(figure.subplots(5, 4)):
    right = [None, *(said == task.y_query)[task.y_query == way].tolist()]
    pictures = [task.x_support[task.y_support == way][0], *task.x_query[task.y_query == way]]
    for axes, picture, hit in zip(row, pictures, right, strict=True):
        axes.imshow(picture[0], cmap="gray")
        axes.set_title({None: "example", True: "right", False: "wrong"}[hit], fontsize=8)
        axes.axis("off")
figure.savefig("hardest_task.png", dpi=100)
