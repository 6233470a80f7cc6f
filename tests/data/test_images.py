"""Decoding of every kind of picture file, and the resize and crop of the reference."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images

RNG_SEED = 5
JPEG_ERROR = 6  # grey levels; quality 95 on flat colour


def _file(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _noise(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(RNG_SEED)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def _pixels(source) -> np.ndarray:
    image = images.decode(source)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_rgb_comes_back_exactly(kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    content = _file(_noise(7, 5), kind, **options)
    np.testing.assert_array_equal(_pixels(content), np.asarray(_noise(7, 5)))


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 90, (90, 90, 90)),
        ("RGB", (10, 200, 30), (10, 200, 30)),
        # Naive conversion: 255 - ink, darkened by the black.
        ("CMYK", (255, 0, 0, 0), (0, 255, 255)),
        ("CMYK", (0, 0, 0, 255), (0, 0, 0)),
        ("YCbCr", (255, 128, 128), (255, 255, 255)),
    ],
    ids=["grey", "rgb", "cmyk cyan", "cmyk black", "ycbcr white"],
)
def test_colour_spaces(mode, colour, expected, kind):
    options = {"quality": 95} if kind == "JPEG" else {}
    pixels = _pixels(_file(Image.new(mode, (16, 16), colour), kind, **options))
    tolerance = JPEG_ERROR if kind == "JPEG" else 0
    np.testing.assert_allclose(pixels, np.broadcast_to(expected, (16, 16, 3)), atol=tolerance)


def test_one_bit():
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert _pixels(_file(image, "PNG")).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_palette():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    assert _pixels(_file(image, "PNG")).tolist() == [[[10, 20, 30], [40, 50, 60]]]


def _ramp(kind: str) -> bytes:
    values = np.linspace(0, 65535, 256).astype(np.uint16)
    return _file(Image.fromarray(np.tile(values, (4, 1))), kind)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled(kind):
    pixels = _pixels(_ramp(kind))
    np.testing.assert_array_equal(pixels[0, :, 0], np.arange(256))
    assert pixels.mean() == 127.5


def test_big_endian_16_bit_grey_is_scaled():
    pages = Image.frombytes("I;16B", (3, 1), np.array([0, 0x8000, 0xFFFF], ">u2").tobytes())
    np.testing.assert_array_equal(_pixels(_file(pages, "TIFF"))[0, :, 0], [0, 128, 255])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.array([[0.5]], np.float32), "floating-point"),
        (np.array([[70000]], np.int32), "32-bit"),
        (np.array([[-1]], np.int32), "32-bit"),
    ],
    ids=["float", "above 16 bits", "negative"],
)
def test_pixels_without_a_defined_white_are_refused(values, reason):
    with pytest.raises(types.UserError, match=f"{reason}.*save it with 8 or 16 bits"):
        images.decode(_file(Image.fromarray(values), "TIFF"))


def _transparent_palette() -> bytes:
    image = Image.new("P", (3, 1))
    image.putpalette([200, 0, 0, 0, 0, 0, 0, 0, 0])
    image.putdata([0, 1, 2])
    return _file(image, "PNG", transparency=bytes([255, 0, 51]))


def _transparent_gif() -> bytes:
    image = Image.new("P", (3, 1))
    image.putpalette([200, 0, 0, 0, 0, 0, 204, 204, 204])
    image.putdata([0, 1, 2])
    return _file(image, "GIF", transparency=1)


def _rgba(kind: str, **options) -> bytes:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(200, 0, 0, 255), (0, 0, 0, 0), (0, 0, 0, 51)])
    return _file(image, kind, **options)


@pytest.mark.parametrize(
    "content",
    [
        _rgba("PNG"),
        _rgba("TIFF"),
        _rgba("WEBP", lossless=True, exact=True),
        _transparent_palette(),
        _transparent_gif(),
    ],
    ids=["png", "tiff", "webp", "palette png", "gif"],
)
def test_transparent_pixels_lie_on_white(content):
    # Opaque red; fully transparent black; black that covers a fifth: 255 - 51 = 204.
    assert _pixels(content)[0].tolist() == [[200, 0, 0], [255, 255, 255], [204, 204, 204]]


def test_grey_with_alpha_lies_on_white():
    image = Image.new("LA", (2, 1))
    image.putdata([(90, 255), (0, 0)])
    assert _pixels(_file(image, "PNG"))[0, :, 0].tolist() == [90, 255]


@pytest.mark.parametrize(
    ("mode", "colours", "key", "expected"),
    [
        ("RGB", [(1, 2, 3), (9, 9, 9)], (1, 2, 3), [255, 9]),
        ("L", [0, 90], 0, [255, 90]),
        ("1", [0, 255], 0, [255, 255]),
        ("I;16", [0, 0x5A00], 0, [255, 90]),
    ],
    ids=["rgb", "grey", "one bit", "16 bit"],
)
def test_transparent_colour_key_is_white(mode, colours, key, expected):
    image = Image.new(mode, (2, 1))
    for column, colour in enumerate(colours):
        image.putpixel((column, 0), colour)
    assert _pixels(_file(image, "PNG", transparency=key))[0, :, 0].tolist() == expected


def test_palette_with_alpha_lies_on_white():
    image = Image.new("PA", (2, 1))
    image.putpalette([200, 0, 0, 0, 0, 0])
    image.putdata([(0, 255), (1, 0)])
    assert np.asarray(images._to_rgb(image))[0].tolist() == [[200, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_an_animation(kind):
    red, blue = Image.new("RGB", (4, 4), (255, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 255))
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels = _pixels(_file(red, kind, save_all=True, append_images=[blue], **options))
    np.testing.assert_array_equal(pixels, np.asarray(red))


def test_content_decides_not_the_name(tmp_path):
    path = tmp_path / "größe 1 寸.jpg"
    path.write_bytes(_transparent_gif())
    np.testing.assert_array_equal(_pixels(path), _pixels(_transparent_gif()))
    np.testing.assert_array_equal(_pixels(str(path)), _pixels(path))


def test_exif_orientation_is_left_alone():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = _file(_noise(6, 4), "PNG", exif=exif)
    np.testing.assert_array_equal(_pixels(content), np.asarray(_noise(6, 4)))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no picture format"),
        (b"<html>404</html>", "no picture format"),
        (_file(_noise(64, 64), "JPEG")[:900], "truncated"),
        (_file(_noise(64, 64), "PNG")[:900], "truncated"),
        (_file(_noise(64, 64), "PNG")[:200] + bytes(12000), "broken|truncated|data stream"),
        (_file(_noise(64, 64), "GIF")[:900], "truncated"),
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


@pytest.mark.parametrize("limit", ["ours", "Pillow's"])
def test_huge_picture_is_refused(limit, monkeypatch):
    if limit == "ours":
        monkeypatch.setattr(images, "MAX_PIXELS", 99)
    else:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 49)
    images.decode(_file(_noise(7, 7), "PNG"))
    with pytest.raises(types.UserError, match=r"of \d+ bytes: .*(100 pixels|10 x 10 pixels)"):
        images.decode(_file(_noise(10, 10), "PNG"))


def test_needle_that_would_grow_huge_is_refused(tmp_path):
    path = tmp_path / "needle.png"
    Image.new("RGB", (1, 4000)).save(path)
    with pytest.raises(types.UserError, match=r"needle\.png: 224 x 896000 pixels"):
        images.load_image(path)


# Sides, and the window (left, top) after the resize to 8, worked out by hand: the longer side is
# int(8 * long / short), the offset is round(difference / 2) with halves to even.
WINDOWS = [
    ((8, 8), (8, 8), (0, 0)),
    ((16, 8), (16, 8), (4, 0)),
    ((8, 16), (8, 16), (0, 4)),
    ((13, 8), (13, 8), (2, 0)),
    ((15, 8), (15, 8), (4, 0)),
    ((8, 13), (8, 13), (0, 2)),
    ((33, 17), (15, 8), (4, 0)),
    ((100, 30), (26, 8), (9, 0)),
    ((3, 2), (12, 8), (2, 0)),
    ((1, 1), (8, 8), (0, 0)),
]


@pytest.mark.parametrize(("size", "resized", "corner"), WINDOWS, ids=[str(w[0]) for w in WINDOWS])
def test_window_of_the_reference(size, resized, corner):
    pixels = images.resize_and_crop(_noise(*size), 8)
    left, top = corner
    whole = np.asarray(_noise(*size).resize(resized, Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(pixels, whole[top : top + 8, left : left + 8])
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable


def _cubic(x: float) -> float:
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def _row_by_hand(row: np.ndarray, size: int) -> np.ndarray:
    """Cubic convolution (a = -1/2) whose support grows with the reduction."""
    scale = len(row) / size
    width, out = max(scale, 1.0), []
    for column in range(size):
        centre = (column + 0.5) * scale
        taps = range(max(0, math.floor(centre - 2 * width)), len(row))
        weights = [_cubic((tap + 0.5 - centre) / width) for tap in taps]
        out.append(sum(w * row[tap] for w, tap in zip(weights, taps, strict=True)) / sum(weights))
    return np.clip(out, 0, 255)


@pytest.mark.parametrize("length", [9, 32, 50], ids=["up", "same", "down"])
def test_resize_is_antialiased_cubic(length):
    row = np.asarray(_noise(length, 1))[0, :, 0]
    image = Image.fromarray(np.repeat(np.tile(row, (length, 1))[:, :, None], 3, axis=2))
    pixels = images.resize_and_crop(image, 32)
    expected = _row_by_hand(row.astype(float), 32)
    # Pillow rounds to 8 bits after each of its two passes.
    assert np.abs(pixels[16, :, 0] - expected).max() <= 1


def test_fine_stripes_turn_grey():
    stripes = np.zeros((448, 448, 3), np.uint8)
    stripes[:, ::2] = 255
    pixels = images.load_image(_file(Image.fromarray(stripes), "PNG"))
    assert pixels.shape == (224, 224, 3)
    # The first and last columns see fewer stripes.
    np.testing.assert_allclose(pixels[:, 4:-4], 127.5, atol=0.5)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P"])
def test_one_pixel(mode):
    pixels = images.load_image(_file(Image.new(mode, (1, 1)), "PNG"), size=5)
    assert pixels.shape == (5, 5, 3)
    assert (pixels == pixels[0, 0, 0]).all()


@pytest.mark.parametrize("size", [0, -3])
def test_size_below_one(size):
    with pytest.raises(types.UserError, match=f"image size is {size}"):
        images.load_image(_file(_noise(2, 2), "PNG"), size)
