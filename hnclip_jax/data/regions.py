"""Boxes in pictures: which patches of the cropped square they touch, and how they are cut out."""

import contextlib
import dataclasses
import math
import os
from typing import NamedTuple

import numpy as np
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images

_NO_LIMIT = images.Options(max_pixels=2**62)
_RELEASED_PATCH = 16
_HEAD = 1 << 16
_SIZE_IN_HEAD = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP")
_EXIF_IN_HEAD = ("JPEG", "MPO")


class Box(NamedTuple):
    """A part of a picture, in its own pixels from the upper left: left <= x < right, etc."""

    left: float
    top: float
    right: float
    bottom: float


def inside(box: Box, sides: tuple[int, int]) -> Box | None:
    """Returns the part of a box that lies in a picture of this width and height; None: no part."""
    width, height = sides
    left, right = max(box.left, 0), min(box.right, width)
    top, bottom = max(box.top, 0), min(box.bottom, height)
    return Box(left, top, right, bottom) if left < right and top < bottom else None


def patch_mask(box: Box, sides: tuple[int, int], size: int, patch_size: int) -> np.ndarray:
    """Returns which patches a box touches, after the picture was resized and cropped.

    The box is moved as `images.resize_and_crop` moves the picture. A patch is touched if the two
    have an area in common, however small.

    Args:
      box: in pixels of the picture.
      sides: its width and height.
      size: pixels of the square that is cropped.
      patch_size: pixels of a patch; what is left over at the right and at the bottom is no patch.

    Returns:
      [N] bool, row after row; all False for a box that lies outside of the square.
    """
    count = size // patch_size
    part = inside(box, sides)
    if part is None:
        return np.zeros(count * count, bool)
    width, height = images.resized(sides, size, _NO_LIMIT)
    columns = _touched(part.left, part.right, sides[0], width, size, patch_size)
    rows = _touched(part.top, part.bottom, sides[1], height, size, patch_size)
    return np.outer(rows, columns).ravel()


def _touched(
    start: float, stop: float, side: int, resized: int, size: int, patch_size: int
) -> np.ndarray:
    """Returns which of a row of patches lie on a stretch of a side that had `side` pixels."""
    cut_off = round((resized - size) / 2)
    # Compared in units of 1 / (side * resized), where nothing has to be rounded.
    borders = (cut_off + patch_size * np.arange(size // patch_size + 1)) * side
    return (start * resized < borders[1:]) & (stop * resized > borders[:-1])


def patch_mask_as_released(
    box: Box, frame: tuple[float, float], size: int, patches: int
) -> np.ndarray:
    """Returns which patches GOAL's released code takes for a box.

    It squashes what it takes for the picture to the square, which is the frame; rounds to pixels;
    and counts patches of 16 pixels in rows of size // 16, whatever the model's are.

    Args:
      box: as the list has it.
      frame: the width and height that stand beside the box in the list.
      size: pixels of the square.
      patches: N, of the model; at least (size // 16)^2.

    Returns:
      [N] bool, all False where that code would take no patch.

    References:
      PerceptualAI-Lab/GOAL, goal_loss_finetuning.py.
    """
    count = size // _RELEASED_PATCH
    chosen = np.zeros((count, count), bool)
    if min(frame) > 0:
        left, top, right, bottom = (
            round(edge * size / side) for edge, side in zip(box, (*frame, *frame), strict=True)
        )
        left, top = (min(max(edge, 0), size - 1) for edge in (left, top))
        right, bottom = (min(max(edge, 0), size) for edge in (right, bottom))
        rows = slice(top // _RELEASED_PATCH, -(-bottom // _RELEASED_PATCH))
        columns = slice(left // _RELEASED_PATCH, -(-right // _RELEASED_PATCH))
        chosen[rows, columns] = True
    mask = np.zeros(patches, bool)
    mask[: chosen.size] = chosen.ravel()
    return mask


def check_released(size: int, patch_size: int) -> None:
    """Raises types.UserError if the released code would count patches that the model has not."""
    counted, there = (size // _RELEASED_PATCH) ** 2, (size // patch_size) ** 2
    if counted > there:
        raise types.UserError(
            f"method.goal_mode 'as_released' counts {counted} patches of 16 pixels in pictures of "
            f"{size}, but the model has {there} of {patch_size} pixels; use 'fixed'"
        )


def cut(image: Image.Image, box: Box) -> Image.Image:
    """Returns the part of a picture that a box covers, every pixel that it touches.

    Raises:
      types.UserError: if no part of the box lies in the picture.
    """
    part = inside(box, image.size)
    if part is None:
        shown = ", ".join(f"{edge:g}" for edge in box)
        raise types.UserError(f"box ({shown}) lies outside of {image.width} x {image.height}")
    floor = (math.floor(edge) for edge in part[:2])
    return image.crop((*floor, *(math.ceil(edge) for edge in part[2:])))


@dataclasses.dataclass(frozen=True, slots=True)
class CutOut:
    """A part of a picture as a picture: `images.load_image` takes it.

    reference: of the whole picture.
    box: the part.
    options: how files become pixels; those given to load_image do not count.
    """

    reference: images.Reference
    box: Box
    options: images.Options = images.DEFAULT

    def pixels(self, size: int) -> np.ndarray:
        """Returns [size, size, 3] uint8, the part resized and cropped like a picture of its own.

        Raises:
          types.UserError: if the picture cannot be decoded, or the box lies outside of it.
        """
        whole = images.decode(self.reference, self.options)
        try:
            return images.resize_and_crop(cut(whole, self.box), size, self.options)
        except types.UserError as error:
            raise types.UserError(
                f"cannot cut out of {images.name(self.reference)}: {error}"
            ) from error

    def __str__(self) -> str:
        """Returns what messages call it."""
        edges = ", ".join(f"{edge:g}" for edge in self.box)
        return f"part ({edges}) of {images.name(self.reference)}"


def sides(reference: images.Reference, options: images.Options = images.DEFAULT) -> tuple[int, int]:
    """Returns width and height that `images.decode` gives a picture; mostly without decoding it.

    Raises:
      types.UserError: if it cannot be decoded, or was cropped before, so that its own are gone.
    """
    if hasattr(reference, "pixels"):
        raise types.UserError(
            f"{images.name(reference)} is ready-cropped, so boxes in the original do not fit it; "
            "give the list itself, or pack it without --size"
        )
    turns = options.exif_orientation == "apply"
    # What a header lacks, decoding tells, and says what is wrong with it.
    with contextlib.suppress(Exception), images.undecoded(_head(reference), options.limit) as image:
        if image.format in (_EXIF_IN_HEAD if turns else _SIZE_IN_HEAD):
            return _turned(image, turns)
    with images.opened(reference, options) as image:
        return _turned(image, turns)


def _head(reference: images.Reference) -> bytes:
    if isinstance(reference, str | os.PathLike):
        with open(reference, "rb") as file:
            return file.read(_HEAD)
    return reference if isinstance(reference, bytes) else reference.read()


def _turned(image: Image.Image, turns: bool) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if turns and images.orientation(image) >= 5 else (width, height)
