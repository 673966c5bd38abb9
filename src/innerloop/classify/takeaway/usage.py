"""How a file is used, for its card: what goes in, what comes out, what is left to the caller, and code."""

from __future__ import annotations

import json
from typing import Any

from innerloop.classify.takeaway.about import About

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
        "from innerloop.classify.estimator import FewShotClassifier",
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
