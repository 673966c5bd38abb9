"""What ``goldens.py`` keeps of an answer: all but what depends on the machine or the moment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UNSURE = re.compile(
    r"(^|_)(seconds?|ms|mb|per_second|spent|pid|host|machine|versions?|platform|executable|bytes|made_by"
    r"|started|ended|argv|free_gb|memory_gb)$"
)
"""Keys whose values depend on the machine or the moment."""
WORDS = (
    (re.compile(r"\d{8}-\d{6}(-s\d+)?(-\d+)?|\d{4}-\d\d-\d\dT[\d:.]+([+-][\d:]+|Z)?"), "<moment>"),
    (re.compile(r"\b\d[\d.,]*(e-?\d+)? (s|ms|min|h|MB|kB|GB|seconds|minutes)\b"), "<amount>"),
    (re.compile(r"\b(torch|innerloop|numpy) \d[\w.+]*"), r"\1 <version>"),
)


def normal(value: Any, folder: Path) -> Any:
    """JSON without what depends on the machine or the moment."""
    if isinstance(value, dict):
        items = value.items()
        return {normal(k, folder): "<unsure>" if UNSURE.search(k) else normal(v, folder) for k, v in items}
    if isinstance(value, list):
        return [normal(entry, folder) for entry in value]
    if isinstance(value, str):
        for place, word in ((folder, "<here>"), (folder.parent, "<there>"), (ROOT, "<root>")):
            value = value.replace(str(place), word)
        for pattern, word in WORDS:
            value = pattern.sub(word, value)
    return value


def shape(value: Any) -> Any:
    """Types in place of values; entries of lists that are alike are one."""
    if isinstance(value, dict):
        return {key: shape(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [json.loads(kind) for kind in sorted({json.dumps(shape(entry)) for entry in value})]
    return f"<{type(value).__name__}>"


def plain(value: Any) -> Any:
    """As it comes back from a JSON file."""
    return json.loads(json.dumps(value, default=lambda v: v.item() if hasattr(v, "item") else str(v)))
