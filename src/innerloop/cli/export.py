"""``innerloop export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.launch import typed_command
from innerloop.cli.options import Json, Quiet, Settings, Support, Trust, UnsureBelow, check_settings
from innerloop.cli.output import Result, carry_out, say, write
from innerloop.cli.predict import place_of
from innerloop.core.paths import user_path

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .safetensors file, written by `predict --save` or in Python, or a run with --support.",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="What to write: FILE.onnx, or FILE.pt2 for torch.export.")
]
Fixed = Annotated[
    bool,
    typer.Option(
        "--fixed", help="Leave resizing out of the graph: it takes pictures of the network's own size only."
    ),
]


def export(
    model: Model,
    file: File,
    settings: Settings = None,
    support: Support = None,
    fixed: Fixed = False,
    unsure_below: UnsureBelow = None,
    trust: Trust = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    r"""Write a model as a graph that runs without innerloop: ONNX or torch.export.

    \b
    Examples:
      innerloop predict --support my-classes/ unsorted/ --save birds.safetensors
      innerloop export birds.safetensors birds.onnx
      innerloop export birds.safetensors birds.pt2 --fixed
      innerloop export last letters.onnx --support my-letters/

    The graph takes decoded pictures of any size (uint8; batch, height, width, channels) and does the rest:
    resizing (bit for bit as Pillow does), scaling, the network, the head, the temperature and the
    thresholds. It gives logits, calibrated probabilities, and which pictures are unknown or unsure. Names of
    classes are in the file's metadata. A run that adapts by gradients is exported as it is after adapting.

    The file is read again and compared before it gets its name, and a card is written beside it (FILE.md):
    classes, examples, licence, expected accuracy, what the caller must do, and code to start from. ONNX needs
    pip install 'innerloop[onnx]'.

    \b
    JSON: file, card, bytes, classes, method, input, outputs, caller, expected, difference, seconds; backbone,
    run or model.
    """

    def work() -> Result:
        """Adapts the model if examples are given, and exports it."""
        _, _, *given = check_settings([model, str(file), *(settings or [])], export)
        out = user_path(file)
        place = place_of(model, support)
        from innerloop.classify.export import export_model

        return export_model(
            place,
            out,
            None if support is None else user_path(support),
            given,
            unsure_below=unsure_below,
            fixed=fixed,
            trust=trust,
            command=typed_command(),
            say=None if quiet else say,
        ).as_dict()

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    given = result["input"]
    shape = " × ".join(str(side) for side in given["shape"])
    write(f"wrote {result['file']} ({result['bytes'] / 1e6:.1f} MB) and {result['card']}")
    write(f"it takes pictures, {given['type']}, {shape}, and gives {', '.join(result['outputs'])}")
    write("what is left to the caller:")
    for line in result["caller"]:
        write(f"  {line}")
    write(
        f"read again and compared: probabilities differ from innerloop's by at most "
        f"{max(result['difference'], 1e-9):.1g}"
    )
