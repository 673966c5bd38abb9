"""Labelling picture files: what ``innerloop predict`` does with a predictor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from csv import writer as table_writer
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from innerloop.classify.backbones import BACKBONE, open_backbone
from innerloop.classify.card import card, card_file, refuse_to_overwrite
from innerloop.classify.files import load_model, write_predictor
from innerloop.classify.heads import head_settings
from innerloop.classify.model_path import model_file
from innerloop.classify.predictor import Predictor, pretrained_predictor
from innerloop.classify.results import (
    ClassesSummary,
    LabelledPicture,
    PredictResult,
    about_model,
    check_truth,
    label_rows,
    summarise_classes,
    summarise_network,
    truth_of,
)
from innerloop.classify.sureness import Mistake, confusion_table, mistakes_in
from innerloop.core.errors import Problems, UserError
from innerloop.core.files import write_text_atomic
from innerloop.core.formatting import table_cell
from innerloop.data.folder import Bad, FolderOptions, OnBad, check_folder, examples_in, read_heads, unreadable
from innerloop.data.opening import open_source
from innerloop.data.pictures import Progress, is_picture, is_taken_for_picture, silent
from innerloop.data.source import labels
from innerloop.experiment.messages import recipe_words
from innerloop.experiment.recipe.settings import make_recipe
from innerloop.report.prediction_page import Class, Example, labelled_page, least_sure_first, thumbnails
from innerloop.report.text import percent
from innerloop.runs.manifest import now, version_of
from innerloop.runs.pages import check_page
from innerloop.runs.progress import TimeLeft

Say = Callable[[str], None]


class OutputFiles(NamedTuple):
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
    wanted: OutputFiles | None = None,
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
    wanted = wanted or OutputFiles()
    wanted.check()
    problems = Problems()
    if model is not None:
        predictor = load_model(model, overrides, trust=trust)
    else:
        with problems.collect():
            head = head_settings({"head": "logistic"}, overrides)
            predictor = pretrained_predictor(open_backbone(backbone or BACKBONE), head)
    with problems.collect():
        options = support_options(overrides)
        files, skipped = _files(queries, support, options, all_of_them=bool(problems))
    problems.refuse()
    progress = silent if say is None else TimeLeft(say)
    if support is None:
        refuse_late_settings(predictor, overrides)
    else:
        predictor = fit_folder(predictor, support, progress, options)
    names = predictor.learned.names
    if truth:
        check_truth(files, names)
    examples = {} if support is None else examples_in(support, options)
    limit = predictor.unsure_below if unsure_below is None else unsure_below
    made = predictor.predict(list(files), limit, progress)
    rows = label_rows(names, files, made)
    learned = summarise_classes(predictor, [file for paths in examples.values() for file in paths])
    result = PredictResult(summarise_network(predictor, model), learned, rows, skipped, 0.0)
    if truth:
        result = result._replace(truth=truth_of(files, made.labels, made.unknown, names))
    if wanted.save is not None:
        saved = _save(wanted.save, predictor, limit, learned, command)
        result = result._replace(saved=saved, card=card_file(saved))
    if wanted.csv is not None:
        result = result._replace(csv=_write_csv(wanted.csv, rows))
    result = result._replace(seconds=time.perf_counter() - began)
    if wanted.page is not None:
        page = write_labelled_page(wanted.page, predictor, result.as_dict(), examples, command)
        result = result._replace(page=page)
    return result


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


def _save(path: Path, predictor: Predictor, limit: float, learned: ClassesSummary, command: str) -> Path:
    """Writes what was learned, and a card beside it."""
    file = write_predictor(path, predictor, {**predictor.arguments, "unsure_below": limit})
    about = about_model(predictor, limit, learned)
    write_text_atomic(card_file(file), card(about, file.name, command))
    return file


def _write_csv(path: Path, rows: Sequence[LabelledPicture]) -> Path:
    columns = LabelledPicture._fields[:-1]  # all but the probabilities of the other classes
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = table_writer(file)
        writer.writerow(columns)
        writer.writerows(map(table_cell, row[:-1]) for row in rows)
    return path


EXAMPLES = FolderOptions(min_images=1)  # how a folder of examples is read: one is enough to learn from


def support_options(overrides: Sequence[str]) -> FolderOptions:
    """How a folder of examples is read, by settings that were typed; those of a training do not count."""
    given = [item for item in overrides if item.startswith(("data.on_bad=", "data.leave_out="))]
    data = make_recipe({"tasks": {"family": "few-shot"}}, given).data
    return EXAMPLES._replace(on_bad=data.on_bad, leave_out=data.leave_out)


def fit_folder(
    predictor: Predictor, folder: Path, progress: Progress = silent, options: FolderOptions = EXAMPLES
) -> Predictor:
    """Learns the classes of a folder with one folder of pictures per class."""
    if predictor.recipe is None:
        examples = examples_in(folder, options)
        files = [file for paths in examples.values() for file in paths]
        known = [name for name, paths in examples.items() for _ in paths]
        return predictor.fit(files, known, list(examples), progress=progress)
    how = predictor.backbone.preprocessing
    source = open_source(
        check_folder(folder),
        size=how.shape[0],
        colour=how.colour,
        splits="all",
        on_bad=options.on_bad,
        min_images=options.min_images,
        leave_out=options.leave_out,
    )
    names = list(source.class_names)
    return predictor.fit(np.asarray(source.images), [names[c] for c in labels(source)], names)


def list_pictures(paths: Sequence[Path], on_bad: OnBad = "refuse") -> tuple[list[Path], Bad]:
    """Files as given, and the pictures in folders, sorted; and what is left out, each with the reason."""
    problems = Problems()
    files: list[Path] = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if _is_meant(p)) if path.is_dir() else [path]
        if not inside:
            problems.add(f"{path} has no pictures in it.")
        elif not path.exists():
            problems.add(f"there is no {'picture' if path.suffix else 'folder'} '{path}'.")
        else:
            files += inside
    if not paths:
        problems.add("give at least one picture to label.")
    heads, bad = read_heads(Path(), [str(file) for file in files], on_bad)
    good = [file for file in files if str(file) in heads]
    if bad and (on_bad == "refuse" or not good):
        with problems.collect():
            raise unreadable(bad)
    problems.refuse()
    return good, bad


def _is_meant(path: Path) -> bool:
    return path.is_file() and (is_picture(path.name) or is_taken_for_picture(path.name))


def refuse_late_settings(predictor: Predictor, overrides: Sequence[str]) -> None:
    """Refuses settings for classes that a saved model has learned already."""
    late = [item for item in overrides if not item.startswith("data.on_bad=")]
    if predictor.classes is not None and late:
        raise UserError(
            f"{predictor.source} has learned its classes already, so {late[0]} would change "
            "nothing: leave it out, or add --support DIR to learn classes with it."
        )


MOST_PICTURES = 400
MOST_EXAMPLES = 300  # shown on a page, at most; where classes are many, some examples of each
ROOM = 5_000_000  # characters for the pictures, and half as many for the examples: the page stays below 8 MB


def write_labelled_page(
    path: Path,
    predictor: Predictor,
    told: Mapping[str, Any],
    examples: Mapping[str, Sequence[Path]],
    command: str = "",
) -> Path:
    """Writes the page."""
    held_out, names = predictor.hold_out(), predictor.learned.names
    wrong = {} if held_out is None else mistakes_in(held_out)
    table = None if held_out is None else confusion_table(held_out, len(names)).tolist()
    rows = least_sure_first(told["predictions"])[:MOST_PICTURES]
    pictures = thumbnails([Path(row["file"]) for row in rows], ROOM)
    classes = _classes(examples, wrong, names)
    write_text_atomic(path, labelled_page(told, pictures, classes, table, _facts(predictor, told, command)))
    return path


def _classes(
    examples: Mapping[str, Sequence[Path]], wrong: Mapping[int, Mistake], names: Sequence[Any]
) -> list[Class]:
    """Some examples of each class, those that were labelled wrong when left out before the others."""
    each = max(1, MOST_EXAMPLES // max(1, len(examples)))
    chosen: list[tuple[str, int, list[tuple[Path, str]]]] = []
    first = 0
    for name, files in examples.items():
        known = [(file, _remark(wrong.get(first + i), names)) for i, file in enumerate(files)]
        chosen.append((name, len(files), sorted(known, key=lambda item: not item[1])[:each]))
        first += len(files)
    small = iter(thumbnails([file for _, _, known in chosen for file, _ in known], ROOM // 2))
    return [
        Class(name, count, [Example(str(file), text, words) for (file, words), text in zip(known, small)])  # noqa: B905 (small ends where the room does)
        for name, count, known in chosen
    ]


def _remark(mistake: Mistake | None, names: Sequence[Any]) -> str:
    if mistake is None:
        return ""
    return f"taken for {names[mistake.said]}, right in {percent(mistake.right)}"


def _facts(predictor: Predictor, told: Mapping[str, Any], command: str) -> list[tuple[str, str]]:
    sure = predictor.learned.sureness
    facts = [("command", command or "from Python"), ("when", now()), ("took", f"{told['seconds']:.1f} s")]
    if predictor.recipe is None:
        named = predictor.backbone
        facts += [("backbone", named.name), ("its weights", named.weights), ("their licence", named.licence)]
    else:
        facts += [("network", predictor.recipe.model.kind), ("of", predictor.source)]
    facts += [("method", told["method"]), ("norm policy", told["norm"])]
    if sure is not None and sure.expected is not None:
        facts.append(("temperature", f"{sure.temperature:.4g}, fitted to examples left out"))
    if sure is not None and sure.novelty is not None:
        novelty = sure.novelty
        facts.append(
            ("called unknown", f"at most {percent(novelty.false_alarms)} of pictures like the examples")
        )
    return [*facts, ("torch", str(version_of("torch")))]
