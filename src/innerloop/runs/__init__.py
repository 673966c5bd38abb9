"""What a run leaves on disk: its directory, manifest, checkpoints and metrics, read without torch.

Importing this room does not import torch: ``innerloop ls`` reads run directories and must stay quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from innerloop.core.lazy import lazy

if TYPE_CHECKING:
    from innerloop.runs.checkpoints import Checkpoint as Checkpoint
    from innerloop.runs.checkpoints import load_checkpoint as load_checkpoint
    from innerloop.runs.directory import find_run as find_run
    from innerloop.runs.directory import list_runs as list_runs
    from innerloop.runs.manifest import read_manifest as read_manifest
    from innerloop.runs.metrics import read_metrics as read_metrics
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "innerloop.runs.checkpoints": "Checkpoint load_checkpoint",
            "innerloop.runs.directory": "find_run list_runs",
            "innerloop.runs.manifest": "read_manifest",
            "innerloop.runs.metrics": "read_metrics",
        },
    )
