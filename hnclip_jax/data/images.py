"""Picture files to RGB pixels: the one decode path, and the reference's resize and crop.

What a file becomes is decided by its content, never by its name:

* Transparent pixels are laid on white, or another colour, in every format that has them.
* 16-bit grey keeps its high byte, as Pillow does with 16-bit colour.
* Palettes, CMYK and other colour spaces become RGB, before the resize.
* Of an animation, the first frame counts.
* EXIF orientation is applied when asked for; no reference does so.
"""

import contextlib
import dataclasses
import io
import os
import threading
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import PIL
from PIL import ExifTags, Image, ImageColor

from hnclip_jax import types

MAX_PIXELS = 178_956_970
"""A picture with more pixels is refused, unless told otherwise: half a gigabyte of RGB."""

EXIF_ORIENTATION = ("ignore", "apply")

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation -> what sets the picture upright."""

_OPENING = threading.Lock()


class Stored(Protocol):
    """A picture inside of something larger; instead of `read` it may have `pixels`."""

    def read(self) -> bytes:
        """Returns the bytes of a picture file."""


class Ready(Protocol):
    """A picture that was resized and cropped before, to `size` pixels."""

    size: int

    def pixels(self, size: int) -> np.ndarray:
        """Returns [size, size, 3] uint8."""


Reference = str | os.PathLike | bytes | Stored | Ready
"""What names a picture: a path, the bytes of a file, or what gives them."""


@dataclasses.dataclass(frozen=True)
class Options:
    """How files become pixels.

    exif_orientation: "ignore" takes the pixels as they are stored, as the reference code does;
      "apply" turns the picture as its EXIF tag says.
    max_pixels: pictures with more pixels are refused; 0 = MAX_PIXELS.
    background: colour below transparent pixels, as CSS writes it: a name, or "#rrggbb".

    Raises:
      types.UserError: for a value that is none.
    """

    exif_orientation: str = "ignore"
    max_pixels: int = 0
    background: str = "white"

    def __post_init__(self) -> None:
        if self.exif_orientation not in EXIF_ORIENTATION:
            raise types.unknown_name("exif_orientation", self.exif_orientation, EXIF_ORIENTATION)
        if self.max_pixels < 0:
            raise types.UserError(f"max_pixels is {self.max_pixels}, but must be at least 0")
        with contextlib.suppress(ValueError):
            if len(ImageColor.getrgb(self.background)) == 3:
                return
        raise types.UserError(
            f"{self.background!r} is no colour to lay transparent pictures on; write a name such "
            "as 'white', or '#rrggbb'"
        )

    @property
    def limit(self) -> int:
        """Returns the most pixels that a picture may have."""
        return self.max_pixels or MAX_PIXELS


DEFAULT = Options()
"""As the reference code does it, with transparent pixels on white."""


def load_image(reference: Reference, size: int = 224, options: Options = DEFAULT) -> np.ndarray:
    """Returns [size, size, 3] uint8 pixels of a picture; see `decode` and `resize_and_crop`."""
    if hasattr(reference, "pixels"):
        return reference.pixels(size)
    image = decode(reference, options)
    try:
        return resize_and_crop(image, size, options)
    except types.UserError as error:
        raise types.UserError(f"cannot resize {name(reference)}: {error}") from error


def decode(reference: Reference, options: Options = DEFAULT) -> Image.Image:
    """Returns the picture in a file, or in the bytes of one: mode RGB, in its own size.

    Raises:
      types.UserError: if it cannot be read or decoded, or has more pixels than the limit.
    """
    with opened(reference, options) as image:
        return to_rgb(image, options)


@contextlib.contextmanager
def opened(reference: Reference, options: Options = DEFAULT) -> Iterator[Image.Image]:
    """Yields the picture as it is stored, first frame, decoded: any mode, not turned.

    Raises:
      types.UserError: if it cannot be read or decoded, has more pixels than the limit, or if the
        block fails.
    """
    try:
        with undecoded(reference, options.limit) as image:
            _check_pixels(image.width, image.height, options.limit)
            image.load()
            yield image
    # Decoders answer broken bytes with whatever breaks first: OSError, SyntaxError, struct.error...
    except Exception as error:
        raise types.UserError(
            f"cannot decode {name(reference)}: {_reason(error, options.limit)}"
        ) from error


def to_rgb(image: Image.Image, options: Options = DEFAULT) -> Image.Image:
    """Returns a picture in mode RGB, turned and laid on the background as the options say.

    Raises:
      ValueError: if its numbers have no defined white.
    """
    turn = _TURNS.get(orientation(image)) if options.exif_orientation == "apply" else None
    if image.mode == "F":
        raise ValueError("floating-point pixels have no defined white; save it with 8 or 16 bits")
    if has_16_bits(image):
        image = _from_16_bits(image, options.background)
    elif image.has_transparency_data:
        page = Image.new("RGBA", image.size, options.background)
        page.alpha_composite(image.convert("RGBA"))
        image = page
    image = image.convert("RGB")
    return image if turn is None else image.transpose(turn)


def resize_and_crop(image: Image.Image, size: int, options: Options = DEFAULT) -> np.ndarray:
    """Returns the centre square, after the shorter side became `size` by Pillow's bicubic filter.

    Args:
      image: mode RGB.
      size: pixels, at least 1.
      options: whose pixel limit holds for the resized picture as well.

    Returns:
      [size, size, 3] uint8.

    Raises:
      types.UserError: if size is below 1, or the longer side would make more than the limit.

    References:
      Resize and CenterCrop of torchvision on Pillow images, whose rounding this follows.
    """
    width, height = resized(image.size, size, options)
    left, top = round((width - size) / 2), round((height - size) / 2)
    whole = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.array(whole.crop((left, top, left + size, top + size)))


def resized(sides: tuple[int, int], size: int, options: Options = DEFAULT) -> tuple[int, int]:
    """Returns width and height after the shorter of `sides` became `size`.

    Raises:
      types.UserError: if size is below 1, or that has more pixels than the limit.
    """
    if size < 1:
        raise types.UserError(f"image size is {size}, but must be at least 1 pixel")
    short, long = sorted(sides)
    long = int(size * long / short)
    width, height = (size, long) if sides[0] <= sides[1] else (long, size)
    _check_pixels(width, height, options.limit)
    return width, height


def orientation(image: Image.Image) -> int:
    """Returns the EXIF orientation of a decoded picture, 1 to 8; 1 where none can be read.

    It is 1 for TIFF: Pillow turns those itself.
    """
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    # A damaged tag is no reason to lose the picture; viewers show it unturned.
    except Exception:
        return 1
    return found if found in _TURNS else 1


def has_16_bits(image: Image.Image) -> bool:
    """Returns whether a picture is grey with more than 8 bits."""
    return image.mode == "I" or image.mode.startswith("I;16")


def name(reference: Reference) -> str:
    """Returns what messages call a picture."""
    if isinstance(reference, bytes):
        return f"picture of {len(reference)} bytes"
    path = isinstance(reference, str | os.PathLike)
    return f"picture {os.fspath(reference) if path else reference}"


def undecoded(reference: Reference, limit: int) -> Image.Image:
    """Returns a picture whose header is read, and no pixel yet; one over the limit is an error."""
    content = reference if isinstance(reference, bytes) else _content(reference)
    # Pillow's own limit is a global for those who set none. It counts while the header is parsed,
    # which is all that threads wait for each other with.
    with _OPENING:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, limit
        try:
            return Image.open(io.BytesIO(content))
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _content(reference: Stored | str | os.PathLike) -> bytes:
    if hasattr(reference, "read"):
        return reference.read()
    with open(reference, "rb") as file:
        return file.read()


def _from_16_bits(image: Image.Image, background: str) -> Image.Image:
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError("32-bit pixels have no defined white; save it with 8 or 16 bits")
    pixels = np.repeat((values >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    if "transparency" in image.info:
        pixels[values == image.info["transparency"]] = ImageColor.getrgb(background)
    return Image.fromarray(pixels)


def _check_pixels(width: int, height: int, limit: int) -> None:
    if width * height > limit:
        raise types.UserError(
            f"{width} x {height} pixels are more than {limit}, the limit that max_pixels sets"
        )


def _reason(error: Exception, limit: int) -> str:
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it has more than {limit} pixels, which is the limit that max_pixels sets"
    if isinstance(error, PIL.UnidentifiedImageError):
        return "the content is no picture format that Pillow knows"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(reason.split())
