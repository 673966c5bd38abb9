"""Every script of the gallery runs as it is, and the page shows what it prints.

To rewrite the page and its pictures, for all scripts or for some:
PYTHONPATH=tests python tests/whole/test_gallery.py [NAME ...]
"""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from PIL import Image

from support import gallery

NAMES = [name for names in gallery.ORDER.values() for name in names]


def test_the_page_shows_every_script_as_it_is():
    assert sorted(NAMES) == sorted(path.stem for path in gallery.FOLDER.glob("*.py"))
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page(gallery.shown_outputs())


@pytest.fixture(scope="module")
def warm():
    with gallery.warm_process() as process:
        yield process


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_in(3)
def test_a_script_prints_what_the_page_shows(name, warm, tmp_path):
    shown, printed = gallery.shown_outputs()[name], gallery.run_script(warm, name, tmp_path)
    assert gallery.same_output(shown, printed), f"shown:\n{shown}\nprinted:\n{printed}"
    kept = gallery.IMAGES / f"gallery-{name}.png"
    assert (tmp_path / f"{name}.png").is_file() == kept.is_file()
    if kept.is_file():
        with Image.open(kept) as picture, Image.open(tmp_path / f"{name}.png") as drawn:
            assert drawn.size == picture.size
            assert len(drawn.convert("L").getcolors()) > 10  # something is drawn on it


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("mse 0.52 at 10 steps", "mse 0.53 at 10 steps", True),
        ("mse 0.52", "mse 0.56", False),
        ("87 % right", "88 % right", True),
        ("87 % right", "92 % right", False),
        ("ridge is better", "maml is better", False),
        ("1.2e-05", "1.3e-05", True),
        ("width 1024: 13 %", "width 512: 13 %", False),
    ],
)
def test_numbers_may_differ_by_rounding_and_words_may_not(shown, printed, same):
    assert gallery.same_output(shown, printed) is same


def _rewrite(names: list[str]) -> None:
    outputs = gallery.shown_outputs() if gallery.PAGE.is_file() else {}
    with gallery.warm_process() as warm:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                outputs[name] = gallery.run_script(warm, name, Path(folder))
                if (Path(folder) / f"{name}.png").is_file():
                    shutil.copy(Path(folder) / f"{name}.png", gallery.IMAGES / f"gallery-{name}.png")
    gallery.PAGE.write_text(gallery.page(outputs), encoding="utf-8")


if __name__ == "__main__":
    _rewrite(sys.argv[1:] or NAMES)
