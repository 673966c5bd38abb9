"""Meta-learn tasks of your own: a family is one function.

Here a task is a valley, y = a |x - c|, whose slope and place are drawn for every task. Random
numbers are asked for by name, so that task 17 is the same alone, in a batch and after a restart;
`check_tasks` confirms it.
"""

import torch
from matplotlib.figure import Figure

import innerloop as il


def valleys(draws: il.Draws, shots: int, queries: int) -> il.TaskBatch:
    """Valleys y = a |x - c|."""
    slope, place = draws.uniform("a", (1, 1), 0.5, 2.0), draws.uniform("c", (1, 1), -1.0, 1.0)
    x_support = draws.uniform("x-support", (shots, 1), -2.0, 2.0, per="sample")
    x_query = draws.uniform("x-query", (queries, 1), -2.0, 2.0, per="sample")
    y_support, y_query = (slope * (x - place).abs() for x in (x_support, x_query))
    return il.TaskBatch(x_support, y_support, x_query, y_query, torch.from_numpy(draws.task.copy()))


size = {"shots": 8, "queries": 16}
train, test = (il.make_sampler(valleys, seed=0, split=split, **size) for split in ("train", "test"))
il.testing.check_tasks(train)

network, loss = il.mlp(1, [40, 40], 1), il.get_loss("mse")
learner = il.maml(network, loss, lr=0.02, steps=3)
start = il.initial_state(*network.init(torch.Generator().manual_seed(0)))
adam, plan = il.make_optimiser("adam", lr=5e-3), il.Plan("vmap")
state = il.fit(il.episodic(learner, loss), start, train, adam, steps=100, batch=10, plan=plan)

for name, weights in (("before meta-training", start), ("after meta-training", state)):
    result = il.evaluate(learner, weights.params, weights.buffers, test, loss, episodes=100, plan=plan)
    print(f"{name}: squared error on new valleys {result.interval.mean:.2g}")

task, x = test.episode(2), torch.linspace(-2, 2, 200)[:, None]
axes = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
for name, steps in (("before adapting", 0), ("after 3 steps", 3)):
    adapted = il.maml(network, loss, lr=0.02, steps=steps).adapt(
        state.params, state.buffers, task.x_support, task.y_support
    )
    with torch.no_grad():
        axes.plot(x, learner.predict(adapted, x)[0], label=name)
axes.plot(task.x_support, task.y_support, "o", color="black", label="support")
axes.set(xlabel="x", ylabel="y", title="A valley that training never saw")
axes.legend(frameon=False)
figure.savefig("own_task_family.png", dpi=100)
