"""What ``innerloop export`` does with a saved model, or with a run and a folder of examples."""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from innerloop.classify.card import card, card_file, left_to_the_caller, refuse_to_overwrite
from innerloop.classify.files import load_model
from innerloop.classify.graph import Graph, first_line
from innerloop.classify.predict import fit_folder, refuse_late_settings, support_options
from innerloop.classify.predictor import Predictor
from innerloop.classify.results import About, NetworkSummary, about_model, summarise_network
from innerloop.core.errors import UserError, fault_message
from innerloop.core.files import write_text_atomic
from innerloop.data.pictures import silent
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.results import UNSURE_BELOW
from innerloop.runs.progress import TimeLeft


class ExportResult(NamedTuple):
    """A graph that was written.

    Attributes:
        file: the graph.
        card: about it, in words.
        size: of the file in bytes.
        network: that it was made from.
        about: what the file says of itself: its classes, its input and its outputs.
        caller: what is left to whoever runs it.
        difference: the largest from what the model itself says.
        seconds: of all this.
    """

    file: Path
    card: Path
    size: int
    network: NetworkSummary
    about: About
    caller: list[str]
    difference: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as ``innerloop export --json`` prints them."""
        return {
            "file": str(self.file),
            "card": str(self.card),
            "bytes": self.size,
            **self.network.as_dict(),
            **{name: self.about[name] for name in ("classes", "method", "input", "outputs", "expected")},
            "caller": self.caller,
            "difference": self.difference,
            "seconds": self.seconds,
        }


@recipe_words()
def export_model(
    model: str | Path,
    out: Path,
    support: Path | None = None,
    overrides: Sequence[str] = (),
    *,
    unsure_below: float | None = None,
    fixed: bool = False,
    trust: bool = False,
    command: str = "",
    say: Callable[[str], None] | None = None,
) -> ExportResult:
    """Writes a model that has learned classes as a graph, and a card beside it.

    Args:
        model: a file that ``FewShotClassifier.save`` wrote, or a run on pictures.
        out: the file to write, ``.pt2`` or ``.onnx``.
        support: a folder with one folder of examples per class; None for the classes that a file knows.
        overrides: ``key=value`` settings for the adaptation.
        unsure_below: predictions less probable than this are unsure; by default what a file says, else 0.5.
        fixed: whether the graph takes pictures of the network's own size only.
        trust: whether code that the model's recipe names may be imported.
        command: as it was typed, for the card.
        say: told how far it is, where it takes long.
    """
    began = time.perf_counter()
    check_target(out)
    predictor = load_model(model, overrides, trust=trust)
    if support is None:
        refuse_late_settings(predictor, overrides)
    else:
        progress = silent if say is None else TimeLeft(say)
        predictor = fit_folder(predictor, support, progress, support_options(overrides))
    limit = predictor.unsure_below if unsure_below is None else unsure_below
    made = export_predictor(predictor, out, unsure_below=limit, fixed=fixed, command=command, model=model)
    return made._replace(seconds=time.perf_counter() - began)


ENOUGH = 1e-4  # probabilities of a file that differ by more are refused
METADATA = "innerloop"
"""The entry of an ONNX file's metadata, and with ``.json`` of a program's extra files, that tells all."""
_MOST_ONNX = 2_000_000_000
_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")

Pictures = NDArray[np.uint8]
Run = Callable[[Pictures], dict[str, NDArray[Any]]]  # pictures → what a file says of them


def check_target(path: Path) -> None:
    """Refuses, before anything is computed, what could not be written."""
    if path.suffix not in WRITERS:
        raise UserError(
            f"a model cannot be exported to '{path.name}': its name must end in .onnx, or in .pt2 for "
            "torch.export."
        )
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} to write {path.name} into: make it first.")
    refuse_to_overwrite(path, card_file(path))
    if path.suffix == ".onnx":
        missing = [name for name in _LIBRARIES if not _is_there(name)]
        if missing:
            raise UserError(f"ONNX files need {' and '.join(missing)}: pip install 'innerloop[onnx]'.")


def _is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def export_predictor(
    predictor: Predictor,
    path: Path,
    *,
    unsure_below: float = UNSURE_BELOW,
    fixed: bool = False,
    command: str = "",
    model: str | Path | None = None,
) -> ExportResult:
    """Writes what learned classes as a graph of ``torch.export`` or ONNX, with a card beside it."""
    began = time.perf_counter()
    check_target(path)
    graph = Graph(predictor, unsure_below, fixed).eval()
    program = graph.capture()
    about = {**about_model(predictor, unsure_below), **graph.about()}
    with _published(path) as half, _quietly():
        run = WRITERS[path.suffix](program, half, json.dumps(about))
        difference = largest_difference(graph, run)
        if not difference <= ENOUGH:
            raise UserError(
                f"{path.name} would differ from innerloop by {difference:.1g} in a probability, so it was "
                "not written: export to the other format (.pt2 or .onnx)."
            )
    write_text_atomic(card_file(path), card(about, path.name, command, difference))
    return ExportResult(
        file=path,
        card=card_file(path),
        size=path.stat().st_size,
        network=summarise_network(predictor, model),
        about=about,
        caller=left_to_the_caller(about["input"]),
        difference=difference,
        seconds=time.perf_counter() - began,
    )


@contextmanager
def _published(path: Path) -> Iterator[Path]:
    """A name beside the file, which becomes the file when all went well; it keeps the suffix."""
    half = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        yield half
        os.replace(half, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {fault_message(error) or error}") from None
    finally:
        half.unlink(missing_ok=True)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what exporters tell of themselves."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _write_program(program: ExportedProgram, path: Path, about: str) -> Run:
    torch.export.save(program, path, extra_files={f"{METADATA}.json": about})
    module = torch.export.load(path).module()

    def run(pictures: Pictures) -> dict[str, NDArray[Any]]:
        """What the file says of pictures, once it is read again."""
        with torch.no_grad():
            return {name: value.numpy() for name, value in module(torch.from_numpy(pictures)).items()}

    return run


def _write_onnx(program: ExportedProgram, path: Path, about: str) -> Run:
    onnx, runtime = (importlib.import_module(name) for name in ("onnx", "onnxruntime"))
    names = ["logits", "probabilities", "unknown", "unsure"]
    try:
        made = torch.onnx.export(
            program, dynamo=True, input_names=["pictures"], output_names=names, verbose=False
        )
        model = made.model_proto if made is not None else None
    except Exception as error:  # operations that ONNX has no word for, or not for these types
        raise UserError(
            f"this model cannot be written as ONNX ({type(error).__name__}: {first_line(error)}): "
            "export to .pt2."
        ) from None
    if model is None or model.ByteSize() > _MOST_ONNX:
        raise UserError("one ONNX file holds 2 GB at most, and this model is larger: export to a .pt2 file.")
    onnx.helper.set_model_props(model, {METADATA: about})
    onnx.save(model, path)
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # such as convolutions in float64, which it has not
        raise UserError(f"onnxruntime cannot run this model ({first_line(error)}): export to .pt2.") from None
    return lambda pictures: dict(zip(names, session.run(None, {"pictures": pictures}), strict=True))


WRITERS: dict[str, Callable[[ExportedProgram, Path, str], Run]] = {
    ".pt2": _write_program,
    ".onnx": _write_onnx,
}
"""By suffix: writes a program with its metadata, and reads it again."""


def largest_difference(graph: Graph, run: Run) -> float:
    """Between the probabilities of a graph and of the file that was made of it, on pictures of noise."""
    height, width, channels = graph.shape
    sizes = [(1, height, width), (2, height, width)]
    if not graph.fixed:
        sizes = [(1, height // 2 + 1, width), (2, height + 9, 2 * width)]
    draw, worst = np.random.default_rng(0), 0.0
    for shape in sizes:
        pictures = draw.integers(0, 256, (*shape, channels), dtype=np.uint8)
        with torch.no_grad():
            said = graph(torch.from_numpy(pictures))["probabilities"].numpy()
        apart = np.abs(run(pictures)["probabilities"] - said).max()
        worst = float(np.maximum(worst, apart))  # stays nan where it is
    return worst
