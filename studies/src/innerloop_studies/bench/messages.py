"""What a benchmark and its child processes tell each other, as lines of JSON."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
"""What a side's process is told to build; every benchmark has keys of its own."""

Answer = dict[str, Any]
"""What a child process answers."""
