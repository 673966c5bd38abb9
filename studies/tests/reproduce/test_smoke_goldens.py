"""Rows of every study at smoke, held against those that were kept: what changes them raises a VERSION."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from typing import Any

import pytest

from innerloop.core.errors import UserError
from innerloop_studies.reproduce import REPRODUCTIONS
from support.places import ROOT

sys.path.append(str(ROOT / "scripts"))
import goldens

SLOW = (
    "adaptlr-fig3",
    "adaptlr-proposition1",
    "advice-numbers",
    "advice-race",
    "bridge-convergence",
    "bridge-fig1",
    "landscape-theorem1",
    "metantk-convergence",
    "metantk-regression",
    "rate-unseen",
)
"""About a minute at smoke, or more."""
CASES = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in REPRODUCTIONS]

RELATIVE = 0.05
"""Numbers may differ so on another processor, which sums in another order;"""
DIGITS = 2
"""or by so many units of the last digit that is printed;"""
ROUNDING = 1e-5
"""or by this: what should be zero is of the size of rounding errors, whose digits mean nothing."""
COUNTS = 20
"""Whole numbers below this are counts (8 of 8 are), and have to be the same."""


def last_digit(number: str) -> float:
    """One unit of the last digit of a number as it is printed; numbers in full have all the digits there are.

    >>> last_digit("0.38"), last_digit("5.8e+01"), last_digit("834"), last_digit("1.1840261682934117")
    (0.01, 1.0, 1.0, 1e-16)
    """
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def near(old: str, new: str) -> bool:
    """Whether two printed numbers agree.

    >>> near("8", "7"), near("834", "840"), near("0.02", "0.04"), near("0.50", "0.55"), near("3e-15", "9e-15")
    (False, True, True, False, True)
    """
    old, new = old.replace("−", "-"), new.replace("−", "-")
    if old.isdigit() and new.isdigit() and min(int(old), int(new)) < COUNTS:
        return int(old) == int(new)
    allowed = max(
        ROUNDING, *(DIGITS * last_digit(number) for number in (old, new) if not number.isdigit()), 0.0
    )
    return math.isclose(float(old), float(new), rel_tol=RELATIVE, abs_tol=1.001 * allowed)


def alike(old: Any, new: Any) -> bool:
    """Whether two cells agree: the same words, and numbers in them that are near."""
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    old, new = str(old), str(new)
    numbers = zip(*map(goldens.NUMBER.findall, (old, new)), strict=False)
    return goldens.NUMBER.sub("#", old) == goldens.NUMBER.sub("#", new) and all(
        itertools.starmap(near, numbers)
    )


def differing(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[str]:
    """What differs between rows that were kept and rows that were made."""
    if [row["what"] for row in old] != [row["what"] for row in new]:
        return [f"statements: {[row['what'] for row in old]} → {[row['what'] for row in new]}"]
    return [
        f"{then['what']}, {key}: {then[key]} → {now[key]}"
        for then, now in zip(old, new, strict=True)
        for key in then
        if not alike(then[key], now[key])
    ]


@pytest.mark.usefixtures("own_folder")
@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INNERLOOP_TEST_DATA", raising=False)  # goldens are of embedded pictures alone
    golden = json.loads((goldens.SMOKE / f"{name}.json").read_text(encoding="utf-8"))
    try:
        made = goldens.smoke(name)
    except UserError as error:
        if not re.search(r"data get|INNERLOOP_", str(error)):
            raise
        pytest.skip(str(error))
    differs = differing(golden["rows"], made["rows"])
    assert not differs, (
        f"rows of {name} at smoke differ from their golden: raise its VERSION and write the golden anew with "
        f"`python scripts/goldens.py smoke {name}`\n" + "\n".join(differs)
    )


def test_every_study_has_a_golden_and_no_other_has() -> None:
    assert {file.stem for file in (goldens.SMOKE).iterdir()} == set(REPRODUCTIONS)


def test_a_row_that_changed_is_told() -> None:
    rows = json.loads((goldens.SMOKE / "landscape-fig1.json").read_text(encoding="utf-8"))["rows"]
    assert differing(rows, rows) == []
    number = [{**row, "ours": 2 * row["ours"]} if row["what"].startswith("(d) gain") else row for row in rows]
    assert len(differing(rows, number)) == 2
    assert len(differing(rows, [{**rows[0], "holds": False}, *rows[1:]])) == 1
    assert len(differing(rows, rows[1:])) == 1
