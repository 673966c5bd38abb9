"""What ``innerloop export`` does with a saved model, or with a run and a folder of examples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from innerloop.classify.features.progress import TimeLeft
from innerloop.classify.predicting.loading import load_model
from innerloop.classify.predicting.support import adapt_to_folder, learned_already, support_options
from innerloop.classify.predicting.told import NetworkTold, network_told
from innerloop.classify.takeaway.about import About
from innerloop.classify.takeaway.files import check_target, export_adapted
from innerloop.classify.takeaway.usage import left_to_the_caller
from innerloop.data.layouts.layout import silent
from innerloop.experiment.words import recipe_words


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
    network: NetworkTold
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
    loaded = load_model(model, overrides, trust=trust)
    if support is None:
        adapted = learned_already(loaded, overrides)
    else:
        progress = silent if say is None else TimeLeft(say)
        adapted = adapt_to_folder(loaded.predictor, support, progress, support_options(overrides))
    limit = loaded.unsure_below if unsure_below is None else unsure_below
    made = export_adapted(adapted, out, unsure_below=limit, fixed=fixed, command=command)
    return ExportResult(
        file=made.file,
        card=made.card,
        size=made.file.stat().st_size,
        network=network_told(adapted, model),
        about=made.about,
        caller=left_to_the_caller(made.about["input"]),
        difference=made.difference,
        seconds=time.perf_counter() - began,
    )
