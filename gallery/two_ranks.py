"""Share one run among two processes, and see that it is still the same run.

`run.ranks=2` divides the tasks of every meta-step between two processes, which add up finished
gradients once per step. The same recipe is trained by one process and by two in float64; the
weights agree to rounding error.
"""

import subprocess
import sys

import innerloop as il

SETTINGS = ["outer.steps=20", "outer.batch=10", "inner.steps=1", "run.dtype=float64", "run.execution=vmap"]
SETTINGS += ["run.compile=off", "run.threads=1", "eval.episodes=50", "eval.every=20"]

alone = il.Experiment("sine-maml", *SETTINGS).fit(progress=False)
print(f"one process: mse {alone.result.mean:.3f}")

command = [sys.executable, "-m", "innerloop", "train", "sine-maml", "run.ranks=2", *SETTINGS]
subprocess.run(command, check=True, capture_output=True)
shared = il.load("last")
print(f"two ranks: mse {shared.result.mean:.3f}")

one, two = (run.loaded.state.params for run in (alone, shared))
largest = max(float((one[name] - two[name]).abs().max()) for name in one)
print("largest difference of a weight below 1e-10:", largest < 1e-10)
