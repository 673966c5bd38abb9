"""Labelling picture files: what ``innerloop predict`` does with a predictor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from csv import writer as table_writer
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.classify.features.opening import open_backbone
from innerloop.classify.features.progress import TimeLeft
from innerloop.classify.predicting.adapted import Adapted
from innerloop.classify.predicting.files import Saved, write_predictor
from innerloop.classify.predicting.loading import load_model
from innerloop.classify.predicting.page import write_labelled_page
from innerloop.classify.predicting.predictor import of_backbone
from innerloop.classify.predicting.support import (
    adapt_to_folder,
    learned_already,
    list_pictures,
    support_options,
)
from innerloop.classify.predicting.told import (
    LabelledPicture,
    LearnedTold,
    PredictResult,
    learned_told,
    network_told,
    rows_told,
)
from innerloop.classify.predicting.truth import check_truth, truth_of
from innerloop.classify.takeaway.about import about_model
from innerloop.classify.takeaway.card import card, card_file
from innerloop.classify.takeaway.files import refuse_to_overwrite
from innerloop.core.errors import Problems
from innerloop.core.files import write_text_atomic
from innerloop.core.telling import table_cell
from innerloop.data.folder import FolderOptions, examples_in
from innerloop.data.folder_look import Bad
from innerloop.data.layouts.layout import silent
from innerloop.experiment.classifier_recipe import backbone_recipe
from innerloop.experiment.model_place import model_file
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.experiment.words import recipe_words
from innerloop.runs.pages import check_page

BACKBONE = "efficientnet-lite0"
"""Where nobody names a network."""

Say = Callable[[str], None]


class Wanted(NamedTuple):
    """Files that are to be written."""

    save: Path | None = None
    csv: Path | None = None
    page: Path | None = None

    def check(self) -> None:
        """Nothing is overwritten; told before anything is computed."""
        if self.save is not None:
            file = model_file(self.save)
            refuse_to_overwrite(file, card_file(file))
        refuse_to_overwrite(self.csv, self.page)
        if self.page is not None:
            check_page(self.page)


@recipe_words()
def predict_pictures(
    model: str | Path | None,
    support: Path | None,
    queries: Sequence[Path],
    overrides: Sequence[str] = (),
    unsure_below: float | None = None,
    *,
    trust: bool = False,
    backbone: str | None = None,
    wanted: Wanted | None = None,
    truth: bool = False,
    command: str = "",
    say: Say | None = None,
) -> PredictResult:
    """Adapts a network to the classes of a folder and labels pictures.

    Args:
        model: a run on pictures, or a file that ``FewShotClassifier.save`` wrote; None for a backbone.
        support: a folder with one folder of labelled pictures per class; ``None`` for the classes that a
            saved classifier has learned already.
        queries: picture files, or folders of them.
        overrides: ``key=value`` settings for the adaptation, such as ``inner.test_steps=10``.
        unsure_below: predictions less probable than this are marked unsure; by default what a saved
            classifier says, else 0.5.
        trust: whether code that the model's recipe names may be imported.
        backbone: the name of a pretrained network; ``efficientnet-lite0`` if there is no model either.
        wanted: files to write.
        truth: whether the pictures' folders name their classes, so that labels can be compared with them.
        command: as it was typed, for the card and the page.
        say: told how far it is, where it takes long.
    """
    began = time.perf_counter()
    wanted = wanted or Wanted()
    wanted.check()
    problems = Problems()
    if model is not None:
        loaded = load_model(model, overrides, trust=trust)
    else:
        with problems.collect():
            loaded = _opened(backbone or BACKBONE, overrides)
    with problems.collect():
        options = support_options(overrides)
        files, skipped = _files(queries, support, options, all_of_them=bool(problems))
    problems.refuse()
    progress = silent if say is None else TimeLeft(say)
    if support is None:
        adapted = learned_already(loaded, overrides)
    else:
        adapted = adapt_to_folder(loaded.predictor, support, progress, options)
    if truth:
        check_truth(files, adapted.names)
    examples = {} if support is None else examples_in(support, options)
    limit = loaded.unsure_below if unsure_below is None else unsure_below
    made = adapted.predict(list(files), limit, progress)
    rows = rows_told(adapted, files, made)
    learned = learned_told(adapted, [file for paths in examples.values() for file in paths])
    told = PredictResult(network_told(adapted, model), learned, rows, skipped, 0.0)
    if truth:
        told = told._replace(truth=truth_of(files, made.labels, made.unknown, adapted.names))
    if wanted.save is not None:
        arguments = {**loaded.arguments, "unsure_below": limit}
        saved = _saved(wanted.save, adapted, arguments, told.learned, command)
        told = told._replace(saved=saved, card=card_file(saved))
    if wanted.csv is not None:
        told = told._replace(csv=_write_csv(wanted.csv, rows))
    told = told._replace(seconds=time.perf_counter() - began)
    if wanted.page is not None:
        page = write_labelled_page(wanted.page, adapted, told.as_dict(), examples, command)
        told = told._replace(page=page)
    return told


def _files(
    queries: Sequence[Path], support: Path | None, options: FolderOptions, *, all_of_them: bool
) -> tuple[list[Path], Bad]:
    """Pictures to label, and those left out; if some are bad, the message names bad examples too."""
    problems = Problems()
    pictures: tuple[list[Path], Bad] = [], []
    with problems.collect():
        pictures = list_pictures(queries, options.on_bad)
    if (problems or all_of_them) and support is not None:
        with problems.collect():
            examples_in(support, options)
    problems.refuse()
    return pictures


def _opened(backbone: str, overrides: Sequence[str]) -> Saved:
    recipe = make_recipe(backbone_recipe(backbone, {"head": "logistic"}).model_dump(), overrides)
    return Saved(of_backbone(open_backbone(backbone), recipe))


def _saved(
    path: Path, adapted: Adapted, arguments: Mapping[str, Any], learned: LearnedTold, command: str
) -> Path:
    """Writes what was learned, and a card beside it."""
    file = write_predictor(path, adapted.predictor, adapted, arguments)
    about = about_model(adapted, arguments["unsure_below"], learned)
    write_text_atomic(card_file(file), card(about, file.name, command))
    return file


def _write_csv(path: Path, rows: Sequence[LabelledPicture]) -> Path:
    columns = LabelledPicture._fields[:-1]  # all but the probabilities of the other classes
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = table_writer(file)
        writer.writerow(columns)
        writer.writerows(map(table_cell, row[:-1]) for row in rows)
    return path
