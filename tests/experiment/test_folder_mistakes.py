"""Folders of examples with something wrong: for `predict --support` and `FewShotClassifier.fit` on files."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from test_folder_training import WRONG, animals, draw

from innerloop.classify import Backbone, FewShotClassifier
from innerloop.classify.predict import predict_pictures
from innerloop.classify.results import PredictResult
from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing
from support.picture_runs import random_backbone

pytestmark = pytest.mark.usefixtures("own_folder", "own_data")


@pytest.fixture
def backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backbone:
    """A Conv4 of random weights, as if somebody had trained it; the command finds it."""
    how = Preprocessing((28, 28), "fill", mean=(0.1,), std=(0.3,), colour="grey")
    net = random_backbone(tmp_path, how, filters=2)
    monkeypatch.setattr("innerloop.classify.predict.open_backbone", lambda _: net)
    return net


def labelled(*settings: str) -> PredictResult:
    return predict_pictures(None, Path("zoo"), [Path("new.png")], settings, backbone="conv4")


@pytest.mark.parametrize("what", WRONG)
def test_examples_with_something_wrong_get_one_sentence(what: str, backbone: Backbone) -> None:
    make, words, fix = WRONG[what]
    root = draw(Path("zoo"), animals(3, 3))
    draw(Path("."), {"more": 1})
    Path("more/0.png").rename("new.png")
    make(root)
    with pytest.raises(UserError) as caught:
        labelled()
    (line,) = str(caught.value).splitlines()
    assert words in line
    assert fix in line
    if fix.startswith("data."):
        result = labelled(fix if "skip" in fix else "data.leave_out=1")
        assert result.learned.classes == ["animal00", "animal01", "animal02"]


@pytest.mark.parametrize(
    ("counts", "words"),
    [({"owl": 3}, "at least two classes"), ({}, "is not a folder")],
)
def test_too_few_classes(counts: dict[str, int], words: str, backbone: Backbone) -> None:
    draw(Path("zoo"), counts)
    Image.new("L", (9, 9)).save("new.png")
    with pytest.raises(UserError, match=words):
        labelled()


def test_files_given_to_the_classifier(backbone: Backbone) -> None:
    root = draw(Path("zoo"), animals(2, 3))
    files = sorted(root.glob("*/*.png"))
    model, labels = FewShotClassifier(backbone, verbose=False), [file.parent.name for file in files]
    for what in ("a video", "a giant", "a file that cannot be read"):
        WRONG[what][0](root)
    bad = sorted(path for path in root.glob("animal00/*") if path not in files)
    with pytest.raises(UserError) as caught:
        model.fit([*files, *bad, root], [*labels, *("animal00",) * 4])
    (line,) = str(caught.value).splitlines()
    for words in ("clip.mp4 (it is a video", "giant.png (it has", "bad.png (", "zoo (it is a folder)"):
        assert words in line
    WRONG["a picture in two classes"][0](root)
    with pytest.raises(UserError, match=r"given with different labels .*animal00/0.png and .*copy.png"):
        model.fit([*map(str, files), "zoo/animal01/copy.png"], [*labels, "animal01"])
    with pytest.raises(UserError, match="at least two classes"):
        model.fit(files[:3], labels[:3])
    assert model.fit(files, labels).classes_.tolist() == ["animal00", "animal01"]


def test_pictures_to_label_that_cannot_be_read(backbone: Backbone) -> None:
    root = draw(Path("zoo"), animals(2, 2))
    draw(Path("new"), {"some": 2})
    (Path("new") / "clip.mov").write_bytes(b"video")
    (Path("new") / "some" / "bad.jpg").write_bytes(b"no picture")

    def label(*settings: str, more: tuple[Path, ...] = ()) -> PredictResult:
        return predict_pictures(None, root, [Path("new"), *more], settings, backbone="conv4")

    (root / "eel").mkdir()
    with pytest.raises(UserError) as caught:
        label(more=(Path("nowhere.png"), root / "eel"))
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    for line, words in zip(
        lines, ("no picture 'nowhere", "has no pictures", "2 files", "'eel' (0)"), strict=True
    ):
        assert words in line
    assert "clip.mov (it is a video" in lines[2]
    made = label("data.on_bad=skip", "data.leave_out=1")
    assert [row.file.name for row in made.predictions] == ["0.png", "1.png"]
    assert [Path(name).name for name, _ in made.skipped] == ["clip.mov", "bad.jpg"]
