"""``innerloop predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from innerloop.cli.options import Json, Trust, check_settings
from innerloop.cli.output import Result, carry_out, write
from innerloop.core.errors import UserError
from innerloop.core.place import user_path

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A run (its path, the beginning of its name, or `last`), or a .safetensors file that "
        "FewShotClassifier.save wrote.",
    ),
]
Support = Annotated[
    Path | None,
    typer.Option(
        "--support",
        metavar="DIR",
        help="A folder with one folder of pictures per class. Left out: the classes that a saved "
        "FewShotClassifier has learned.",
    ),
]
Queries = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUERY…", help="Pictures or folders of them; key=value settings may stand among them."
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


def predict(
    model: ModelName,
    queries: Queries = None,
    support: Support = None,
    unsure_below: UnsureBelow = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    r"""Label new pictures from a few examples per class.

    \b
    Examples:
      innerloop predict last --support my-classes/ holiday/*.jpg
      innerloop predict last --support my-classes/ unsorted/ --json
      innerloop predict last --support my-classes/ unsorted/ eval.head=logistic
      innerloop predict birds.safetensors unsorted/

    The model adapts to the classes of the support folder, in the way it was trained to, and labels every
    query. A saved FewShotClassifier that has learned its classes needs no support folder. Predictions that
    are not probable enough are marked as unsure. It only knows the classes you show it: a picture of
    anything else gets one of them, and need not look unsure.

    \b
    JSON: predictions (file, label, probability, unsure, probabilities), classes, support, method, norm.
    """

    def work() -> Result:
        given = check_settings(queries, ("--support", "--trust", "--json", "--help", "--unsure-below"))
        settings = [item for item in given if "=" in item and not Path(item).exists()]
        files = [user_path(item) for item in given if item not in settings]
        from innerloop.experiment.model_place import find_model

        place = find_model(model)
        if support is None and place.is_dir():
            raise UserError(
                f"{place} is a run, which knows no classes of yours: add --support DIR, a folder with one "
                "folder of labelled pictures per class."
            )
        from innerloop.experiment.predict import predict_pictures

        folder = None if support is None else user_path(support)
        return predict_pictures(place, folder, files, settings, unsure_below, trust=trust)

    carry_out(json, work, _render)


def _render(result: Result) -> None:
    told = result["support"]
    shown = ", ".join(f"{name} ({told[str(name)]})" if told else str(name) for name in result["classes"])
    words = "classes (pictures to learn from)" if told else "classes"
    write(f"{words}: {shown}; method: {result['method']}, norm={result['norm']}")
    width = max(len(row["file"]) for row in result["predictions"])
    for row in result["predictions"]:
        mark = "   unsure" if row["unsure"] else ""
        write(f"{row['file']:<{width}}  {row['label']}  {100 * row['probability']:.0f} %{mark}")
