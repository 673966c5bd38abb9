"""Tables of benchmarks: ourselves beside peers, case by case, with the machine that measured."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from innerloop_studies.recorded.files import required
from innerloop_studies.recorded.text import table

HEAD = (
    *("case", "against", "ours", "the other", "ratio", "aim", "share of sgemm"),
    *("peak memory, ours / other", "notes"),
)


def cases(name: str, *patterns: str) -> str:
    """Every case of a benchmark, or those that fit a pattern."""
    rows = [
        line(case)
        for case in required("benchmarks", name)["cases"]
        if not patterns or any(fnmatchcase(case["case"], pattern) for pattern in patterns)
    ]
    used = [i for i in range(len(HEAD)) if any(row[i] for row in rows)]
    return table([HEAD[i] for i in used], [[row[i] for i in used] for row in rows])


def line(case: dict[str, Any]) -> Sequence[str]:
    """A case as the cells of a table; what was not measured is empty."""
    ratio = case.get("ratio")
    share = case.get("sgemm_share")
    memory = [value for key in ("ours_mb", "peer_mb") if (value := case.get(key)) is not None]
    return (
        case["case"],
        str(case.get("peer") or ""),
        time_of(case.get("ours_ms")),
        time_of(case.get("peer_ms")),
        f"**{times(ratio)}**" if ratio is not None else "",
        aim_of(case),
        f"{100 * share:.0f} %" if share is not None else "",
        " / ".join(f"{value:,.0f}" for value in memory) + " MB" if memory else "",
        noted(case.get("notes")),
    )


def aim_of(case: dict[str, Any]) -> str:
    """What we promise of a ratio, and whether it is kept.

    >>> aim_of({"ratio": 1.2, "at_least": 1.6}), aim_of({"ratio": 1.003, "at_most": 1.01})
    ('1.6×, not reached', 'at most 1.01×')
    """
    ratio, least, most = (case.get(key) for key in ("ratio", "at_least", "at_most"))
    if least is not None:
        return f"{least:g}×" + (", not reached" if ratio is not None and ratio < least else "")
    if most is not None:
        return f"at most {most:g}×" + (", not kept" if ratio is not None and ratio > most else "")
    return ""


def noted(notes: str | Sequence[str] | None) -> str:
    """Notes in one line."""
    return notes if isinstance(notes, str) else "; ".join(notes or ())


def time_of(milliseconds: float | None) -> str:
    """A time with three digits at most.

    >>> time_of(2.93), time_of(169.3), time_of(3854.3), time_of(1211842.9), time_of(None)
    ('2.9 ms', '169 ms', '3.9 s', '20.2 min', '')
    """
    if milliseconds is None:
        return ""
    for unit, size in (("min", 60_000.0), ("s", 1000.0)):
        if milliseconds >= 2 * size or (unit == "s" and milliseconds >= 999.5):
            return f"{number(milliseconds / size)} {unit}"
    return f"{number(milliseconds)} ms"


def number(value: float) -> str:
    """One digit after the point below a hundred.

    >>> number(8.25), number(145.3)
    ('8.2', '145')
    """
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def times(ratio: float) -> str:
    """A ratio, with two digits where they matter.

    >>> times(145.3), times(19.44), times(2.036)
    ('145×', '19×', '2.04×')
    """
    return f"{ratio:.2f}×" if ratio < 9.995 else f"{ratio:.0f}×"


def ratio(name: str, case: str, peer: str = "*") -> str:
    """The ratio of one case, for a line of text."""
    return times(one_case(name, case, peer)["ratio"])


def memory(name: str, case: str, peer: str = "*") -> str:
    """Our peak memory over the other's in one case, for a line of text."""
    fitting = one_case(name, case, peer)
    return times(fitting["ours_mb"] / fitting["peer_mb"])


def one_case(name: str, case: str, peer: str) -> dict[str, Any]:
    """The case that both patterns fit."""
    fitting = [
        one
        for one in required("benchmarks", name)["cases"]
        if fnmatchcase(one["case"], case) and fnmatchcase(str(one.get("peer")), peer)
    ]
    if len(fitting) != 1:
        raise SystemExit(f"{len(fitting)} cases of {name} are '{case}' against '{peer}'; there must be one.")
    return dict(fitting[0])


def growth(name: str) -> str:
    """Seconds of predictions by the number of training samples, a line for each method."""
    grown = required("benchmarks", name)["growth"]
    exponents = grown.get("exponent", {})
    lines = [
        (method, *(f"{value:.2g} s" for value in seconds), f"{exponents[method]:.1f}" if exponents else "")
        for method, seconds in grown["seconds"].items()
    ]
    head = ("training samples N·n", *(f"{count:,}" for count in grown["points"]), "exponent at the end")
    return table(head, lines)


def machine(name: str) -> str:
    """Where and when a benchmark was measured, for a line of text."""
    measured = required("benchmarks", name)
    where, rate = measured["machine"], measured["machine"]["sgemm_gflops"]
    cores = "1 core" if where["cores"] == 1 else f"{where['cores']} cores"
    sgemm = ", ".join(f"{value:.0f} on {threads}" for threads, value in rate.items())
    torch = where["torch"].partition("+")[0]
    day = measured["ended"][:10]
    return f"{where['cpu']}, {cores}, torch {torch}; sgemm in GFLOP/s by threads: {sgemm}; {day}"
