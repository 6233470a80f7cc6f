"""What a picture file is besides its pixels."""

import numpy as np
import pytest
from PIL import Image

from hnclip_jax.data import blobs, images
from hnclip_jax.data.checks import kinds
from tests.data import drawing


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


RGB, CLEAR = drawing.noise(4, 3), Image.new("RGBA", (4, 3))
SIXTEEN = Image.fromarray(np.full((3, 4), 300, np.uint16))


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (drawing.file(RGB, "PNG"), "a.png", ()),
        (drawing.file(RGB, "JPEG"), "a.JPG", ()),
        (drawing.file(RGB, "JPEG"), "a.jpeg", ()),
        (drawing.file(RGB, "PNG"), "no ending", ()),
        (drawing.file(RGB, "PNG"), "a.unknown", ()),
        (drawing.file(RGB.convert("RGBA"), "PNG"), "a.png", ()),
        (drawing.file(CLEAR, "PNG"), "a.png", ("transparency",)),
        (drawing.file(RGB.convert("L"), "PNG"), "a.png", ("grey",)),
        (drawing.file(RGB.convert("L"), "PNG", transparency=0), "a.png", ("grey", "transparency")),
        (drawing.file(RGB.convert("1"), "PNG"), "a.png", ("one bit",)),
        (drawing.file(RGB.convert("P"), "PNG"), "a.png", ("palette",)),
        (drawing.file(SIXTEEN, "PNG"), "a.png", ("16-bit grey",)),
        (drawing.file(RGB.convert("CMYK"), "JPEG"), "a.jpg", ("CMYK",)),
        (drawing.file(RGB, "PNG"), "a.jpg", ("PNG named .jpg",)),
        (drawing.file(RGB, "WEBP"), "a.jpg", ("WEBP named .jpg",)),
        (drawing.file(RGB, "JPEG", exif=exif(6)), "a.jpg", ("EXIF orientation",)),
        (drawing.file(RGB, "JPEG", exif=exif(1)), "a.jpg", ()),
        (
            drawing.file(RGB, "PNG", save_all=True, append_images=[drawing.noise(4, 3, 1)]),
            "a.png",
            ("several frames",),
        ),
        (
            drawing.file(RGB, "MPO", save_all=True, append_images=[drawing.noise(4, 3, 1)]),
            "a.jpg",
            ("several frames",),
        ),
    ],
)
def test_kinds(content, name, expected, tmp_path):
    (tmp_path / name).write_bytes(content)
    seen = kinds.Look()(str(tmp_path / name))
    assert seen[:4] == ("", 4, 3, expected)
    # Elsewhere than in a file of its own, the name is that of the picture.
    assert kinds.Look()(blobs.Blob(str(tmp_path / name), 0, len(content), name)) == seen


def test_damaged_exif_is_counted_and_not_printed(tmp_path):
    damaged = b"Exif\0\0II*\0\xff\xff\xff\x7f"
    (tmp_path / "a.jpg").write_bytes(drawing.file(RGB, "JPEG", exif=damaged))
    assert kinds.Look()(str(tmp_path / "a.jpg"))[:4] == ("", 4, 3, ("decoder warns",))


def test_the_digest_is_of_the_pixels_alone(tmp_path):
    for name, content in {
        "a.png": drawing.file(RGB, "PNG"),
        "b.png": drawing.file(RGB, "PNG", compress_level=0),
        "c.bmp": drawing.file(RGB, "BMP"),
        "other.png": drawing.file(drawing.noise(4, 3, 1), "PNG"),
        "sides.png": drawing.file(Image.frombytes("RGB", (3, 4), RGB.tobytes()), "PNG"),
    }.items():
        (tmp_path / name).write_bytes(content)
    digests = {path.name: kinds.Look()(path).digest for path in tmp_path.iterdir()}
    assert digests["a.png"] == digests["b.png"] == digests["c.bmp"]
    assert len(set(digests.values())) == 3
    assert {len(digest) for digest in digests.values()} == {16}


def test_the_options_count(tmp_path):
    (tmp_path / "a.jpg").write_bytes(drawing.file(RGB, "JPEG", exif=exif(6)))
    look = kinds.Look(images.Options(exif_orientation="apply"))
    assert look(tmp_path / "a.jpg")[1:3] == (3, 4)
    refused = kinds.Look(images.Options(max_pixels=11))(tmp_path / "a.jpg")
    assert refused == kinds.Seen(
        fault="4 x 3 pixels are more than 11, the limit that max_pixels sets"
    )


def test_faults_do_not_repeat_the_name(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"")
    assert kinds.Look()(tmp_path / "a.jpg").fault == (
        "the content is no picture format that Pillow knows"
    )
    Image.new("RGB", (1, 4000)).save(tmp_path / "needle.png")
    assert kinds.Look(size=224)(tmp_path / "needle.png").fault.startswith(
        "resized to 224, 224 x 896000 pixels"
    )
    assert not kinds.Look(size=8)(tmp_path / "needle.png").fault


class Ready:
    size = 5

    def pixels(self, size):
        return np.full((size, size, 3), 9, np.uint8)


def test_a_cropped_picture_is_taken_as_it_is():
    seen = kinds.Look()(Ready())
    assert seen[:4] == ("", 5, 5, ())
    assert len(seen.digest) == 16
