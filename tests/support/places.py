"""Where things are, for tests in any room."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
FIXTURES = TESTS / "fixtures"
GOLDEN = TESTS / "golden"
DATA = ROOT.resolve().parent / "shared" / "data"
"""Real data, where they are to be had and ``INNERLOOP_TEST_DATA`` names no other place."""
