"""Damage for files, as hypothesis draws it: bytes that change, JSON whose parts become something else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HOSTILE_TEXT = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "\0",
            "../../x",
            "/etc/passwd",
            "~",
            "~nosuchuser",
            "a" * 5000,
            "1" * 5000,
            "[" * 3000,
            "{a=" * 3000,
        ]
    ),
    st.sampled_from(
        ["nan", "inf", "-inf", "none", "1e308", "1e-320", "0x", "true", "os:system", ":", "a:", ":a"]
    ),
)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 2**31, 2**63, 10**30, 1e300]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, HOSTILE_TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
_EDITS = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "insert", "repeat"]), st.floats(0, 1), st.integers(0, 255)),
    min_size=1,
    max_size=6,
)


def run_cases(cases: int, check: Callable[..., None], *strategies: Any) -> None:
    """Calls ``check`` with so many examples, the same in every run, and shrinks the first that fails."""
    settled = settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    settled(given(*strategies)(check))()


@st.composite
def damaged_bytes(draw: Any, content: bytes) -> bytes:
    """Bytes with some of them changed, cut off, inserted or repeated."""
    data = bytearray(content)
    for kind, where, value in draw(_EDITS):
        place = int(where * len(data))
        if kind == "set" and data:
            data[min(place, len(data) - 1)] = value
        elif kind == "cut":
            del data[place:]
        elif kind == "insert":
            data[place:place] = bytes([value]) * (1 + value % 7)
        else:
            data[place:place] = data[place : place + value]
    return bytes(data)


@st.composite
def damaged_json(draw: Any, content: bytes) -> bytes:
    """JSON in which a part was removed or became something else; or its damaged bytes."""
    if draw(st.integers(0, 3)) == 0:
        return bytes(draw(damaged_bytes(content)))
    document = copy.deepcopy(json.loads(content))
    for _ in range(draw(st.integers(1, 2))):
        document = _changed(draw, document)
    return json.dumps(document).encode()


def _changed(draw: Any, document: Any) -> Any:
    """One part of a document, found by walking down at random, is removed or replaced."""
    if not isinstance(document, (dict, list)) or not document or draw(st.integers(0, 4)) == 0:
        return draw(JSON)
    key = draw(st.sampled_from(sorted(document) if isinstance(document, dict) else range(len(document))))
    if draw(st.integers(0, 4)) == 0:
        del document[key]
    else:
        document[key] = _changed(draw, document[key])
    return document
