"""Pictures that cannot be used: one line that names the file and says why."""

import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images
from tests.data import drawing


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no picture format"),
        (b"<html>404</html>", "no picture format"),
        (drawing.file(drawing.noise(64, 64), "JPEG")[:900], "truncated"),
        (drawing.file(drawing.noise(64, 64), "PNG")[:900], "truncated"),
        (
            drawing.file(drawing.noise(64, 64), "PNG")[:200] + bytes(12000),
            "broken|truncated|data stream",
        ),
        (drawing.file(drawing.noise(64, 64), "GIF")[:900], "truncated"),
    ],
    ids=["empty", "web page", "cut jpeg", "cut png", "broken png", "cut gif"],
)
def test_undecodable(content, reason, tmp_path):
    path = tmp_path / "name.jpg"
    path.write_bytes(content)
    with pytest.raises(types.UserError, match=rf"name\.jpg: .*({reason})") as caught:
        images.load_image(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(types.UserError, match=f"picture of {len(content)} bytes: .*({reason})"):
        images.load_image(content)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(types.UserError, match=r"none\.png: No such file"):
        images.decode(tmp_path / "none.png")
    with pytest.raises(types.UserError, match="Is a directory"):
        images.decode(tmp_path)


@pytest.mark.parametrize("limit", ["ours", "the option", "Pillow's does not count"])
def test_huge_picture_is_refused(limit, monkeypatch):
    options = images.Options(max_pixels=99)
    if limit == "ours":
        monkeypatch.setattr(images, "MAX_PIXELS", 99)
        options = images.Options()
    elif limit == "Pillow's does not count":
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    images.decode(drawing.file(drawing.noise(9, 11), "PNG"), options)
    for side in (10, 15):
        with pytest.raises(
            types.UserError,
            match=r"of \d+ bytes: .*(than 99 pixels|pixels are more than 99), .*max_pixels",
        ):
            images.decode(drawing.file(drawing.noise(side, side), "PNG"), options)


def test_the_limit_of_pillow_is_as_it_was():
    before = Image.MAX_IMAGE_PIXELS
    images.decode(drawing.file(drawing.noise(2, 2), "PNG"), images.Options(max_pixels=5))
    with pytest.raises(types.UserError):
        images.decode(drawing.file(drawing.noise(9, 9), "PNG"), images.Options(max_pixels=5))
    assert before == Image.MAX_IMAGE_PIXELS


def test_needle_that_would_grow_huge_is_refused(tmp_path):
    path = tmp_path / "needle.png"
    Image.new("RGB", (1, 4000)).save(path)
    with pytest.raises(types.UserError, match=r"needle\.png: 224 x 896000 pixels"):
        images.load_image(path)
