"""Compare two learners on the same tasks, then look at the hardest one.

ProtoNet and R2D2 train for a few steps on handwritten characters. Because episode 17 is the same
for both, they can be compared task by task, and the task on which both together do worst can be
drawn again, down to the names of its files.
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
results = []
for learner in (il.r2d2(network, ways=5), il.protonet(network, ways=5)):
    start, adam = il.initial_state(learner.init(params), buffers), il.make_optimiser("adam", lr=3e-3)
    state = il.fit(il.episodic(learner, loss), start, train, adam, steps=40, batch=4, plan=plan)
    results.append(il.evaluate(learner, state.params, state.buffers, test, loss, episodes=60, plan=plan))
    print(f"{learner.name}: {100 * results[-1].interval.mean:.0f} ± {100 * results[-1].interval.ci95:.0f} %")
difference = il.compare(*results).difference
print(f"difference task by task: {round(100 * difference.mean)} ± {100 * difference.ci95:.0f} points")

hardest = int(np.argmin(np.add(results[0].scores, results[1].scores)))
print(f"the hardest task is number {hardest}; its characters:")
print(*sorted({name.rpartition("/")[0] for name in test.files(hardest)["support"]}), sep="\n")

task = test.episode(hardest)
adapted = learner.adapt(state.params, state.buffers, task.x_support, task.y_support)
right = learner.predict(adapted, task.x_query)[0].argmax(1) == task.y_query
figure = Figure(figsize=(5, 6), layout="constrained")
for way, row in enumerate(figure.subplots(5, 4)):
    pictures = [task.x_support[task.y_support == way][0], *task.x_query[task.y_query == way]]
    titles = ["example", *("right" if hit else "wrong" for hit in right[task.y_query == way])]
    for axes, picture, title in zip(row, pictures, titles, strict=True):
        axes.imshow(picture[0], cmap="gray")
        axes.set_title(title, fontsize=8)
        axes.axis("off")
figure.savefig("hardest_task.png", dpi=80)
