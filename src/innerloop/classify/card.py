"""The card of a model: what a stranger must know before trusting or passing on a file, in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from innerloop.classify.results import About
from innerloop.core.errors import UserError
from innerloop.core.formatting import visible_text
from innerloop.nets.pretrained import UNKNOWN

LONGEST = 500  # characters of a name
SHOWN = 12  # classes that the first sentence names
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")


def card_file(path: Path) -> Path:
    """Where the card of a file stands."""
    return path.with_name(path.name + ".md")


def refuse_to_overwrite(*paths: Path | None) -> None:
    """Nothing is overwritten; told before anything is computed."""
    there = [path for path in paths if path is not None and path.exists()]
    if there:
        raise UserError(f"{there[0]} is there already: give another name, or remove it.")


def card(about: About, file: str, command: str = "", checked: float | None = None) -> str:
    """The text."""
    parts = [
        [f"# {escaped(file)}", _lead(about)],
        ["## What to expect", *_expected(about), _table(about), *_confused(about), *_curve(about)],
        ["## How sure it is", *_sureness(about)],
        ["## What it is made of", _rows(_made_of(about)), _licence(about)],
        ["## How to use it", *usage(about, file)],
        ["## Where it comes from", _rows(_origin(about, command, checked))],
    ]
    return "\n\n".join(paragraph for part in parts for paragraph in part if paragraph) + "\n"


def escaped(text: Any) -> str:
    """Text that Markdown and HTML take for text, on one line."""
    return _SPECIAL.sub(r"\\\1", _one_line(text))


def _one_line(text: Any) -> str:
    return visible_text(" ".join(str(text).split()), LONGEST)


def share(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.3g} %"


def _lead(about: About) -> str:
    names, counts = about["classes"], about["examples"]
    shown = ", ".join(escaped(name) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    learned = f", learned from {sum(counts.values())} examples" if counts else ""
    return (
        f"A classifier of pictures with {len(names)} classes{learned}: {shown}{more}. It looks at "
        f"features of {escaped(about['network']['name'])}, and was made with innerloop "
        f"{about['versions']['innerloop']} on {_day(about['made'])}."
    )


def _day(moment: str) -> str:
    when = datetime.fromisoformat(moment)
    return f"{when.day} {when:%B %Y}"


def _expected(about: About) -> list[str]:
    estimate = about["expected"]
    if estimate is None:
        return [
            "How often it is right is **not known**. It would be estimated from examples that are left out "
            "in turn, which needs a head on features and a class with a second example. Judge it on labelled "
            "pictures of your own before you rely on it."
        ]
    return [
        f"Of new pictures that are drawn as the examples were, expect **{share(estimate['accuracy'])}** to "
        f"be labelled right (95 % interval: {share(estimate['low'])} to {share(estimate['high'])})."
        + _untested(estimate["untested"]),
        _copies(about["copies"]),
        f"This is an estimate from the {estimate['examples']} examples themselves. One example of every "
        "class was left out at a time, five times over in other combinations, and judged by a head that had "
        "not seen it; the interval is Wilson's, over examples. It allows for chance in the choice of the "
        "examples. It says nothing of pictures that are unlike them: another camera, other light, another "
        "season, other classes.",
    ]


def _untested(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    shown = ", ".join(escaped(name) for name in names[:SHOWN]) + more
    return f" **Not tested**, for want of a second picture: {shown}."


def _copies(counts: Sequence[int]) -> str:
    if not counts:
        return ""
    return (
        f"{sum(counts)} examples look like copies of {len(counts)} pictures. Copies were left out together, "
        "and count once."
    )


def _table(about: About) -> str:
    counts, estimate = about["examples"], about["expected"]
    by_class = {} if estimate is None else estimate["by_class"]
    lines = [_line(["class", "examples", "right when left out", "95 % interval"]), _line(["---"] * 4)]
    for name in map(str, about["classes"]):
        one, judged = by_class.get(name), ("–", "–")
        if one is not None:
            judged = (share(one["accuracy"]), f"{share(one['low'])} to {share(one['high'])}")
        lines.append(_line([escaped(name), str(counts.get(name, "not recorded")), *judged]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _confused(about: About) -> list[str]:
    pairs = [] if about["expected"] is None else about["expected"]["confused"]
    if not pairs:
        return []
    told = [
        f"- {escaped(pair['true'])} was taken for {escaped(pair['said'])} in {share(pair['share'])} of cases"
        for pair in pairs
    ]
    return ["Among the examples left out it confused most:", "\n".join(told)]


def _curve(about: About) -> list[str]:
    points = about["curve"]
    if len(points) < 2:
        return []
    told = ", ".join(f"{share(point['accuracy'])} with {point['shots']}" for point in points)
    return [f"What the number of examples of each class brings (right among those left out): {told}."]


def _sureness(about: About) -> list[str]:
    heat = "Its probabilities are not calibrated: their order is right, but 80 % need not mean 80 %."
    if about["calibrated"]:
        heat = (
            f"Scores are divided by a temperature of {about['temperature']:.4g}, which was fitted to what "
            "was said of examples left out, so that about eight in ten of the labels that are called 80 % "
            "probable are right."
        )
    limit = f"A label that is less probable than {share(about['unsure_below'])} is called unsure."
    return [heat, limit, _novelty(about["novelty"])]


def _novelty(novelty: dict[str, Any] | None) -> str:
    if novelty is None:
        return (
            "It cannot tell that a picture is of none of the classes: it gives such a picture a label, too."
        )
    return (
        f"A picture is called unknown, and so unsure, if its features (of unit length) are farther than "
        f"{novelty['threshold']:.4g} from the mean of every class; the threshold comes from "
        f"{novelty['examples']} examples. At most {share(novelty['false_alarms'])} of the pictures that do "
        "belong to a class are called so, if they are like the examples. A picture of none of the classes "
        "need not be far from all of them."
    )


def _made_of(about: About) -> dict[str, str]:
    network = about["network"]
    rows = {"network": escaped(network["name"])}
    if "recipe" in network:
        rows["trained by"] = f"the recipe {escaped(network['recipe'])} of innerloop"
    return {
        **rows,
        "weights": escaped(network["weights"]),
        "trained on": escaped(network["seen"]),
        "licence of the weights": escaped(network["licence"]),
        "pictures are": escaped(network["pictures"]),
        "classes learned by": escaped(about["method"]),
        "features divided by their norm": "yes" if about["normalise"] else "no",
        "norm policy": escaped(network["norm"]),
    }


def _licence(about: About) -> str:
    licence, examples = about["network"]["licence"], "The examples may have rights of their own."
    if licence == UNKNOWN:
        return (
            "innerloop does not know the licence of the weights: look it up where they come from before you "
            f"pass this file on. {examples}"
        )
    return f"The file contains the weights, so their licence ({escaped(licence)}) holds for it. {examples}"


def _origin(about: About, command: str, checked: float | None) -> dict[str, str]:
    verb = " ".join(command.split()[:2])  # the rest names places on the machine of whoever made it
    rows = {
        "made": about["made"].replace("T", " ").replace("+00:00", " UTC"),
        "made by": f"`{verb}`" if verb else "Python",
        **about["versions"],
    }
    if checked is not None:
        rows["checked"] = (
            "read again and run on pictures of noise: no probability differs from innerloop's by more than "
            f"{max(checked, 1e-9):.1g}"
        )
    return rows


def _rows(rows: dict[str, str]) -> str:
    lines = [_line([name, value]) for name, value in rows.items()]
    return "\n".join([_line(["", ""]), _line(["---"] * 2), *lines])


_PICTURE = "\n".join(
    (
        "import json",
        "",
        "import numpy as np",
        "import {library}",
        "from PIL import Image, ImageOps",
        "",
        'picture = ImageOps.exif_transpose(Image.open("picture.jpg")).convert("{mode}"){resize}',
        "pictures = np.array(picture){axes}  # uint8 {shape}",
    )
)
_ONNX = "\n".join(
    (
        "session = onnxruntime.InferenceSession({file})",
        'classes = json.loads(session.get_modelmeta().custom_metadata_map["innerloop"])["classes"]',
        'logits, probabilities, unknown, unsure = session.run(None, {{"pictures": pictures}})',
        "best = probabilities[0].argmax()",
        'print(classes[best], probabilities[0, best], "unsure" if unsure[0] else "")',
    )
)
_TORCH = "\n".join(
    (
        'more = {{"innerloop.json": ""}}',
        "program = torch.export.load({file}, extra_files=more).module()",
        'classes = json.loads(more["innerloop.json"])["classes"]',
        "said = program(torch.from_numpy(pictures))",
        'best = int(said["probabilities"][0].argmax())',
        'print(classes[best], float(said["probabilities"][0, best]), "unsure" if said["unsure"][0] else "")',
    )
)
_SAVED = "\n".join(
    (
        "from innerloop import FewShotClassifier",
        "",
        "model = FewShotClassifier.load({file})",
        'print(model.predict_sure(["picture.jpg"]))',
    )
)


def usage(about: About, file: str) -> list[str]:
    """Paragraphs."""
    if "input" not in about:
        return [
            "innerloop reads it: `innerloop predict --model FILE PICTURE…` labels pictures, and "
            "`innerloop export FILE model.onnx` makes a graph of it that runs without innerloop. Pictures "
            "are decoded, turned upright, resized and scaled as the examples were.",
            f"```python\n{_SAVED.format(file=json.dumps(file))}\n```",
        ]
    given = about["input"]
    return [
        f"It takes `pictures`, uint8 ({', '.join(map(str, given['shape']))}), and gives",
        "\n".join(f"- `{name}`: {words}" for name, words in about["outputs"].items()),
        _inside(about),
        "\n".join(f"- {line}" for line in left_to_the_caller(given)),
        f"```python\n{code(given, file)}\n```",
        "The names of the classes, in order, and all else that this card says are in the file's metadata "
        "(`innerloop`), as JSON.",
    ]


def _inside(about: About) -> str:
    resizing = "resizing (to the bits that Pillow gives), " if about["input"]["resized"] else ""
    mixed = ""
    if about["network"]["norm"] == "transductive":
        mixed = " Pictures of one batch are normalised together, so a label depends on the others in it."
    return (
        f"In the graph are {resizing}scaling, the network, the head, the temperature and the "
        f"thresholds.{mixed} What is left to the caller:"
    )


def left_to_the_caller(given: dict[str, Any]) -> list[str]:
    """What must be done before pictures are given to a graph."""
    grey = given["colour"] == "grey"
    colour = "one channel of grey, as Pillow's `convert('L')` makes it" if grey else "RGB, in this order"
    lines = [
        "decode the file, and turn the picture upright, as its EXIF data say;",
        f"bring it to 8 bits a channel and to {colour}; innerloop makes transparent parts white;",
    ]
    if not given["resized"]:
        _, height, width, _ = given["shape"]
        return [
            *lines,
            f"bring it to {width}×{height} pixels with Pillow: {given['how']}; other filters give other "
            "numbers.",
        ]
    return [
        *lines,
        "give pictures of one size at a time, since a batch has one height and one width. Time grows with "
        "their size: halve pictures of many megapixels first if it matters.",
    ]


def code(given: dict[str, Any], file: str) -> str:
    """A script that labels ``picture.jpg``."""
    _, height, width, channels = given["shape"]
    grey, onnx = channels == 1, file.endswith(".onnx")
    start = _PICTURE.format(
        library="onnxruntime" if onnx else "torch",
        mode="L" if grey else "RGB",
        resize="" if given["resized"] else f".resize(({width}, {height}))  # in place of what is said above",
        axes="[None, :, :, None]" if grey else "[None]",
        shape=f"(1, {height}, {width}, {channels})",
    )
    return start + "\n" + (_ONNX if onnx else _TORCH).format(file=json.dumps(file))
