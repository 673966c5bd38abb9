"""What verbs say: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from innerloop.core.files import json_line
from innerloop.core.formatting import score_text, visible_text
from innerloop.core.stderr import tell

if TYPE_CHECKING:
    from rich.console import Console

Result = dict[str, Any]
PIPE_WIDTH = 160  # columns of a table that does not go to a terminal, where nobody can see it wrap
LONGEST = 100_000  # characters of a text: names in files may be of any length
TEXT_WIDTH = 94  # sentences are broken here at the latest: longer lines are hard to follow
TOGETHER, HOLDS = re.compile(r"\d (?:± [\d.]+(?: %)?|%|s\b|ms\b|min\b)|`[^`]*`"), "\u00a0"
"""Numbers with their units, and commands: no line ends within them."""


def carry_out(as_json: bool, work: Callable[[], Result], render: Callable[[Result], None]) -> Result:
    """Do the work, then print its result: one line of JSON, or what ``render`` makes of it for people."""
    with _stdout_to_stderr() if as_json else contextlib.nullcontext():
        result = work()
    if as_json:
        write_json(result)
    else:
        render(result)
    return result


def typed_argv() -> list[str]:
    """The command of this process, as its runs keep it."""
    return ["innerloop", *sys.argv[1:]]


def write(text: str) -> None:
    """A line on standard output; what would steer a terminal is escaped, enormous names are shortened."""
    sys.stdout.write(visible_text(text, LONGEST).rstrip("\n") + "\n")
    sys.stdout.flush()


def write_part(title: str, sentences: Iterable[str]) -> None:
    """A title and its sentences, indented, broken to the width of the terminal; nothing if there are none."""
    told = [sentence for sentence in sentences if sentence]
    if not told:
        return
    width = min(console().width, TEXT_WIDTH)
    write(f"\n{title}")
    for sentence in told:
        mark = "  · " if len(told) > 1 else "  "
        lines = textwrap.fill(
            TOGETHER.sub(lambda match: match[0].replace(" ", HOLDS), sentence),
            width,
            initial_indent=mark,
            subsequent_indent=" " * len(mark),
            break_long_words=False,
            break_on_hyphens=False,
        )
        write(lines.replace(HOLDS, " "))


def write_json(value: Any) -> None:
    """A line of JSON on standard output, whatever characters that can show and whatever would steer it."""
    line = json_line(value, sys.stdout.encoding or "utf-8")
    sys.stdout.write((line if visible_text(line) == line else json_line(value, "ascii")) + "\n")
    sys.stdout.flush()


def show_all_characters() -> None:
    """Standard output writes what it has no character for as an escape, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """A line on standard error, if anybody listens."""
    tell(text)


def console() -> Console:
    """Standard output with colours where it is a terminal; text is never read as markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(file=sys.stdout, highlight=False, markup=False, width=width)


def score_value(score: str, mean: float | None, ci95: float | None) -> str:
    """A score without its name, for a column that has it."""
    return score_text(score, mean, ci95).removeprefix(f"{score} ")


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """Print a table; ``right`` names the columns of numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(title, style="bold"), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if column in right else "left", no_wrap=index == 0)
    for row in rows:
        made.add_row(*(Text(visible_text(cell, LONGEST)) for cell in row))
    console().print(made)


def table_of_keys(title: str, keys: Sequence[Result]) -> None:
    """Print settings with their defaults, what they take and what they mean."""
    columns = ("key", "default", "takes", "meaning")
    table(title, columns, [[row[column] for column in columns] for row in keys])


def pairs(rows: Mapping[str, object]) -> None:
    """Print names and values, one pair a line, values aligned."""
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        write(f"{name:<{width}}  {value}")


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Also for libraries and child processes, which write to the descriptor and not to ``sys.stdout``."""
    sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # closed, or not files at all
        saved = None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)
