"""Options of ``innerloop predict``, and which model is meant by what was typed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] PICTURE…",
        help="Pictures or folders of them; key=value settings may be among them. A run (its path, the "
        "beginning of its name, or `last`) or a saved model may come first.",
    ),
]
RunOption = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="The network of a run, which adapts as trained.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="FILE", help="A .safetensors file, written by --save or in Python."),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="NAME",
        help="A pretrained network: efficientnet-lite0 (the default without a run or a model), hf:FOLDER …",
    ),
]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write the labels as a table.")]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Keep what was learned, for `predict --model FILE` and `export`, with a card beside it.",
    ),
]
Support = Annotated[
    Path | None,
    typer.Option(
        "--support",
        metavar="DIR",
        help="A folder with one folder of examples per class. If omitted, the classes are those that a saved "
        "model has learned.",
    ),
]
Truth = Annotated[
    bool,
    typer.Option(
        "--truth",
        help="The pictures' folders name their classes: also say how many labels are right.",
    ),
]
UnsureBelow = Annotated[
    float | None,
    typer.Option(
        "--unsure-below",
        help="Mark predictions that are less probable than this. Default: as saved, else 0.5.",
        min=0,
        max=1,
    ),
]
OPTIONS = (
    *("--support", "--run", "--model", "--backbone", "--unsure-below", "--csv", "--page", "--save"),
    *("--truth", "--trust", "--json", "--quiet", "--help"),
)


def names_a_model(word: str) -> bool:
    """Whether the first word is a run or a model, and not a picture or a folder of them, there or not."""
    from innerloop.data.pictures import is_picture
    from innerloop.runs.directory import is_run

    path = user_path(word)
    if path.is_dir():
        return is_run(path)
    return not (is_picture(path.name) or word.endswith(("/", os.sep)))


def place_of(network: str, support: Path | None) -> Path:
    """The run or the file that is meant.

    Args:
        network: as typed.
        support: a folder of examples; a run knows no classes without one.
    """
    from innerloop.classify.model_path import find_model

    place = find_model(network)
    if support is None and place.is_dir():
        raise UserError(
            f"{place} is a run, which has not learned your classes: add --support DIR, a folder with one "
            "folder of labelled pictures per class."
        )
    return place
