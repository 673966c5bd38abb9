"""``innerloop data``: ls, get, check, inspect."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.cli.options import Json, Quiet, help_text
from innerloop.cli.output import Result, carry_out, pairs, say, table, write
from innerloop.core.errors import spelling
from innerloop.core.paths import user_path

app = typer.Typer(
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    help="Datasets: list them, fetch or adopt them, check them, look at them.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset; `innerloop data ls` lists them.")]
Given = Annotated[
    str, typer.Argument(metavar="NAME", help="A dataset, a folder of class folders, or an .npz file.")
]
From = Annotated[
    list[Path] | None,
    typer.Option("--from", metavar="ARCHIVE", help="Adopt a local copy; give it once for every file."),
]
Again = Annotated[bool, typer.Option("--again", help="Make it again even if it is there.")]
Size = Annotated[int | None, typer.Option("--size", min=1, help="Side in pixels, for your own pictures.")]
Skip = Annotated[bool, typer.Option("--skip-bad", help="Leave out files of yours that cannot be read.")]
LeaveOut = Annotated[
    int, typer.Option("--leave-out", min=0, help="Leave out classes of yours with fewer pictures than this.")
]
Splits = Annotated[
    str | None, typer.Option("--splits", help="Which published split (omniglot: vinyals, alphabet), or all.")
]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Where the sheet goes; by default NAME-sheet.png here.")
]


def ls(json: Json = False) -> None:
    """List the datasets: what they are, whether they are here, their terms."""

    def work() -> Result:
        """Lists what there is."""
        from innerloop.data.listing import list_datasets
        from innerloop.data.paths import data_folder

        return {"datasets": [one.as_dict() for one in list_datasets()], "folder": str(data_folder())}

    carry_out(json, work, _render_list)


def get(
    name: Name,
    archives: From = None,
    again: Again = False,
    size: Size = None,
    skip_bad: Skip = False,
    leave_out: LeaveOut = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Fetch a dataset, or adopt your copy of it.

    \b
    Examples:
      innerloop data get omniglot
      innerloop data get omniglot --from images_background.zip --from images_evaluation.zip
      innerloop data get cifar-fs --from cifar-100-python.tar.gz
      innerloop data get my-birds --from pictures/        (one folder per class)
      innerloop data get sketches --from sketches.npz     (arrays images and labels)

    The archive's checksum is compared where one is published, its content always. It is converted once; the
    archive is not needed afterwards. Data is kept in $INNERLOOP_DATA, by default the user's cache folder.

    \b
    JSON: name, classes, images, content_sha256, status, origin, licence, folder, already.
    """

    def work() -> Result:
        """Fetches or adopts the dataset."""
        from innerloop.data.folder import FolderOptions
        from innerloop.data.get import get as fetch

        options = FolderOptions(size, on_bad="skip" if skip_bad else "refuse", leave_out=leave_out)
        given = [user_path(path) for path in archives or []]
        words = spelling({'on_bad="skip"': "--skip-bad", "leave_out": "--leave-out"})
        with _progress(show=not quiet) as progress, words:
            return fetch(name, given, again=again, options=options, progress=progress).as_dict()

    carry_out(json, work, _render_got)


def check(name: Name, json: Json = False) -> None:
    r"""Read every pixel of a dataset again and compare it with what it should be.

    \b
    JSON: name, classes, images, content_sha256, content_known, status, ok.
    """

    def work() -> Result:
        """Compares the dataset with its hashes."""
        from innerloop.data.get import check as verify

        return {**verify(name)._asdict(), "ok": True}

    carry_out(json, work, _render_checked)


def inspect(
    name: Given,
    splits: Splits = None,
    out: Out = None,
    size: Size = None,
    skip_bad: Skip = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    r"""Count the classes and pictures of every split, and draw a sheet of some of them.

    \b
    Examples:
      innerloop data inspect omniglot --splits alphabet
      innerloop data inspect pictures/ --out sheet.png

    \b
    JSON: name, classes, images, shape, content_sha256, splits (split, classes, images, smallest, largest),
    per_class, sheet.
    """

    def work() -> Result:
        """Opens the dataset, and draws a sheet of it."""
        from innerloop.data.listing import contact_sheet, describe
        from innerloop.data.opening import open_source

        on_bad: Any = "skip" if skip_bad else "refuse"
        with _progress(show=not quiet) as progress:
            source = open_source(name, splits=splits, size=size, on_bad=on_bad, progress=progress)
        sheet = contact_sheet(source, out or Path(f"{Path(source.name).name}-sheet.png"))
        return {**describe(source).as_dict(), "sheet": str(sheet)}

    carry_out(json, work, _render_inspected)


@contextmanager
def _progress(show: bool) -> Iterator[Callable[[str, int, int], None]]:
    """One line on standard error: rewritten in a terminal, a new one every ten seconds elsewhere."""
    live = show and sys.stderr.isatty()
    last, drawn = time.monotonic(), False

    def update(what: str, done: int, total: int) -> None:
        """Says how far it is, unless it has just been said."""
        nonlocal last, drawn
        now = time.monotonic()
        if not show or now - last < (0.1 if live else 10.0):
            return
        last = now
        share = f"{100 * done / total:3.0f} %" if total else f"{done:,}"
        if live:
            sys.stderr.write(f"\r{what}: {share}\x1b[K")
            sys.stderr.flush()
            drawn = True
        else:
            say(f"{what}: {share}")

    try:
        yield update
    finally:
        if drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


for _verb in (ls, get, check, inspect):
    app.command(help=help_text(_verb))(_verb)


def _render_list(result: Result) -> None:
    rows = [
        (row["name"], row["status"], row["classes"], f"{row['images']:,}", row["title"], row["licence"])
        for row in result["datasets"]
    ]
    columns = ("name", "here", "classes", "pictures", "what", "licence, as stated by its source")
    table("datasets: innerloop data get NAME", columns, rows, right=("classes", "pictures"))
    write(f"kept in {result['folder']} (set INNERLOOP_DATA to change)")


def _render_got(result: Result) -> None:
    what = f"{result['images']:,} pictures of {result['classes']} classes"
    write(f"{result['name']}: {what}{', already here' if result['already'] else ''}")
    rows = {
        "status": f"{result['status']}: {_STATUS[result['status']]}",
        "content": f"sha256 {result['content_sha256']}",
        **{record["file"]: f"checksum {record.get('checksum', 'not taken')}" for record in result["origin"]},
        "licence": result["licence"],
        "folder": result["folder"],
    }
    pairs({name: value for name, value in rows.items() if value})


_STATUS = {
    "as published": "the publisher's own archive, by its checksum and by its pixels",
    "repacked": "not the publisher's own bytes, but the right pictures",
    "unconfirmed": "the counts are right; no checksum of the pixels is known to compare with",
    "known copy": "the pixels of the copy that the catalogue knows",
    "another copy": "the counts are right; the pixels are not those of the copy that the catalogue knows: "
    "perhaps they were resized or packed in another way, and accuracies may differ a little",
    "your own": "nothing to compare with",
    "embedded": "drawn by innerloop itself",
}


def _render_checked(result: Result) -> None:
    known = "as the catalogue says" if result["content_known"] else "as when it was converted"
    write(
        f"{result['name']}: all {result['images']:,} pictures of {result['classes']} classes are {known} "
        f"({result['status']}, sha256 {result['content_sha256'][:16]}…)"
    )


def _render_inspected(result: Result) -> None:
    height, width, channels = result["shape"]
    what = f"{result['images']:,} pictures of {result['classes']} classes, {height}×{width}"
    write(f"{result['name']}: {what}, {'grey' if channels == 1 else 'colour'}")
    rows = [
        (part["split"], part["classes"], f"{part['images']:,}", " to ".join(map(str, dict.fromkeys(ends))))
        for part in result["splits"]
        for ends in [(part["smallest"], part["largest"])]
    ]
    table("splits", ("split", "classes", "pictures", "per class"), rows, right=("classes", "pictures"))
    counts = result["per_class"]
    if len(counts) <= 40 or min(counts.values()) != max(counts.values()):
        ordered = sorted(counts.items(), key=lambda item: item[1])
        shown = ordered if len(ordered) <= 40 else ordered[:10]
        title = "classes" if len(ordered) <= 40 else "smallest classes (--json lists all)"
        table(title, ("class", "pictures"), shown, right=("pictures",))
    write(f"sheet: {result['sheet']}")
