"""Tables of accuracies of whole reproductions, with what was published in brackets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innerloop_studies.recorded.files import required
from innerloop_studies.recorded.text import interval, table


def data_of(name: str) -> dict[str, Any]:
    """The data behind a reproduction's rows."""
    return dict(required("reproductions", name)["data"])


def accuracy(name: str, *path: str) -> str:
    """One accuracy of a reproduction in percent, for a line of text."""
    value = data_of(name)
    for key in path:
        value = value[key]
    return interval(value, IN_PERCENT[name])


IN_PERCENT = {"bridge-table3": 100.0, "landscape-table1": 1.0, "landscape-table2": 1.0}
"""What makes the numbers that these keep percent."""


def bracketed(mean: str, published: float | None) -> str:
    """A value beside the published one.

    >>> bracketed("64.6 ± 0.8", 84.1), bracketed("64.6 ± 0.1", None)
    ('64.6 ± 0.8 (84.1)', '64.6 ± 0.1')
    """
    return mean if published is None else f"{mean} ({published})"


def alphabets() -> str:
    """``landscape-table1``: one line for each way to train, easy and hard tasks of both settings."""
    from innerloop_studies.papers.landscape.table1 import ARMS, JUDGED, PUBLISHED

    data, settings = data_of("landscape-table1"), ("Large", "Small")
    lines = []
    for arm, about in ARMS.items():
        cells = [trained_by(arm, about)]
        for setting in settings:
            theirs = dict(zip(JUDGED, PUBLISHED.get((setting, arm), ()), strict=False))
            mine = data[f"{setting} {arm}"]
            cells += [bracketed(interval(mine[part]), theirs.get(part)) for part in JUDGED]
        lines.append(cells)
    head = [
        f"{setting} r_H: {JUDGED[0]}" if i == 0 else part
        for setting in settings
        for i, part in enumerate(JUDGED)
    ]
    return table(["", *head], lines)


def trained_by(arm: str, about: Any) -> str:
    """A way to train in words: the method, its optimiser and rate."""
    optimiser = {"sgd": "SGD", "adam": "Adam"}[about.training.optimiser]
    return f"{arm.partition(' ')[0]}, {optimiser} at {power(about.training.rate)}"


def power(rate: float) -> str:
    """A power of ten as one writes it.

    >>> power(1e-3)
    '10⁻³'
    """
    mantissa, _, exponent = f"{rate:.0e}".partition("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if mantissa == "1" else f"{mantissa}·10{raised}"


def shares() -> str:
    """``landscape-table2``: by the share of hard tasks in training, and by the way to train."""
    from innerloop_studies.papers.landscape.table1 import JUDGED
    from innerloop_studies.papers.landscape.table2 import METHODS, PUBLISHED, SHARES

    data = data_of("landscape-table2")
    lines = []
    for share in SHARES:
        for method in METHODS:
            theirs = dict(zip(JUDGED, PUBLISHED.get((share, method), ()), strict=False))
            mine = data[f"p={share} {method}"]
            cells = [bracketed(interval(mine[part]), theirs.get(part)) for part in JUDGED]
            by = method.replace(" by ", ", ") if " by " in method else f"{method}, SGD"
            lines.append([str(share), by, *cells])
    return table(("share p of hard tasks", "", *JUDGED), lines)


def methods() -> str:
    """``bridge-table3``: every method on every data set."""
    from innerloop_studies.papers.bridge.table3 import PUBLISHED, TITLES

    data = data_of("bridge-table3")
    names = dict.fromkeys(name for cell in data.values() for name in cell)
    lines = []
    for name in names:
        cells = [name]
        for (where, shots), theirs in PUBLISHED.items():
            mine: Mapping[str, Any] | None = data[f"{where} {shots}"].get(name)
            cells.append(
                bracketed(interval(mine, IN_PERCENT["bridge-table3"]) if mine else "–", theirs.get(name))
            )
        lines.append(cells)
    return table(("method", *(f"{TITLES[where]} {shots}-shot" for where, shots in PUBLISHED)), lines)


SEARCHED_BY = {
    "MetaNTK-NAS": "MetaNTK and regions",
    "TE-NAS": "NTK and regions (TE-NAS)",
    "Regions": "regions alone",
    "Random": "chance",
    "Largest": "the largest of a random pool (ours)",
    "NASWOT": "NASWOT on a random pool (ours)",
}


def searches() -> str:
    """``metantk-table2``: what cells were searched by, and what these reach."""
    from innerloop_studies.papers.metantk.table2 import PUBLISHED

    (cells,) = data_of("metantk-table2").values()
    lines = []
    for name, words in SEARCHED_BY.items():
        one = cells[name]
        theirs = [PUBLISHED[5, shots].get(name) for shots in ("1", "5")]
        published = ", ".join(f"{pair[0]:.2f}" for pair in theirs if pair)
        mine = [interval(one["accuracy"][shots], digits=2) for shots in ("1", "5")]
        size = f"{one['parameters'] / 1e6:.3f} M"
        lines.append((words, *mine, published, size, f"{one['search_minutes']:.1f}"))
    head = ("searched by", "1-shot, %", "5-shot, %", "published, mini-ImageNet", "parameters")
    return table((*head, "search, minutes of one core"), lines)
