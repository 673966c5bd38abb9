"""What pictures go through before a pretrained network sees them: stated, kept, and done as stated."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from innerloop.core.errors import UserError
from innerloop.core.preprocessing import Preprocessing, check_preprocessing, preprocessing_from
from innerloop.data import pictures
from innerloop.data.pictures import BadPictureError, decode, fit_picture, middle, prepare, read_bytes


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(60, 40), (41, 63), (50, 50)])
def test_every_way_to_a_size_is_what_its_words_say(width: int, height: int) -> None:
    picture = noise(width, height)
    bicubic = Image.Resampling.BICUBIC
    exact = prepare(picture, Preprocessing((24, 32)))
    np.testing.assert_array_equal(exact, np.asarray(picture.resize((32, 24), bicubic)))
    short = prepare(picture, Preprocessing((30, 30), "short", crop=(20, 20)))
    scale = 30 / min(width, height)
    resized = picture.resize((int(width * scale + 1e-9), int(height * scale + 1e-9)), bicubic)
    left, top = (resized.width - 20) // 2, (resized.height - 20) // 2
    np.testing.assert_array_equal(short, np.asarray(resized)[top : top + 20, left : left + 20])
    share = prepare(picture, Preprocessing((16, 16), "share", share=0.875))
    side = int(0.875 * min(width, height))
    left, top = (width - side + 1) // 2, (height - side + 1) // 2
    cut = picture.crop((left, top, left + side, top + side))
    np.testing.assert_array_equal(share, np.asarray(cut.resize((16, 16), bicubic)))
    fill = prepare(picture, Preprocessing((16, 16), "fill", resample="lanczos"))
    np.testing.assert_array_equal(fill, fit_picture(picture, 16, "rgb"))  # as folders of pictures are stored


def test_grey_and_zeros_beyond_the_border() -> None:
    grey = prepare(noise(10, 10), Preprocessing((8, 8), colour="grey"))
    assert grey.shape == (8, 8, 1)
    small = np.arange(1, 7, dtype=np.uint8).reshape(2, 3, 1)
    padded = middle(small, (5, 4))
    assert padded.shape == (5, 4, 1)
    assert padded[:, :, 0].tolist() == [[0] * 4, [0] * 4, [0, 1, 2, 3], [0, 4, 5, 6], [0] * 4]


def test_it_is_kept_as_json_and_told_in_words() -> None:
    how = Preprocessing((256, 256), "short", crop=(224, 224), mean=(0.485, 0.456, 0.406), std=(0.2, 0.2, 0.2))
    assert preprocessing_from(how.as_dict()) == how
    assert "shorter side resized to 256 (bicubic), the middle 224×224, minus (0.485" in str(how)
    mean, std = how.scale()
    assert (mean, std) == (list(how.mean or ()), list(how.std or ()))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": (0, 8)}, "size="),
        ({"resize": "short"}, "give crop="),
        ({"crop": (8, -1)}, "crop="),
        ({"resample": "sinc"}, "unknown"),
        ({"share": 1.5}, "share=1.5"),
        ({"mean": (0.5,)}, "3 finite"),
        ({"mean": (float("nan"),) * 3}, "3 finite"),
        ({"std": (0.0, 1.0, 1.0)}, "above 0"),
        ({"factor": 0.0}, "above 0"),
        ({"colour": "cmyk"}, "'rgb' or 'grey'"),
    ],
)
def test_what_cannot_be_done_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_preprocessing(Preprocessing((8, 8))._replace(**wrong))


def test_a_damaged_record_is_one_sentence() -> None:
    for record in ({"size": 3}, {"nothing": 1}, {"size": ["a", "b"]}, {"size": [8, 8], "std": ["x"] * 3}):
        with pytest.raises(UserError):
            preprocessing_from(record)


def test_giants_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = png(noise(30, 20))
    assert decode(data).size == (30, 20)
    monkeypatch.setattr("innerloop.data.pictures.MOST_PIXELS", 599)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(BadPictureError, match="30×20 pixels, more than"):
        decode(data)
    monkeypatch.undo()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BadPictureError, match="make it smaller"):
        decode(data)
    file = tmp_path / "a.png"
    file.write_bytes(data)
    monkeypatch.setattr(pictures, "MOST_BYTES", len(data) - 1)
    with pytest.raises(BadPictureError, match="more than"):
        read_bytes(file)


@pytest.mark.parametrize("data", [b"", b"no picture", png(noise(40, 40))[:200]])
def test_damaged_bytes_are_told(data: bytes) -> None:
    with pytest.raises(BadPictureError):
        decode(data)


def test_exif_turns_a_picture() -> None:
    picture = noise(30, 20)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    assert decode(file.getvalue()).size == (20, 30)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(file.getvalue())))
    assert decode(file.getvalue()).tobytes() == expected.tobytes()
