"""How long shipped recipes take: what ``innerloop ls`` shows, in ``minutes.json`` beside the recipes.

    python -m innerloop_studies.measurements.recipes [NAME ...]

A step of every recipe is measured as ``innerloop train`` measures it, and taken as often as the recipe says.
Validation and tests come on top. Needs ``omniglot``, ``cifar-fs``, ``fc100`` and ``mini-imagenet``; what is
trained on other pictures of 84×84 is measured on those of mini-ImageNet. Recipes for your own pictures are
left out, as are those that train nothing or need a teacher. About half an hour on two idle cores.
"""

import json
import sys
from pathlib import Path

import torch

from innerloop.experiment.parts import build
from innerloop.experiment.plan import measured_plan
from innerloop.experiment.recipe import library
from innerloop_studies.bench.worker import cpu_name

FILE = Path(library.__file__).parent / library.MINUTES
ALIKE = {"tiered-imagenet": "mini-imagenet", "cub": "mini-imagenet"}
"""Pictures of the same size, in place of data that are not available."""


def main(names: list[str]) -> None:
    """Measures the named recipes, or all; keeps the file after each."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {"minutes": {}}
    for recipe in library.shipped_recipes():
        if (names and recipe.name not in names) or recipe.dataset == "your own pictures":
            continue
        if recipe.method == "pretrained" or "distilled" in recipe.name:
            continue
        alike = [f"data.name={ALIKE[recipe.dataset]}"] if recipe.dataset in ALIKE else []
        parts = build(library.load_recipe(recipe.name, alike))
        measured = measured_plan(parts, lambda _: None)
        minutes = measured.milliseconds[measured.plan.label] / 60_000 * parts.recipe.outer.steps
        kept["minutes"][recipe.name] = float(f"{minutes:.3g}")
        kept |= {"machine": cpu_name(), "torch": torch.__version__}
        kept["minutes"] = dict(sorted(kept["minutes"].items()))
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
        sys.stdout.write(f"{recipe.name}: {kept['minutes'][recipe.name]} min\n")


if __name__ == "__main__":
    main(sys.argv[1:])
