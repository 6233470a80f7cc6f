"""The pictures of a page: small copies in its folder, and the elements that show them."""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from hnclip_jax.analysis.report import folder, markup
from hnclip_jax.data import images, thumbnails

Progress = Callable[[int, int], None]


def write(
    wanted: Mapping[int, Any],
    draft: pathlib.Path,
    size: int,
    options: images.Options = images.DEFAULT,
    progress: Progress | None = None,
) -> dict[int, thumbnails.Thumbnail]:
    """Writes small copies of pictures to pictures/; returns number of the record -> copy.

    Args:
      wanted: number of the record -> what names its picture.
      draft: folder of the report.
      size: most pixels on a side.
      options: how files become pixels.
      progress: called with (copies written, all).

    Raises:
      types.UserError: if a picture cannot be read, or its copy cannot be written.
    """
    written = {}
    for done, (number, reference) in enumerate(wanted.items(), 1):
        place = draft / folder.PICTURES
        with folder.told(place):
            copy = thumbnails.write(reference, place, f"{number:06d}", size, options)
        written[number] = copy
        if progress:
            progress(done, len(wanted))
    return written


def image(thumbnail: thumbnails.Thumbnail, text: str) -> markup.Html:
    """Returns the element that shows a picture once it comes near to what is in view.

    Args:
      thumbnail: what `write` returned.
      text: what it shows, for those who do not see it.
    """
    return markup.tag(
        "img",
        src=f"{folder.PICTURES}/{thumbnail.name}",
        width=thumbnail.width,
        height=thumbnail.height,
        alt=text,
        loading="lazy",
        decoding="async",
    )
