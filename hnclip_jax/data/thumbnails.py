"""Small copies of pictures, for pages: JPEG, or PNG where that is smaller, as of drawings."""

import io
import os
import pathlib
from typing import NamedTuple

from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images

_QUALITY = 85


class Thumbnail(NamedTuple):
    """name: of the file; width, height: in pixels."""

    name: str
    width: int
    height: int


def write(
    reference: images.Reference,
    folder: str | os.PathLike,
    stem: str,
    size: int,
    options: images.Options = images.DEFAULT,
) -> Thumbnail:
    """Writes a copy of a picture whose longer side has at most `size` pixels.

    Nothing of the file but its pixels is kept: no place, no date, no author.

    Args:
      reference: what names the picture.
      folder: there already.
      stem: name of the file, without ending.
      size: pixels, at least 1; smaller pictures keep their size.
      options: how files become pixels.

    Raises:
      types.UserError: if the picture cannot be read, or size is below 1.
      OSError: if the file cannot be written.
    """
    if size < 1:
        raise types.UserError(f"thumbnails of {size} pixels; needed is 1 or more")
    if hasattr(reference, "pixels"):
        image = Image.fromarray(reference.pixels(reference.size))
    else:
        image = images.decode(reference, options)
    # A copy without what the file said beside its pixels.
    small = Image.new("RGB", image.size)
    small.paste(image)
    small.thumbnail((size, size), Image.Resampling.BICUBIC)
    ending, content = min(_encoded(small), key=lambda found: len(found[1]))
    path = pathlib.Path(folder) / f"{stem}.{ending}"
    path.write_bytes(content)
    return Thumbnail(path.name, *small.size)


def _encoded(image: Image.Image) -> list[tuple[str, bytes]]:
    found = []
    for ending, options in (("jpg", {"quality": _QUALITY}), ("png", {})):
        file = io.BytesIO()
        image.save(file, {"jpg": "JPEG", "png": "PNG"}[ending], optimize=True, **options)
        found.append((ending, file.getvalue()))
    return found
