"""What training a small recipe loads: rooms that it has nothing to do with stay where they are."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

MOST = 150
"""Modules of ours, at most, that MAML on sinusoids loads."""

UNUSED = ("choose", "classify", "cli", "kernels", "report", "solvers", "testing")
"""Rooms that it does not need."""

SCRIPT = """
import json, sys
import innerloop as il
il.Experiment("sine-maml", outer={"steps": 5}, eval={"episodes": 5}).fit(progress=False)
print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] == "innerloop")))
"""


def test_training_on_sinusoids_loads_few_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    rooms = Counter(name.split(".")[1] for name in loaded if "." in name)
    assert not {*rooms} & {*UNUSED}, rooms
    assert len(loaded) <= MOST, f"{len(loaded)} modules of ours, by room: {dict(rooms.most_common())}"
