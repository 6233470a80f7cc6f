"""Decoding of every kind of picture file to RGB."""

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images
from tests.data import drawing

JPEG_ERROR = 6  # grey levels; quality 95 on flat colour


def _pixels(source) -> np.ndarray:
    image = images.decode(source)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_rgb_comes_back_exactly(kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    content = drawing.file(drawing.noise(7, 5), kind, **options)
    np.testing.assert_array_equal(_pixels(content), np.asarray(drawing.noise(7, 5)))


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
    pixels = _pixels(drawing.file(Image.new(mode, (16, 16), colour), kind, **options))
    tolerance = JPEG_ERROR if kind == "JPEG" else 0
    np.testing.assert_allclose(pixels, np.broadcast_to(expected, (16, 16, 3)), atol=tolerance)


def test_one_bit():
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert _pixels(drawing.file(image, "PNG")).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_palette():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    assert _pixels(drawing.file(image, "PNG")).tolist() == [[[10, 20, 30], [40, 50, 60]]]


def _ramp(kind: str) -> bytes:
    values = np.linspace(0, 65535, 256).astype(np.uint16)
    return drawing.file(Image.fromarray(np.tile(values, (4, 1))), kind)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled(kind):
    pixels = _pixels(_ramp(kind))
    np.testing.assert_array_equal(pixels[0, :, 0], np.arange(256))
    assert pixels.mean() == 127.5


def test_big_endian_16_bit_grey_is_scaled():
    pages = Image.frombytes("I;16B", (3, 1), np.array([0, 0x8000, 0xFFFF], ">u2").tobytes())
    np.testing.assert_array_equal(_pixels(drawing.file(pages, "TIFF"))[0, :, 0], [0, 128, 255])


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
        images.decode(drawing.file(Image.fromarray(values), "TIFF"))


def _transparent_palette() -> bytes:
    image = Image.new("P", (3, 1))
    image.putpalette([200, 0, 0, 0, 0, 0, 0, 0, 0])
    image.putdata([0, 1, 2])
    return drawing.file(image, "PNG", transparency=bytes([255, 0, 51]))


def _transparent_gif() -> bytes:
    image = Image.new("P", (3, 1))
    image.putpalette([200, 0, 0, 0, 0, 0, 204, 204, 204])
    image.putdata([0, 1, 2])
    return drawing.file(image, "GIF", transparency=1)


def _rgba(kind: str, **options) -> bytes:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(200, 0, 0, 255), (0, 0, 0, 0), (0, 0, 0, 51)])
    return drawing.file(image, kind, **options)


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
    assert _pixels(drawing.file(image, "PNG"))[0, :, 0].tolist() == [90, 255]


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
    assert _pixels(drawing.file(image, "PNG", transparency=key))[0, :, 0].tolist() == expected


def test_palette_with_alpha_lies_on_white():
    image = Image.new("PA", (2, 1))
    image.putpalette([200, 0, 0, 0, 0, 0])
    image.putdata([(0, 255), (1, 0)])
    assert np.asarray(images.to_rgb(image))[0].tolist() == [[200, 0, 0], [255, 255, 255]]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_an_animation(kind):
    red, blue = Image.new("RGB", (4, 4), (255, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 255))
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels = _pixels(drawing.file(red, kind, save_all=True, append_images=[blue], **options))
    np.testing.assert_array_equal(pixels, np.asarray(red))


def test_content_decides_not_the_name(tmp_path):
    path = tmp_path / "größe 1 寸.jpg"
    path.write_bytes(_transparent_gif())
    np.testing.assert_array_equal(_pixels(path), _pixels(_transparent_gif()))
    np.testing.assert_array_equal(_pixels(str(path)), _pixels(path))
