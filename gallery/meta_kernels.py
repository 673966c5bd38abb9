"""Predict what infinitely wide networks would do after meta-training, without training any.

`fit` solves for the training tasks in kernel space, and `kernel_learner` makes the solution a
learner that is judged like every other. Here ANIL and multi-task learning see 2 to 16 training
tasks and are judged on the same 40 new ones.
"""

import torch
from matplotlib.figure import Figure

import innerloop as il
from innerloop.kernels import Descent, mlp_kernel

family, loss, counts = il.get_family("bridge-quadratic"), il.get_loss("mse"), [2, 4, 8, 16]
options = {"seed": 0, "shots": 5, "dtype": torch.float64, "settings": {"dim": 2}}
train = il.make_sampler(family, queries=5, **options)
test = il.make_sampler(family, queries=10, split="test", **options)
methods = {"anil": {"inner": Descent(0.1), "test": Descent(1.0)}, "mtl": {"test": Descent(1.0)}}
curves = {}
for method, times in methods.items():
    curves[method] = []
    for count in counts:
        fitted = il.kernels.fit(
            mlp_kernel(depth=4), train.batch(0, count), method, outer=Descent(10.0), **times
        )
        result = il.evaluate(il.kernel_learner(fitted), {}, {}, test, loss, episodes=40)
        curves[method].append(result.interval.mean)
    print(f"{method}: squared error", ", ".join(f"{e:.3g}" for e in curves[method]), "with", counts, "tasks")

axes = (figure := Figure(figsize=(5, 3.2), layout="constrained")).subplots()
for method, errors in curves.items():
    axes.semilogx(counts, errors, "o-", label={"anil": "ANIL", "mtl": "multi-task learning"}[method])
axes.set_xticks(counts, counts)
axes.minorticks_off()
axes.set(xlabel="training tasks", ylabel="squared error on new tasks")
axes.legend(frameon=False)
figure.savefig("meta_kernels.png", dpi=100)
