"""How files become pixels: orientation, background, and the ways to name a picture."""

import pathlib
import pickle

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import blobs, images, pipeline
from tests.data import drawing

APPLY = images.Options(exif_orientation="apply")


def turned(orientation: int, kind: str = "PNG") -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    return drawing.file(drawing.noise(6, 4), kind, exif=exif, **options)


def upright(stored: np.ndarray, orientation: int) -> np.ndarray:
    """By the standard: where the stored first row and first column are in the upright picture."""
    return {
        1: stored,  # top, left
        2: stored[:, ::-1],  # top, right
        3: stored[::-1, ::-1],  # bottom, right
        4: stored[::-1],  # bottom, left
        5: stored.transpose(1, 0, 2),  # left, top
        6: stored.transpose(1, 0, 2)[:, ::-1],  # right, top
        7: stored.transpose(1, 0, 2)[::-1, ::-1],  # right, bottom
        8: stored.transpose(1, 0, 2)[::-1],  # left, bottom
    }[orientation]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_exif_orientation_is_ignored_unless_asked_for(orientation, kind):
    stored = np.asarray(drawing.noise(6, 4))
    content = turned(orientation, kind)
    np.testing.assert_array_equal(np.asarray(images.decode(content)), stored)
    np.testing.assert_array_equal(
        np.asarray(images.decode(content, APPLY)), upright(stored, orientation)
    )


def test_orientation_counts_before_the_resize():
    wide = images.load_image(turned(6), 4, APPLY)
    tall = Image.fromarray(upright(np.asarray(drawing.noise(6, 4)), 6))
    np.testing.assert_array_equal(wide, np.asarray(tall)[1:5])


def test_a_tiff_is_turned_once():
    # Pillow turns TIFF itself, so the reference code sees it upright as well.
    stored = upright(np.asarray(drawing.noise(6, 4)), 6)
    for options in (images.DEFAULT, APPLY):
        np.testing.assert_array_equal(np.asarray(images.decode(turned(6, "TIFF"), options)), stored)


@pytest.mark.parametrize("orientation", [0, 9, 300])
def test_an_orientation_that_does_not_exist_is_none(orientation):
    stored = np.asarray(drawing.noise(6, 4))
    np.testing.assert_array_equal(np.asarray(images.decode(turned(orientation), APPLY)), stored)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_does_not_lose_the_picture():
    content = drawing.file(drawing.noise(16, 16), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    plain = drawing.file(drawing.noise(16, 16), "JPEG")
    assert images.decode(content, APPLY).tobytes() == images.decode(plain).tobytes()


def _clear(mode: str, **options) -> bytes:
    return drawing.file(Image.new(mode, (1, 1)), "PNG", **options)


@pytest.mark.parametrize(
    "content",
    [_clear("RGBA"), _clear("LA"), _clear("P", transparency=0), _clear("I;16", transparency=0)],
    ids=["rgba", "grey alpha", "palette", "16 bit"],
)
@pytest.mark.parametrize(
    ("background", "expected"),
    [("white", [255, 255, 255]), ("#0a0B0c", [10, 11, 12]), ("black", [0, 0, 0])],
)
def test_the_background_of_transparent_pixels(content, background, expected):
    options = images.Options(background=background)
    assert np.asarray(images.decode(content, options)).tolist() == [[expected]]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("exif_orientation", "aply", "did you mean 'apply'?"),
        ("background", "wite", "'wite' is no colour"),
        ("background", "#ffffff80", "is no colour"),
        ("max_pixels", -1, "must be at least 0"),
    ],
)
def test_an_option_with_a_wrong_value(field, value, message):
    with pytest.raises(types.UserError) as caught:
        images.Options(**{field: value})
    assert message in str(caught.value)


class Ready:
    """A picture that was cropped before."""

    size = 4

    def pixels(self, size):
        assert size == self.size
        return np.full((size, size, 3), 7, np.uint8)


def test_every_way_to_name_a_picture(tmp_path):
    content = drawing.file(drawing.noise(6, 4), "PNG")
    path = tmp_path / "a b é.png"
    path.write_bytes(content)
    (tmp_path / "shard").write_bytes(b"12345" + content + b"678")
    blob = blobs.Blob(str(tmp_path / "shard"), 5, len(content), "a.png")
    expected = np.asarray(drawing.noise(6, 4))[:, 1:5]
    for reference in (path, str(path), content, blob, pickle.loads(pickle.dumps(blob))):
        np.testing.assert_array_equal(images.load_image(reference, 4), expected)
    assert (images.load_image(Ready(), 4) == 7).all()


def test_a_stored_picture_that_is_broken_is_named(tmp_path):
    (tmp_path / "shard.tar").write_bytes(b"12345")
    blob = blobs.Blob(str(tmp_path / "shard.tar"), 2, 3, "a.jpg")
    with pytest.raises(types.UserError, match=r"picture a\.jpg in shard\.tar: the content is no"):
        images.load_image(blob)
    gone = blobs.Blob(str(tmp_path / "gone.tar"), 2, 3, "a.jpg")
    with pytest.raises(types.UserError, match=r"a\.jpg in gone\.tar: No such file"):
        images.load_image(gone)


def test_the_pipeline_passes_the_options_on(tmp_path):
    path = pathlib.Path(tmp_path) / "a.png"
    path.write_bytes(turned(6))
    turned_row = pipeline.LoadImage([str(path)], 4, APPLY)(0)["image"]
    np.testing.assert_array_equal(turned_row, images.load_image(path, 4, APPLY))
    plain = pipeline.LoadImage([str(path)], 4)(0)["image"]
    np.testing.assert_array_equal(plain, images.load_image(path, 4))
    assert (plain != turned_row).any()
