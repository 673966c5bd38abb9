"""Tables of reproductions: rows, all of them at a glance, what they took, accuracies beside the published."""

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from innerloop.core.errors import UserError
from innerloop_studies.papers.bridge import table3
from innerloop_studies.papers.landscape import images, table1, table2
from innerloop_studies.papers.metantk import table2 as metantk_table2
from innerloop_studies.recorded import (
    cell,
    duration,
    interval,
    read,
    required,
    seconds_of,
    statements,
    table,
)
from innerloop_studies.recorded.commands import SCALE
from innerloop_studies.reproduce import REPRODUCTIONS
from innerloop_studies.reproduce.runs import select


def recorded(names: Iterable[str] = REPRODUCTIONS) -> dict[str, dict[str, Any]]:
    """Those of them that are recorded, by name."""
    return {name: known for name in names if (known := read("reproductions", name))}


def rows(*words: str) -> str:
    """What was found, statement by statement, of the reproductions that are recorded."""
    known = recorded(select(words)).items()
    return statements((name, one["rows"]) for name, one in known) or "Nothing of this is recorded yet."


def found(name: str, statement: str) -> str:
    """What was found of one statement, for a line of text."""
    known = read("reproductions", name) or {"rows": ()}
    fitting = [row["ours"] for row in known["rows"] if fnmatchcase(row["what"], statement)]
    if len(fitting) != 1:
        raise UserError(f"{len(fitting)} statements of {name} are '{statement}'; there must be one.")
    return cell(fitting[0])


def overview() -> str:
    """Every reproduction: how many of its statements hold, and what it took."""
    lines = []
    for name, redoes in REPRODUCTIONS.items():
        known = read("reproductions", name)
        counted = ("not recorded yet", "", "")
        if known:
            holds = [bool(row["holds"]) for row in known["rows"]]
            counted = (f"{sum(holds)} of {len(holds)}", duration(seconds_of(known)), known["ended"][:10])
        lines.append((f"`{name}`", cell(redoes), *counted))
    return table(("name", "redoes", "statements that hold", "took", "finished"), lines)


def cost() -> str:
    """What all of them took together, where, and which of them are not recorded."""
    files = recorded()
    total = sum(map(seconds_of, files.values()))
    statements = [bool(row["holds"]) for known in files.values() for row in known["rows"]]
    killed = [name for name, known in files.items() if None in known["earlier"]]
    missing = [name for name in REPRODUCTIONS if name not in files]
    said = [
        f"{len(files)} of {len(REPRODUCTIONS)} reproductions are recorded at `{SCALE}`. {sum(statements)} of "
        f"their {len(statements)} statements hold. Together they took {duration(total)} by the clock, "
        f"on {machines(files.values())}; other work shared the cores at times."
    ]
    if killed:
        said.append(f"What was done before a kill is not in that time: {listed(killed)}.")
    if missing:
        said.append(f"Not recorded yet: {listed(missing)}.")
    return "\n".join(said)


def machines(files: Iterable[dict[str, Any]]) -> str:
    """The machines that made these files, each once."""
    told = [(one["machine"], one["versions"]["torch"].partition("+")[0]) for one in files]
    kinds = {(machine["cores"], machine["cpu"], torch) for machine, torch in told}
    # a file that does not name its processor is no other machine where cores and torch are the same
    named = {(cores, torch) for cores, cpu, torch in kinds if cpu}
    kept = sorted((kind for kind in kinds if kind[1] or (kind[0], kind[2]) not in named), key=str)
    return listed(
        f"{'one core' if cores == 1 else f'{cores} cores'} of {cpu or 'a processor'} with torch {torch}"
        for cores, cpu, torch in kept
    )


def listed(words: Iterable[str]) -> str:
    """Words with commas, and names of reproductions as code."""
    return ", ".join(f"`{word}`" if word in REPRODUCTIONS else word for word in words)


def protocols() -> str:
    """How every recorded reproduction was carried out; those that share a protocol stand together."""
    said: dict[str, list[str]] = {}
    for name, known in recorded().items():
        said.setdefault(cell(sentence(known["protocol"])), []).append(name)
    return "\n".join(f"- {listed(names)}. {words}." for words, names in said.items())


def sentence(value: object) -> str:
    """Settings in one line."""
    if isinstance(value, dict):
        inner = (f"({sentence(v)})" if isinstance(v, dict) else sentence(v) for v in value.values())
        return "; ".join(f"{key}: {words}" for key, words in zip(value, inner, strict=True))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# ---- tables of their own ----


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
    """A value beside the published one."""
    return mean if published is None else f"{mean} ({published})"


def beside_published(mine: Mapping[str, Any], published: Sequence[float]) -> list[str]:
    """Accuracies on easy and hard tasks, each beside the published one."""
    theirs = dict(zip(images.JUDGED, published, strict=False))
    return [bracketed(interval(mine[part]), theirs.get(part)) for part in images.JUDGED]


def alphabets() -> str:
    """``landscape-table1``: one line for each way to train, easy and hard tasks of both settings."""
    data, settings = data_of("landscape-table1"), ("Large", "Small")
    lines = []
    for arm, about in table1.ARMS.items():
        optimiser = {"sgd": "SGD", "adam": "Adam"}[about.training[0]]
        lines.append([f"{arm.partition(' ')[0]}, {optimiser} at {power(about.training[1])}"])
        for setting in settings:
            lines[-1] += beside_published(data[f"{setting} {arm}"], table1.PUBLISHED.get((setting, arm), ()))
    first, *rest = images.JUDGED
    return table(["", *(part for name in settings for part in (f"{name} r_H: {first}", *rest))], lines)


def power(rate: float) -> str:
    """A power of ten as one writes it."""
    mantissa, _, exponent = f"{rate:.0e}".partition("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if mantissa == "1" else f"{mantissa}·10{raised}"


def shares() -> str:
    """``landscape-table2``: by the share of hard tasks in training, and by the way to train."""
    data = data_of("landscape-table2")
    lines = []
    for share in table2.SHARES:
        for method in table2.METHODS:
            by = method.replace(" by ", ", ") if " by " in method else f"{method}, SGD"
            cells = beside_published(data[f"p={share} {method}"], table2.PUBLISHED.get((share, method), ()))
            lines.append([str(share), by, *cells])
    return table(("share p of hard tasks", "", *images.JUDGED), lines)


def methods() -> str:
    """``bridge-table3``: every method on every data set."""
    data, columns = data_of("bridge-table3"), table3.PUBLISHED
    lines = []
    for name in dict.fromkeys(name for each in data.values() for name in each):
        lines.append([name])
        for (where, shots), theirs in columns.items():
            mine = data[f"{where} {shots}"].get(name)
            reached = interval(mine, IN_PERCENT["bridge-table3"]) if mine else "–"
            lines[-1].append(bracketed(reached, theirs.get(name)))
    return table(("method", *(f"{table3.TITLES[where]} {shots}-shot" for where, shots in columns)), lines)


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
    (cells,) = data_of("metantk-table2").values()
    lines = []
    for name, words in SEARCHED_BY.items():
        one = cells[name]
        theirs = [metantk_table2.PUBLISHED[5, shots].get(name) for shots in ("1", "5")]
        published = ", ".join(f"{pair[0]:.2f}" for pair in theirs if pair)
        mine = [interval(one["accuracy"][shots], digits=2) for shots in ("1", "5")]
        size = f"{one['parameters'] / 1e6:.3f} M"
        lines.append((words, *mine, published, size, f"{one['search_minutes']:.1f}"))
    head = ("searched by", "1-shot, %", "5-shot, %", "published, mini-ImageNet", "parameters")
    return table((*head, "search, minutes of one core"), lines)


def races(name: str) -> str:
    """Problem by problem: the choice, what it loses by, and all methods after long training."""
    problems = data_of(name)["problems"]
    methods = list(dict.fromkeys(method for one in problems for method in one["long"]))
    errors = name == "advice-numbers"
    head = ("problem", "chosen", "its lead was called", "loses by", *methods)
    return table(head, [race_line(one, methods, errors) for one in problems])


def race_line(one: dict[str, Any], methods: Sequence[str], errors: bool) -> Sequence[str]:
    """A problem as the cells of a table; the best method stands out."""
    lost = f"{100 * one['regret']:.0f} %" if errors else f"{100 * one['regret']:.1f} points"
    called = "more than chance" if one["decided"] else "perhaps chance"
    line = [one["problem"], one["chosen"], called, lost]
    for method in methods:
        score = race_score(one["long"][method], errors) if method in one["long"] else ""
        line.append(f"**{score}**" if method == one["best"] else score)
    return line


def race_score(value: float | None, errors: bool) -> str:
    """A score; JSON has nothing for an infinite error."""
    if value is None or math.isinf(value):
        return "diverged"
    return f"{value:.3g}" if errors else f"{100 * value:.1f}"


def rates(name: str, pattern: str = "*") -> str:
    """Accuracies in percent at ``auto`` and at every rate of the grid, and what ``auto`` loses."""
    grid = [f"{rate:g}" for rate in required("reproductions", name)["protocol"]["grid"]]
    chosen = [one for one in data_of(name)["table"] if fnmatchcase(one["case"], pattern)]
    return table(("case", "`auto`", *grid, "regret"), [rate_line(one) for one in chosen])


def rate_line(one: dict[str, Any]) -> Sequence[str]:
    """A problem as the cells of a table."""
    auto, *others = (f"{100 * value:.1f}" for value in (one["auto"], *one["scores"], one["regret"]))
    return [one["case"], f"{auto} at {one['rate']:.2g}", *others]
