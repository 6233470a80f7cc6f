"""Boxes: the patches that they touch, and cutting them out."""

import fractions
import io
import math
import pickle

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images, regions
from tests.data import drawing

# Width and height, picture size, patch size.
FRAMES = {
    "square": ((48, 48), 24, 8),
    "wide": ((97, 40), 24, 8),
    "cut off at a half pixel": ((54, 48), 24, 4),
    "tall": ((35, 118), 24, 6),
    "enlarged": ((13, 19), 32, 8),
    "very wide": ((211, 30), 28, 14),
    "patches do not fit": ((50, 61), 30, 8),
    "as wide as a patch is": ((64, 90), 28, 28),
}


def _overlap(box, sides, size, patch):
    """Returns which patches have an area in common with a box, with rational numbers."""
    width, height = images.resized(sides, size)
    cut = [round((width - size) / 2), round((height - size) / 2)]
    scale = [fractions.Fraction(new, old) for new, old in zip((width, height), sides, strict=True)]
    start = [fractions.Fraction(box[n]) * scale[n] - cut[n] for n in range(2)]
    stop = [fractions.Fraction(box[n + 2]) * scale[n] - cut[n] for n in range(2)]
    found = []
    for row in range(size // patch):
        for column in range(size // patch):
            first = (column * patch, row * patch)
            found.append(
                all(
                    min(stop[n], first[n] + patch) > max(start[n], first[n])
                    and max(box[n], 0) < min(box[n + 2], sides[n])
                    for n in range(2)
                )
            )
    return np.array(found)


def _paint(box, sides, size, patch):
    """Returns the brightest pixel of each patch, of a black picture with the box painted white."""
    pixels = np.zeros((sides[1], sides[0], 3), np.uint8)
    left, top, right, bottom = (max(int(edge), 0) for edge in box)
    pixels[top:bottom, left:right] = 255
    square = images.resize_and_crop(Image.fromarray(pixels), size)[..., 0]
    count = size // patch
    square = square[: count * patch, : count * patch].reshape(count, patch, count, patch)
    return square.max(axis=(1, 3)).ravel()


def _boxes(sides, number, rng):
    for _ in range(number):
        x, y = (np.sort(rng.integers(0, side + 1, 2)) for side in sides)
        if x[0] < x[1] and y[0] < y[1]:
            yield regions.Box(int(x[0]), int(y[0]), int(x[1]), int(y[1]))


@pytest.mark.parametrize("frame", FRAMES)
def test_patches_are_those_that_a_painted_box_shows_in(frame):
    sides, size, patch = FRAMES[frame]
    touched = 0
    for box in _boxes(sides, 150, np.random.default_rng(0)):
        mask = regions.patch_mask(box, sides, size, patch)
        painted = _paint(box, sides, size, patch)
        # The filter blurs edges: beyond the edge less than half of the paint is left.
        assert mask[painted > 128].all(), (box, painted)
        assert (painted[mask] > 0).all(), (box, painted)
        np.testing.assert_array_equal(mask, _overlap(box, sides, size, patch), str(box))
        assert mask.dtype == bool
        touched += mask.sum() not in (0, mask.size)
    assert touched or size == patch


@pytest.mark.parametrize(("sides", "size"), [((96, 48), 24), ((48, 120), 24), ((36, 36), 12)])
def test_patches_are_exactly_the_painted_ones_where_edges_fall_on_pixels(sides, size):
    scale = min(sides) // size
    rng = np.random.default_rng(1)
    for small in _boxes([side // scale for side in sides], 100, rng):
        box = regions.Box(*(edge * scale for edge in small))
        painted = _paint(box, sides, size, 4) > 128
        np.testing.assert_array_equal(regions.patch_mask(box, sides, size, 4), painted, str(box))


@pytest.mark.parametrize(
    ("box", "rows", "columns"),
    [
        ((0, 0, 60, 40), "1111", "1111"),
        ((0, 0, 10, 40), "1111", "0000"),  # cut off at the left
        ((50, 0, 60, 40), "1111", "0000"),  # and at the right
        ((0, 0, 11, 1), "1000", "1000"),
        ((10, 0, 20, 10), "1000", "1000"),  # one patch, edge on edge
        ((19.5, 9.5, 20.5, 10.5), "1100", "1100"),
        ((29, 0, 30, 40), "1111", "0100"),  # one pixel wide
        ((30, 39, 31, 40), "0001", "0010"),  # one pixel
        ((-50, -50, 12, 12), "1100", "1000"),
        ((-9, 0, 0, 40), "0000", "0000"),  # beside the picture
        ((0, 40, 60, 50), "0000", "0000"),
        ((30, 20, 30, 25), "0000", "0000"),  # without area
        ((-1e9, 20, 1e9, 21), "0010", "1111"),
    ],
)
def test_patches_by_hand(box, rows, columns):
    # 60 x 40 become 30 x 20; of that, columns 5 to 25 stay: 10 to 50 of the picture.
    mask = regions.patch_mask(regions.Box(*box), (60, 40), 20, 5).reshape(4, 4)
    expected = [[row == "1" and column == "1" for column in columns] for row in rows]
    assert mask.tolist() == expected


def test_pictures_beyond_the_pixel_limit_have_patches_too():
    assert regions.patch_mask(regions.Box(0, 0, 9, 9), (10**6, 10), 224, 14).sum() == 0


def _as_released(box, frame, size, patches):
    """Returns the released rule, patch by patch."""
    edges = [round(edge * size / side) for edge, side in zip(box, frame * 2, strict=True)]
    left, top = (max(0, min(edge, size - 1)) for edge in edges[:2])
    right, bottom = (max(0, min(edge, size)) for edge in edges[2:])
    mask = [False] * patches
    for row in range(top // 16, (bottom + 15) // 16):
        for column in range(left // 16, (right + 15) // 16):
            mask[row * (size // 16) + column] = True
    return mask


@pytest.mark.parametrize("patches", [196, 256])
def test_patches_as_released(patches):
    rng = np.random.default_rng(2)
    counts = set()
    for box in _boxes((640, 480), 100, rng):
        for frame in ((640, 480), (box.right - box.left, box.bottom - box.top)):
            mask = regions.patch_mask_as_released(box, frame, 224, patches)
            assert mask.tolist() == _as_released(box, frame, 224, patches)
            counts.add(int(mask.sum()))
    assert len(counts) > 20


def test_patches_as_released_by_hand():
    box = regions.Box(0, 0, 320, 20)
    # Squashed to 112 x 9.33 pixels: seven patches of the first row, also of a model with 16 a row.
    for patches in (196, 256):
        mask = regions.patch_mask_as_released(box, (640, 480), 224, patches)
        assert np.flatnonzero(mask).tolist() == list(range(7))
    second = regions.patch_mask_as_released(regions.Box(0, 40, 20, 60), (640, 480), 224, 256)
    assert np.flatnonzero(second).tolist() == [14]
    # Half-pixels go to the even neighbour, as Python rounds: 16.5 is 16.
    half = regions.patch_mask_as_released(regions.Box(0, 0, 33, 33), (448, 448), 224, 196)
    assert np.flatnonzero(half).tolist() == [0]
    # A narrow box whose edges round to one border of patches has none.
    narrow = regions.Box(96, 0, 97, 99)
    assert not regions.patch_mask_as_released(narrow, (672, 448), 224, 196).any()
    assert not regions.patch_mask_as_released(box, (0, 0), 224, 196).any()


def test_models_with_fewer_patches_than_the_released_code_counts():
    regions.check_released(224, 16)
    regions.check_released(224, 14)
    with pytest.raises(types.UserError, match=r"counts 196 patches .* has 49 of 32 pixels"):
        regions.check_released(224, 32)


@pytest.mark.parametrize("whole", [(3, 4, 17, 11), (2.2, 3.9, 16.1, 10.5), (-4, 3, 99, 1e6)])
def test_a_part_is_like_a_picture_of_its_own(tmp_path, whole):
    picture = drawing.noise(30, 20)
    picture.save(tmp_path / "a.png")
    left, top = (max(math.floor(edge), 0) for edge in whole[:2])
    right, bottom = min(math.ceil(whole[2]), 30), min(math.ceil(whole[3]), 20)
    content = drawing.file(picture.crop((left, top, right, bottom)), "PNG")
    part = regions.CutOut(str(tmp_path / "a.png"), regions.Box(*whole))
    assert pickle.loads(pickle.dumps(part)) == part
    for size in (8, 24):
        found = images.load_image(part, size)
        np.testing.assert_array_equal(found, images.load_image(content, size))


def test_a_part_is_cut_from_the_picture_as_the_options_have_it():
    turned = Image.new("RGB", (30, 10), "red")
    turned.paste("blue", (0, 0, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6
    content = drawing.file(turned, "PNG", exif=exif)
    box = regions.Box(0, 0, 10, 10)
    upright = images.Options(exif_orientation="apply")
    assert regions.CutOut(content, box).pixels(4)[0, 0].tolist() == [0, 0, 255]
    below = regions.Box(0, 20, 10, 30)
    assert regions.CutOut(content, below, upright).pixels(4)[0, 0].tolist() == [255, 0, 0]
    with pytest.raises(types.UserError, match=r"box \(0, 20, 10, 30\) lies outside of 30 x 10"):
        regions.CutOut(content, below).pixels(4)


def test_errors_name_the_picture(tmp_path):
    (tmp_path / "a.png").write_bytes(drawing.file(drawing.noise(30, 20), "PNG"))
    (tmp_path / "b.png").write_bytes(b"no picture")
    box = regions.Box(30, 0, 40, 20)
    with pytest.raises(types.UserError, match=r"cannot cut out of .*a\.png: box") as error:
        regions.CutOut(str(tmp_path / "a.png"), box).pixels(8)
    assert "\n" not in str(error.value)
    with pytest.raises(types.UserError, match=r"cannot decode picture .*b\.png"):
        regions.CutOut(str(tmp_path / "b.png"), box).pixels(8)
    assert str(regions.CutOut("x.png", box)) == "part (30, 0, 40, 20) of picture x.png"


@pytest.mark.parametrize("orientation", [1, 4, 5, 8])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
@pytest.mark.parametrize("how", images.EXIF_ORIENTATION)
def test_sides_are_those_of_the_decoded_picture(tmp_path, kind, orientation, how):
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    drawing.noise(31, 17).save(buffer, kind, exif=exif)
    path = tmp_path / "a"
    path.write_bytes(buffer.getvalue())
    options = images.Options(exif_orientation=how)
    expected = images.decode(str(path), options).size
    assert regions.sides(str(path), options) == expected
    assert regions.sides(buffer.getvalue(), options) == expected


def test_sides_of_a_picture_whose_orientation_stands_at_its_end(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = drawing.file(drawing.noise(31, 17), "PNG", exif=exif)
    start = content.index(b"eXIf") - 4
    stop = start + 12 + int.from_bytes(content[start : start + 4], "big")
    moved = content[:start] + content[stop:-12] + content[start:stop] + content[-12:]
    (tmp_path / "a.png").write_bytes(moved)
    monkeypatch.setattr(regions, "_HEAD", 200)
    path, upright = str(tmp_path / "a.png"), images.Options(exif_orientation="apply")
    assert regions.sides(path) == (31, 17)
    assert regions.sides(path, upright) == images.decode(path, upright).size == (17, 31)


def test_sides_take_the_first_bytes_only(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    content = drawing.file(drawing.noise(300, 200), "JPEG", quality=95)
    assert len(content) > 50_000
    path.write_bytes(content)
    monkeypatch.setattr(regions, "_HEAD", 2000)
    with monkeypatch.context() as patch:
        patch.setattr(images, "opened", None)
        assert regions.sides(str(path)) == (300, 200)
    # A header that is longer than that, and one that is none at all.
    path.write_bytes(drawing.file(drawing.noise(30, 20), "JPEG", exif=b"Exif\0\0" + bytes(9000)))
    assert regions.sides(str(path)) == (30, 20)
    path.write_bytes(b"no picture")
    with pytest.raises(types.UserError, match=r"cannot decode picture .*a\.jpg"):
        regions.sides(str(path))
    with pytest.raises(types.UserError, match="No such file"):
        regions.sides(str(tmp_path / "none.jpg"))


def test_ready_cropped_pictures_have_lost_their_sides():
    class Ready:
        size = 8

        def pixels(self, size):
            raise AssertionError

        def __str__(self):
            return "7.jpg in packed"

    with pytest.raises(types.UserError, match=r"7\.jpg in packed is ready-cropped"):
        regions.sides(Ready())
