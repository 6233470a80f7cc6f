"""Picture files to RGB pixels: the one decode path, and the reference's resize and crop.

What a file becomes is decided by its content, never by its name:

* Transparent pixels are laid on white, in every format that has them.
* 16-bit grey keeps its high byte, as Pillow does with 16-bit colour.
* Palettes, CMYK and other colour spaces become RGB, before the resize.
* Of an animation, the first frame counts. EXIF orientation is not applied; no reference does so.
"""

import io
import os

import numpy as np
import PIL
from PIL import Image

from hnclip_jax import types

MAX_PIXELS = 178_956_970
"""A picture with more pixels is refused: Pillow's own limit, half a gigabyte of RGB."""


def decode(source: bytes | str | os.PathLike) -> Image.Image:
    """Returns the picture in a file, or in the bytes of one: mode RGB, in its own size.

    Raises:
      types.UserError: if it cannot be read or decoded, or has more than MAX_PIXELS pixels.
    """
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            _check_pixels(image.width, image.height)
            return _to_rgb(image)
    # Decoders answer broken bytes with whatever breaks first: OSError, SyntaxError, struct.error...
    except Exception as error:
        raise types.UserError(f"cannot decode {_name(source)}: {_reason(error)}") from error


def resize_and_crop(image: Image.Image, size: int) -> np.ndarray:
    """Returns the centre square, after the shorter side became `size` by Pillow's bicubic filter.

    Args:
      image: mode RGB.
      size: pixels, at least 1.

    Returns:
      [size, size, 3] uint8.

    Raises:
      types.UserError: if size is below 1, or the longer side would make more than MAX_PIXELS.

    References:
      Resize and CenterCrop of torchvision on Pillow images, whose rounding this follows.
    """
    if size < 1:
        raise types.UserError(f"image size is {size}, but must be at least 1 pixel")
    short, long = sorted(image.size)
    long = int(size * long / short)
    width, height = (size, long) if image.width <= image.height else (long, size)
    _check_pixels(width, height)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.array(resized.crop((left, top, left + size, top + size)))


def load_image(source: bytes | str | os.PathLike, size: int = 224) -> np.ndarray:
    """Returns [size, size, 3] uint8 pixels of a file; see `decode` and `resize_and_crop`."""
    image = decode(source)
    try:
        return resize_and_crop(image, size)
    except types.UserError as error:
        raise types.UserError(f"cannot resize {_name(source)}: {error}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _grey_from_16_bits(image).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels have no defined white; save it with 8 or 16 bits")
    if image.has_transparency_data:
        page = Image.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    return image.convert("RGB")


def _grey_from_16_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError("32-bit pixels have no defined white; save it with 8 or 16 bits")
    grey = (values >> 8).astype(np.uint8)
    if "transparency" in image.info:
        grey[values == image.info["transparency"]] = 255
    return Image.fromarray(grey)


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise types.UserError(f"{width} x {height} pixels are more than {MAX_PIXELS}")


def _name(source: bytes | str | os.PathLike) -> str:
    of = f"of {len(source)} bytes" if isinstance(source, bytes) else os.fspath(source)
    return f"picture {of}"


def _reason(error: Exception) -> str:
    if isinstance(error, PIL.UnidentifiedImageError):
        return "the content is no picture format that Pillow knows"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(reason.split())
