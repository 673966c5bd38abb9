"""Kill a run, resume it, and compare it with others task by task.

A training process is killed without warning once it has saved a checkpoint. Resumed, it ends with
exactly the weights of a run that nobody disturbed. A run of ANIL is then compared with it on the
same held-out tasks.
"""

import multiprocessing
import time
from pathlib import Path

import torch

import innerloop as il

SETTINGS = ["outer.steps=100", "outer.batch=4", "run.save_every=10", "eval.episodes=100", "eval.every=50"]
SETTINGS += ["inner.steps=1", "run.execution=vmap", "run.compile=off", "run.threads=1"]

doomed = il.Experiment("sine-maml", "run.folder=killed", *SETTINGS)
process = multiprocessing.get_context("fork").Process(target=doomed.fit, kwargs={"progress": False})
process.start()
while process.is_alive() and not list(Path("killed").glob("sine-maml/*/checkpoints/last.json")):
    time.sleep(0.01)
process.kill()
process.join()

killed = il.load(next(Path("killed").glob("sine-maml/*")))
print("the first run was", killed.status)
killed.resume(progress=False)
undisturbed = il.Experiment("sine-maml", *SETTINGS).fit(progress=False)
first, second = (run.loaded.state.params for run in (killed, undisturbed))
same = all(torch.equal(first[name], second[name]) for name in first)
print("resumed, it has the weights of an undisturbed run:", same)

anil = il.Experiment("sine-maml", *SETTINGS, inner={"method": "anil"}).fit(progress=False)
comparison = undisturbed.compare(anil)
print(f"MAML {comparison.first.mean:.2g}, ANIL {comparison.second.mean:.2g}")
print(f"difference {comparison.difference.mean:.2g} ± {comparison.difference.ci95:.2g} over the same tasks")
