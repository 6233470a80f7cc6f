"""What a picture is recognised by: its pixels exactly, or its look after another encoding.

A fingerprint holds three things of rising cost and falling tolerance. Pictures with one digest are
the same, pixel by pixel. Others are compared by 128 bits that say where the picture becomes
brighter, which changes little when it is encoded or resized anew; those that are near enough, by
their thumbnails, which tell pictures apart that are laid out alike.
"""

import dataclasses
import hashlib
import warnings
from typing import NamedTuple

import numpy as np
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images

BITS = 128
"""Length of the perceptual hash."""

THUMBNAIL = 16
"""Side of the thumbnails, in pixels."""

_CELLS = 8
_RISE = 2
"""Grey levels that count as brighter. Above what encoding does to a flat surface, so that its bits
are 0 rather than chance."""


class Fingerprint(NamedTuple):
    """What one picture is recognised by.

    digest: 16 bytes of its pixels; b"" if the picture cannot be decoded.
    bits: 16 bytes, the perceptual hash.
    thumbnail: 16 x 16 RGB, row by row.
    fault: why it cannot be decoded; "" if it can.
    """

    digest: bytes = b""
    bits: bytes = b""
    thumbnail: bytes = b""
    fault: str = ""


@dataclasses.dataclass(frozen=True)
class Take:
    """Reference -> Fingerprint. Picklable: what workers do.

    options: how files become pixels.
    """

    options: images.Options = images.DEFAULT

    def __call__(self, reference: images.Reference) -> Fingerprint:
        """Reads one picture."""
        try:
            if hasattr(reference, "pixels"):
                return fingerprint(Image.fromarray(reference.pixels(reference.size)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return fingerprint(images.decode(reference, self.options))
        except types.UserError as error:
            return Fingerprint(fault=str(error))


def fingerprint(image: Image.Image) -> Fingerprint:
    """Returns what a picture, mode RGB, is recognised by."""
    # The way down is through one middle size, which is most of the cost.
    middle = image.resize((64, 64), Image.Resampling.BILINEAR, reducing_gap=3.0)
    thumbnail = middle.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR)
    return Fingerprint(digest(image), _bits(middle), thumbnail.tobytes())


def digest(image: Image.Image) -> bytes:
    """Returns 16 bytes that are equal for pictures, mode RGB, of equal size and equal pixels."""
    found = hashlib.blake2b(f"{image.width} x {image.height}".encode(), digest_size=16)
    found.update(image.tobytes())
    return found.digest()


def _bits(image: Image.Image) -> bytes:
    """Returns 64 bits of the steps to the right and 64 of the steps downwards."""
    grey = image.convert("L")

    def cells(width: int, height: int) -> np.ndarray:
        return np.asarray(grey.resize((width, height), Image.Resampling.BILINEAR), np.int16)

    right = np.diff(cells(_CELLS + 1, _CELLS), axis=1) > _RISE
    down = np.diff(cells(_CELLS, _CELLS + 1), axis=0) > _RISE
    return np.packbits([right, down]).tobytes()
