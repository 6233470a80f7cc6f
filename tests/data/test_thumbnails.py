"""Small copies of pictures: their size, their format, and nothing but pixels in them."""

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import thumbnails


def _noise(width, height):
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8))


def _flat(width, height):
    image = Image.new("RGB", (width, height), "navy")
    image.paste("yellow", (0, 0, width // 2, height // 2))
    return image


@pytest.mark.parametrize(
    ("before", "after"),
    [((640, 480), (64, 48)), ((480, 640), (48, 64)), ((1000, 10), (64, 1)), ((50, 20), (50, 20))],
)
def test_the_longer_side_has_at_most_so_many_pixels(tmp_path, before, after):
    _noise(*before).save(tmp_path / "a.png")
    copy = thumbnails.write(tmp_path / "a.png", tmp_path, "copy", 64)
    assert (copy.width, copy.height) == after
    with Image.open(tmp_path / copy.name) as image:
        assert image.size == after


def test_photographs_are_jpeg_and_drawings_png(tmp_path):
    for name, image, ending in (("a", _noise(100, 80), "jpg"), ("b", _flat(100, 80), "png")):
        image.save(tmp_path / f"{name}.bmp")
        copy = thumbnails.write(tmp_path / f"{name}.bmp", tmp_path, name, 80)
        assert copy.name == f"{name}.{ending}"
        with Image.open(tmp_path / copy.name) as found:
            assert found.format == {"jpg": "JPEG", "png": "PNG"}[ending]


def test_it_looks_like_the_picture(tmp_path):
    rng = np.random.default_rng(1)
    coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
    smooth = coarse.resize((400, 400), Image.Resampling.BICUBIC)
    smooth.save(tmp_path / "a.png")
    copy = thumbnails.write(tmp_path / "a.png", tmp_path, "copy", 100)
    with Image.open(tmp_path / copy.name) as image:
        found = np.asarray(image.convert("RGB"), float)
    blocks = np.asarray(smooth, float).reshape(100, 4, 100, 4, 3).mean((1, 3))
    assert np.abs(found - blocks).mean() < 3


def test_what_the_file_said_of_itself_is_left_behind(tmp_path):
    image = _noise(40, 30)
    exif = Image.Exif()
    exif[0x010E] = "a secret place"
    image.save(tmp_path / "a.jpg", exif=exif, comment=b"a secret word", icc_profile=b"secret icc")
    flat = _flat(40, 30)
    flat.save(tmp_path / "b.jpg", exif=exif, icc_profile=b"secret icc", quality=100)
    for name in "ab":
        copy = thumbnails.write(tmp_path / f"{name}.jpg", tmp_path, f"copy_{name}", 30)
        assert b"secret" not in (tmp_path / copy.name).read_bytes()


def test_pictures_that_were_made_ready_before(tmp_path):
    class Ready:
        size = 48

        def pixels(self, size):
            assert size == 48
            return np.full((48, 48, 3), 200, np.uint8)

    copy = thumbnails.write(Ready(), tmp_path, "copy", 24)
    assert (copy.width, copy.height) == (24, 24)


def test_mistakes(tmp_path):
    with pytest.raises(types.UserError, match="thumbnails of 0 pixels"):
        thumbnails.write(tmp_path / "a.png", tmp_path, "copy", 0)
    with pytest.raises(types.UserError, match="cannot decode"):
        thumbnails.write(tmp_path / "missing.png", tmp_path, "copy", 10)
