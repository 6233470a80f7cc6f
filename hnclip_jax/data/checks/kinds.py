"""What a picture file is besides its pixels: what preflight looks at, in one reading."""

import dataclasses
import os
import warnings
from typing import NamedTuple

from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images
from hnclip_jax.data.checks import hashes

LARGE = 25_000_000
"""Pixels above which a picture is called large: its decoding takes most of a second."""

_MODES = {"1": "one bit", "L": "grey", "LA": "grey", "La": "grey", "P": "palette", "PA": "palette"}

_SAME_FORMAT = ({"JPEG", "MPO"}, {"TIFF", "MPO"}, {"PPM", "PGM", "PBM"})
"""Formats that go by each other's names."""


class Seen(NamedTuple):
    """What reading a picture showed.

    fault: why it cannot be used; "" = it can, and only then do the other fields mean anything.
    width, height: as stored.
    kinds: what it is other than a plain RGB file, such as "grey", "transparency", "16-bit grey".
    digest: of its pixels, see hashes.digest.
    """

    fault: str = ""
    width: int = 0
    height: int = 0
    kinds: tuple[str, ...] = ()
    digest: bytes = b""


@dataclasses.dataclass(frozen=True)
class Look:
    """Reference -> Seen. Picklable: what workers do.

    options: how files become pixels.
    size: what pictures are resized to in the end, which has to be possible.
    """

    options: images.Options = images.DEFAULT
    size: int = 224

    def __call__(self, reference: images.Reference) -> Seen:
        """Reads and decodes one picture."""
        if hasattr(reference, "pixels"):
            return self._ready(reference)
        try:
            # Counted rather than printed: thousands of pictures may have damaged EXIF data.
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                with images.opened(reference, self.options) as image:
                    kinds = of(image, getattr(reference, "name", None) or images.name(reference))
                    rgb = images.to_rgb(image, self.options)
        except types.UserError as error:
            return Seen(fault=_without_name(error, reference))
        if warned:
            kinds = (*kinds, "decoder warns")
        try:
            images.resized(rgb.size, self.size, self.options)
        except types.UserError as error:
            return Seen(fault=f"resized to {self.size}, {error}")
        return Seen("", *rgb.size, kinds, hashes.digest(rgb))

    def _ready(self, reference: images.Ready) -> Seen:
        try:
            rgb = Image.fromarray(reference.pixels(reference.size))
        except types.UserError as error:
            return Seen(fault=str(error))
        return Seen("", *rgb.size, (), hashes.digest(rgb))


def of(image: Image.Image, name: str) -> tuple[str, ...]:
    """Returns what a decoded picture is other than a plain RGB file; () for one that is.

    Args:
      image: as `images.opened` yields it.
      name: whose ending is compared with the content.
    """
    found = []
    if images.has_16_bits(image):
        found.append("16-bit grey")
    elif image.mode not in ("RGB", "RGBA", "RGBX", "RGBa"):
        found.append(_MODES.get(image.mode, image.mode))
    if _is_transparent(image):
        found.append("transparency")
    if getattr(image, "is_animated", False):
        found.append("several frames")
    if images.orientation(image) != 1:
        found.append("EXIF orientation")
    ending = os.path.splitext(name)[1].lower()
    promised = Image.registered_extensions().get(ending, image.format)
    if promised != image.format and not any({promised, image.format} <= s for s in _SAME_FORMAT):
        found.append(f"{image.format} named {ending}")
    return tuple(found)


def _is_transparent(image: Image.Image) -> bool:
    """Returns whether any pixel is; many files have a channel for it that they do not use."""
    if image.mode[-1] in "Aa":
        return image.getextrema()[-1][0] < 255
    return image.has_transparency_data


def _without_name(error: types.UserError, reference: images.Reference) -> str:
    return str(error).removeprefix(f"cannot decode {images.name(reference)}: ")
