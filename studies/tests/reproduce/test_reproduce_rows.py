"""Rows of reproductions that train next to nothing at smoke scale: results that are none must not pass."""

import math
from collections.abc import Callable, Iterator

import pytest

from innerloop.core.statistics import Interval
from innerloop_studies.papers.further import rate_regret
from innerloop_studies.papers.further.rates import GRID, RateEntry
from innerloop_studies.papers.landscape import fig8 as landscape_fig8
from innerloop_studies.papers.landscape import images as landscape_images
from innerloop_studies.papers.landscape import table1 as landscape_table1
from innerloop_studies.papers.landscape import table2 as landscape_table2
from innerloop_studies.reproduce.rows import Row, counts_row, same_row

Numbers = Callable[[], float]


def drawn() -> Numbers:
    """Numbers between 0 and 1 that no experiment gave."""

    def numbers() -> Iterator[float]:
        value = 0.5
        while True:
            value = 3.9 * value * (1 - value)
            yield value

    stream = numbers()
    return lambda: next(stream)


def always(value: float) -> Numbers:
    return lambda: value


def accuracy(number: Numbers) -> Interval:
    return Interval(100 * number(), math.nan, 1)


def table1(number: Numbers) -> list[Row]:
    data = {
        f"{setting} {method}": {part: accuracy(number) for part in landscape_images.JUDGED}
        for setting in ("Large", "Small")
        for method in landscape_table1.METHODS["smoke"]
    }
    first = {m: {part: 100 * number() for part in landscape_images.JUDGED} for m in ("MAML", "NAL-1")}
    return landscape_table1._rows(data, "smoke", first)


def table2(number: Numbers) -> list[Row]:
    data = {
        f"p={share} {method}": {part: accuracy(number) for part in landscape_images.JUDGED}
        for share in landscape_table2.SHARES
        for method in landscape_table2.METHODS
    }
    checks = {k: {p: 100 * number() for p in landscape_images.JUDGED} for k in ("again", "MAML", "NAL")}
    return landscape_table2._rows(data, "smoke", checks)


def regret(number: Numbers) -> list[Row]:
    table = [RateEntry(case, [number() for _ in GRID], number(), 0.1) for case in rate_regret.cases("smoke")]
    return rate_regret._smoke_rows(table, [number() for _ in table])


def figure8(number: Numbers) -> list[Row]:
    """NAL and MAML alike: neither statement holds of them."""
    curve = {"coordinate": [number()] * 3, "risk": [0.1 + number()] * 3}
    return landscape_fig8._rows({"rho": [0.05, 0.5, 0.95], "nal": curve, "maml": curve})


@pytest.mark.parametrize("rows", [table1, table2, regret, figure8])
@pytest.mark.parametrize("number", [drawn(), always(0.0), always(0.5), always(1.0), always(math.nan)])
def test_no_row_holds_of_nonsense(rows: Callable[[Numbers], list[Row]], number: Numbers) -> None:
    made = rows(number)
    assert len(made) >= 2
    assert [row.what for row in made if row.ok] == []


def test_what_the_rows_are_made_of_can_hold() -> None:
    assert counts_row([(17 / 200, 200), (1 / 3, 12), (0.0, 7), (1.0, 7)]).ok
    assert not counts_row([(17 / 200, 200), (17.5 / 200, 200)]).ok
    assert not counts_row([(0.5, 2), (1.5, 2)]).ok
    assert not counts_row([(0.5, 2), (-0.5, 2)]).ok
    assert same_row("twice", [(0.1, 0.1), (0.3, 0.3)]).ok
    assert not same_row("twice", [(0.1, 0.1), (0.3, 0.3 + 1e-16)]).ok
    assert not same_row("twice", []).ok
