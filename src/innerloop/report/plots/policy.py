"""What a page of ours may do: nothing but show itself, whatever stands in it."""

from __future__ import annotations

import base64
import hashlib


def content_policy(style: str, script: str | None = None) -> str:
    """A content security policy: our one style and, if there is one, our one script, each by its hash.

    Nothing is fetched, sent or framed; pictures are data in the page. A script that came into the page with
    somebody's files has another hash, and does not run.
    Style attributes are allowed, since matplotlib draws with them: without a network they can only look.

    >>> content_policy("a", "b").split("; ")[:2]
    ["default-src 'none'", 'img-src data:']
    """
    parts = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",  # for browsers that do not know the next two
        "style-src-elem": _hash(style),
        "style-src-attr": "'unsafe-inline'",
        "script-src": "'none'" if script is None else _hash(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
