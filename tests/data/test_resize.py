"""The resize and crop of the reference, pixel by pixel."""

import math

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images
from tests.data import drawing

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
    pixels = images.resize_and_crop(drawing.noise(*size), 8)
    left, top = corner
    whole = np.asarray(drawing.noise(*size).resize(resized, Image.Resampling.BICUBIC))
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
    row = np.asarray(drawing.noise(length, 1))[0, :, 0]
    image = Image.fromarray(np.repeat(np.tile(row, (length, 1))[:, :, None], 3, axis=2))
    pixels = images.resize_and_crop(image, 32)
    expected = _row_by_hand(row.astype(float), 32)
    # Pillow rounds to 8 bits after each of its two passes.
    assert np.abs(pixels[16, :, 0] - expected).max() <= 1


def test_fine_stripes_turn_grey():
    stripes = np.zeros((448, 448, 3), np.uint8)
    stripes[:, ::2] = 255
    pixels = images.load_image(drawing.file(Image.fromarray(stripes), "PNG"))
    assert pixels.shape == (224, 224, 3)
    # The first and last columns see fewer stripes.
    np.testing.assert_allclose(pixels[:, 4:-4], 127.5, atol=0.5)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P"])
def test_one_pixel(mode):
    pixels = images.load_image(drawing.file(Image.new(mode, (1, 1)), "PNG"), size=5)
    assert pixels.shape == (5, 5, 3)
    assert (pixels == pixels[0, 0, 0]).all()


@pytest.mark.parametrize("size", [0, -3])
def test_size_below_one(size):
    with pytest.raises(types.UserError, match=f"image size is {size}"):
        images.load_image(drawing.file(drawing.noise(2, 2), "PNG"), size)
