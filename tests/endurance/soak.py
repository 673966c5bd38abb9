"""Long runs whose memory and open files must stay flat: watched from outside, twice a second."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

WARM_UP = 0.25
"""The first part of a run, in which libraries allocate what they keep."""

MOST_GROWTH = 2.0
"""Megabytes that memory may grow by after the warm-up, from the first third to the last: the allocator's."""


class Sample(NamedTuple):
    """A process at one moment: seconds, megabytes of its own memory, open files, threads."""

    seconds: float
    megabytes: float
    files: int
    threads: int


class Soaked(NamedTuple):
    """What a long run needed.

    Attributes:
        name: of the case.
        count: steps or episodes.
        seconds: that it took.
        samples: how often it was looked at, after the warm-up.
        megabytes: of memory, at the median.
        growth: megabytes more in the last third after the warm-up than in the first, at the medians.
        slope: megabytes per hour, by least squares.
        files: most open files after the warm-up, and how many more there are in the last third after it than
            in the first, at the medians: a checkpoint that is being written is open for a moment.
    """

    name: str
    count: int
    seconds: float
    samples: int
    megabytes: float
    growth: float
    slope: float
    files: tuple[int, int]

    @property
    def flat(self) -> bool:
        """Whether neither memory nor open files have grown."""
        return self.growth <= MOST_GROWTH and self.files[1] <= 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**self._asdict(), "flat": self.flat}


def sample(pid: int, since: float) -> Sample | None:
    """A process as ``/proc`` shows it; None once it has ended."""
    try:
        about = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in about.splitlines())
        memory = float(fields["RssAnon"].split()[0]) / 1024
        files = len(os.listdir(f"/proc/{pid}/fd"))
        return Sample(time.monotonic() - since, memory, files, int(fields["Threads"]))
    except (OSError, KeyError):
        return None


def watched(words: Sequence[str], every: float = 0.5) -> tuple[list[Sample], float, str]:
    """Carries out a command in a process of its own; what it looked like, how long it took, what it said.

    Raises:
        RuntimeError: it failed.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "innerloop", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    samples: list[Sample] = []
    while process.poll() is None:
        time.sleep(every)
        if (seen := sample(process.pid, started)) is not None:
            samples.append(seen)
    said = process.communicate()[0]
    if process.returncode:
        raise RuntimeError(f"innerloop {' '.join(words)} ended with {process.returncode}: {said[-500:]}")
    return samples, time.monotonic() - started, said


def soaked(name: str, count: int, samples: Sequence[Sample], seconds: float) -> Soaked:
    """What the samples say.

    >>> flat = [Sample(float(second), 100.0, 7, 1) for second in range(40)]
    >>> soaked("flat", 1, flat, 40.0).flat
    True
    >>> leak = [one._replace(megabytes=100.0 + one.seconds) for one in flat]
    >>> found = soaked("leak", 1, leak, 40.0)
    >>> found.flat, found.growth, round(found.slope)
    (False, 20.0, 3600)
    >>> held = [one._replace(files=7 + int(one.seconds)) for one in flat]
    >>> soaked("files that stay open", 1, held, 40.0).flat
    False
    >>> moment = [one._replace(files=8 if one.seconds == 20 else 7) for one in flat]
    >>> soaked("a file that is open for a moment", 1, moment, 40.0).flat
    True
    """
    kept = list(samples)[int(WARM_UP * len(samples)) :]
    if len(kept) < 9:
        raise RuntimeError(f"{name} took {seconds:.0f} s: too short to say anything.")
    memory, files = np.array([one.megabytes for one in kept]), np.array([one.files for one in kept])
    third = len(kept) // 3
    slope = np.polyfit([one.seconds / 3600 for one in kept], memory, 1)[0]
    return Soaked(
        name,
        count,
        seconds,
        len(kept),
        float(np.median(memory)),
        float(np.median(memory[-third:]) - np.median(memory[:third])),
        float(slope),
        (int(files.max()), math.ceil(np.median(files[-third:]) - np.median(files[:third]))),
    )


SMALL = [
    *("model.hidden=[20]", "outer.batch=4", "inner.steps=1", "inner.test_steps=1"),
    *("run.log_every=20", "run.save_every=500", "eval.every=1000", "eval.validation_episodes=20"),
]
MODES = {
    "loop": ["run.execution=loop", "run.threads=1", "run.compile=off"],
    "vmap": ["run.execution=vmap", "run.threads=1", "run.compile=off"],
    "trace": ["run.execution=vmap", "run.threads=1", "run.compile=trace"],
    "processes": ["run.execution=processes", "run.threads=2", "run.compile=off"],
}
INNER_STEPS = {"loop": 10, "vmap": 100, "trace": 100, "processes": 20}
"""In the test, so that it takes a minute or so. One score of each episode is kept."""


def soak(
    folder: Path, steps: int, episodes: int, modes: Sequence[str], say: Callable[[str], None]
) -> list[Soaked]:
    """Sine MAML for so many steps in every mode, and so many test episodes of each run.

    Where tasks are judged all at once they take more inner steps: else the test is over before libraries have
    allocated what they keep, and that would look like growth.
    """
    found = []
    for mode in modes:
        where = folder / mode
        settings = [*SMALL, *MODES[mode], f"outer.steps={steps}", "eval.episodes=20", f"run.folder={where}"]
        found.append(
            soaked(f"training, {mode}", steps, *watched(["train", "sine-maml", *settings, "-q"])[:2])
        )
        say(str(found[-1]))
        run = next(where.glob("*/*/manifest.json")).parent
        # a test of so many episodes takes them in chunks: what one chunk needs must not stay
        taken = f"inner.test_steps={INNER_STEPS[mode]}"
        judged = watched(["eval", str(run), f"eval.episodes={episodes}", taken, "eval.curve=false"])
        found.append(soaked(f"evaluation, {mode}", episodes, *judged[:2]))
        say(str(found[-1]))
    return found
