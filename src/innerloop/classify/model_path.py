"""Which run or file is meant by what a user typed. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from innerloop.core.errors import UserError
from innerloop.core.paths import user_path
from innerloop.runs.directory import find_run, is_run

SUFFIX = ".safetensors"


def model_file(path: Path) -> Path:
    """The path with the suffix that model files have."""
    return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)


def find_model(text: str | Path) -> Path:
    """The run or the model file that ``text`` names: a directory is a run, a file a saved model."""
    # what ends in .safetensors is a file; else it is a run's path, `last`, a file without its suffix, or the
    # beginning of a run's name
    path = user_path(text)
    if path.suffix == SUFFIX and not is_run(path):
        if not path.is_file():
            raise UserError(f"there is no model file {path}: FewShotClassifier.save writes one.")
        return path
    named = bool(path.name) and str(text) != "last"
    if named and not is_run(path):
        file = model_file(path)
        if file.is_file():
            return file
    try:
        return find_run(str(text))
    except UserError as error:
        if path.is_file():
            raise UserError(
                f"{path} is neither a run's directory nor a {SUFFIX} file that FewShotClassifier.save wrote."
            ) from None
        raise UserError(
            f"there is no model file {model_file(path)}, and {error}" if named else str(error)
        ) from None
