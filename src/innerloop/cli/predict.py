"""``innerloop predict``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from innerloop.cli.launch import typed_command
from innerloop.cli.options import Backbone, Json, Page, Quiet, Support, Trust, UnsureBelow, check_settings
from innerloop.cli.output import Result, carry_out, say, write
from innerloop.core.errors import UserError
from innerloop.core.formatting import shorten
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
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Also write the labels as a table.")]
Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE",
        help="Keep what was learned, for `predict --model FILE` and `export`, with a card beside it.",
    ),
]
Truth = Annotated[
    bool,
    typer.Option(
        "--truth",
        help="The pictures' folders name their classes: also say how many labels are right.",
    ),
]


def predict(
    words: Words = None,
    support: Support = None,
    run: RunOption = None,
    model: ModelOption = None,
    backbone: Backbone = None,
    unsure_below: UnsureBelow = None,
    csv: Csv = None,
    page: Page = None,
    save: Save = None,
    truth: Truth = False,
    trust: Trust = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    r"""Label new pictures from a few examples per class.

    \b
    Examples:
      innerloop predict --support my-classes/ unsorted/
      innerloop predict --support my-classes/ unsorted/ --page labels.html --csv labels.csv
      innerloop predict --support my-classes/ unsorted/ --save birds.safetensors
      innerloop predict --model birds.safetensors more/
      innerloop predict --support my-classes/ sorted/ --truth
      innerloop predict --backbone hf:my-dinov2/ --support my-classes/ holiday/*.jpg
      innerloop predict --run last --support my-classes/ unsorted/ eval.head=logistic

    Without a run or a model, features of a pretrained network are computed (efficientnet-lite0 by default;
    each picture once: they are kept), and a head is fitted to the examples. It also says how often it will be
    right, from examples that are left out in turn, and calibrates its probabilities by them. A picture is
    unsure if its label is not probable enough, or if it is unknown: farther from every class than examples
    are from theirs. --page shows the pictures, the least sure first, the examples, what is confused, and how
    often it is right.

    \b
    JSON: predictions (file, label, probability, unsure, unknown, probabilities), expected (accuracy, low,
    high, examples, by_class, confused, untested), copies (label, examples), curve, backbone, classes,
    support, method, norm, seconds; truth (accuracy, low, high, pictures, unknown, by_class, confused, other),
    saved, card, csv and page where they were asked for; skipped (file, reason) with data.on_bad=skip.
    """

    def work() -> Result:
        """Finds the network, learns the classes, and labels the pictures."""
        given = check_settings(words, predict)
        settings = [item for item in given if "=" in item and not Path(item).exists()]
        pictures = [item for item in given if item not in settings]
        _refuse_several(run, model, backbone)
        network = run or model
        if not (network or backbone) and pictures and names_a_model(pictures[0]):
            network, pictures = pictures[0], pictures[1:]
        if network is None and support is None:
            raise UserError(
                "there is nothing to learn from: add --support DIR, a folder with one folder of examples per "
                "class, or --model FILE."
            )
        place = None if network is None else place_of(network, support)
        from innerloop.classify.predict import OutputFiles, predict_pictures

        wanted = OutputFiles(*(None if file is None else user_path(file) for file in (save, csv, page)))
        return predict_pictures(
            place,
            None if support is None else user_path(support),
            [user_path(item) for item in pictures],
            settings,
            unsure_below,
            trust=trust,
            backbone=backbone,
            wanted=wanted,
            truth=truth,
            command=typed_command(),
            say=None if quiet else say,
        ).as_dict()

    carry_out(json, work, _render)


def names_a_model(word: str) -> bool:
    """Whether the first word is a run or a model, and not a picture or a folder of them, there or not."""
    from innerloop.data.pictures import is_picture
    from innerloop.runs.directory import is_run

    path = user_path(word)
    if path.is_dir():
        return is_run(path)
    return not (is_picture(path.name) or word.endswith(("/", os.sep)))


def place_of(network: str, support: Path | None) -> Path:
    """The run or the file that is meant; a run knows no classes without a folder of examples."""
    from innerloop.classify.model_path import find_model

    place = find_model(network)
    if support is None and place.is_dir():
        raise UserError(
            f"{place} is a run, which has not learned your classes: add --support DIR, a folder with one "
            "folder of labelled pictures per class."
        )
    return place


SHOWN = 5  # classes that the score by folders names, the worst ones
LONGEST = 300
"""Characters of a class on a terminal; no folder's has as many, one in a saved model may have millions."""
NAMING = ("classes", "support", "expected", "copies", "truth")
"""Parts of the answer that name classes; paths of files are never shorten."""


def _refuse_several(*named: str | None) -> None:
    if sum(name is not None for name in named) > 1:
        raise UserError("--run, --model and --backbone name one network: give one of them.")


def _short(value: Any) -> Any:
    """The same with the middle of enormous names left out."""
    if isinstance(value, str):
        return shorten(value, LONGEST)
    if isinstance(value, dict):
        return {_short(key): _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, list) else value


def _render(whole: Result) -> None:
    result = {**whole, **{part: _short(whole[part]) for part in NAMING if part in whole}}
    told = result["support"]
    shown = ", ".join(f"{name} ({told[str(name)]})" if told else str(name) for name in result["classes"])
    words = "classes (pictures to learn from)" if told else "classes"
    write(f"{words}: {shown}; method: {result['method']}, norm={result['norm']}")
    for line in sureness_lines(result):
        write(line)
    width = max(len(row["file"]) for row in result["predictions"])
    for row in result["predictions"]:
        write(f"{row['file']:<{width}}  {_said(row)}")
    for row in result.get("skipped") or []:
        say(f"left out: {row['file']} ({row['reason']})")
    for line in [*_truth_lines(result.get("truth")), *_last_lines(result)]:
        write(line)


def _said(row: Result) -> str:
    label = _short(row["label"])
    if row["unknown"]:
        return f"unknown? (nearest: {label})"
    return f"{label}  {100 * row['probability']:.0f} %" + ("   unsure" if row["unsure"] else "")


def _interval(share: Result) -> str:
    return f"{100 * share['accuracy']:.0f} % right ({100 * share['low']:.0f} to {100 * share['high']:.0f} %)"


def sureness_lines(result: Result) -> list[str]:
    """How often it will be right, of which classes that is not known, and which examples are copies."""
    from innerloop.classify.sureness import copies_lines, covers  # imports torch

    expected, lines = result["expected"], []
    if expected is not None:
        lines.append(f"expect {_interval(expected)} {covers(expected)}")
        lines += [
            f"  {row['true']} is taken for {row['said']} in {100 * row['share']:.0f} % of cases"
            for row in expected["confused"][:3]
        ]
    elif result["support"]:
        lines.append("how often it is right cannot be told: no class has two different pictures")
    return lines + copies_lines(result["copies"])


def _truth_lines(truth: Result | None) -> list[str]:
    if truth is None:
        return []
    far = f", {truth['unknown']} of them called unknown" if truth["unknown"] else ""
    lines = [f"{_interval(truth)}, by the folders of {truth['pictures']} pictures{far}"]
    worst = sorted(truth["by_class"].items(), key=lambda item: item[1]["accuracy"])[:SHOWN]
    lines += [f"  {name}: {_interval(share)} of {share['pictures']}" for name, share in worst]
    lines += [
        f"  {row['true']} was taken for {row['said']} in {100 * row['share']:.0f} % of cases"
        for row in truth["confused"][:3]
    ]
    lines += [
        f"  {name} is none of the classes: {row['unknown']} of {row['pictures']} pictures are called unknown"
        for name, row in truth["other"].items()
    ]
    return lines


def _last_lines(result: Result) -> list[str]:
    lines = []
    if len(result["curve"]) > 1:
        points = ", ".join(f"{row['shots']}: {100 * row['accuracy']:.0f} %" for row in result["curve"])
        lines.append(f"right with this many examples of each class: {points}")
    lines += [f"{key}: {result[key]}" for key in ("saved", "card", "csv", "page") if result.get(key)]
    return lines
