"""Pictures of a page: one small copy of each record, with progress."""

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.analysis.report import folder, pictures
from hnclip_jax.data import images
from tests.analysis.report import reading


@pytest.fixture
def draft(tmp_path):
    (tmp_path / "draft" / folder.PICTURES).mkdir(parents=True)
    return tmp_path / "draft"


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    paths = {}
    for number in (3, 41):
        paths[number] = tmp_path / f"{number}.png"
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(paths[number])
    return paths


def test_copies_by_the_number_of_the_record(draft, photos):
    calls = []
    copies = pictures.write(photos, draft, 40, progress=lambda *call: calls.append(call))
    assert {number: (one.width, one.height) for number, one in copies.items()} == {
        3: (40, 30),
        41: (40, 30),
    }
    assert calls == [(1, 2), (2, 2)]
    for one in copies.values():
        node = reading.read(pictures.image(one, 'a "kite"')).one("img")
        assert node.attributes["alt"] == 'a "kite"'
        assert (node.attributes["width"], node.attributes["height"]) == ("40", "30")
        with Image.open(draft / node.attributes["src"]) as image:
            assert image.size == (40, 30)


def test_a_picture_that_cannot_be_read_is_named(draft, photos):
    photos[41].write_bytes(b"no picture")
    with pytest.raises(types.UserError, match=r"cannot decode picture .*41\.png"):
        pictures.write(photos, draft, 40)


def test_files_become_pixels_as_the_options_say(draft, tmp_path):
    path = tmp_path / "clear.png"
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(path)
    (copy,) = pictures.write({0: path}, draft, 8, images.Options(background="red")).values()
    with Image.open(draft / folder.PICTURES / copy.name) as image:
        red, green, blue = np.asarray(image.convert("RGB"))[4, 4]
    assert red > 240
    assert max(green, blue) < 20
