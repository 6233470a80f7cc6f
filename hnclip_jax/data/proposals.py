"""Regions of pictures that sentences may tell of: fixed ones, or boxes of COCO's or SAM's files."""

import array
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hnclip_jax import types
from hnclip_jax.data import regions
from hnclip_jax.data.formats import json_stream, textfile

WHOLE, GIVEN = "whole", "box"
_NEEDED = (
    'needed is COCO\'s {"images": [{"id", "file_name"}], "annotations": [{"image_id", "bbox"}]}, '
    'or SAM\'s {"image": {"file_name"}, "annotations": [{"bbox"}]} for each picture in a folder'
)
_FIELDS = 5

Progress = Callable[[int, int], None]


class Region(NamedTuple):
    """A part of a picture, and what proposed it: "whole", "box", "quarter", "centre" or "grid"."""

    box: regions.Box
    source: str


class Boxes:
    """The boxes that files give, by the name of the picture."""

    def __init__(self, found: Mapping[str, array.array]) -> None:
        """Takes name -> x, y, width, height, area of its boxes, one after the other."""
        self._found = found
        self._by_last_name: dict[str, str] = {}
        for name in found:
            last = os.path.basename(name)
            # Two pictures of one name are known by their folders only.
            self._by_last_name[last] = "" if last in self._by_last_name else name

    def __len__(self) -> int:
        """Returns how many pictures there are."""
        return len(self._found)

    @property
    def first(self) -> str:
        """The name of the first picture, for messages."""
        return next(iter(self._found), "")

    def find(self, path: str) -> str | None:
        """Returns the name that the files have for a picture; None if they have none.

        It is the longest name that the path ends in; else the one with the same last part.
        """
        parts = path.split("/")
        names = ("/".join(parts[start:]) for start in range(len(parts)))
        exact = next((name for name in names if name in self._found), None)
        return exact or self._by_last_name.get(parts[-1]) or None

    def numbers(self, name: str) -> list[float]:
        """Returns x, y, width, height, area (NaN: not said) of each box of a picture."""
        return self._found[name].tolist()

    def of(self, name: str, sides: tuple[int, int], least: float, most: float) -> list[Region]:
        """Returns the regions of a picture, each once, whose share of the area is in a range.

        Args:
          name: from `find`.
          sides: width and height of the picture; boxes are cut there.
          least, most: the range; the area is that of the mask where the file says it, else that of
            the box.
        """
        numbers, whole = self._found[name], sides[0] * sides[1]
        boxes = {}
        for start in range(0, len(numbers), _FIELDS):
            left, top, width, height, area = numbers[start : start + _FIELDS]
            box = regions.Box(left, top, left + width, top + height)
            part = regions.inside(box, sides)
            if part is None:
                continue
            if math.isnan(area):
                area = (part.right - part.left) * (part.bottom - part.top)
            if least <= area / whole <= most:
                edges = (*map(math.floor, part[:2]), *map(math.ceil, part[2:]))
                boxes[regions.Box(*edges)] = None
        return [Region(box, GIVEN) for box in boxes]


def fixed(sides: tuple[int, int], grid: int) -> list[Region]:
    """Returns the four quarters, the centre of half the sides, and the cells of a grid.

    Args:
      sides: width and height of the picture.
      grid: cells in a row and in a column; below 3 = no grid, since 2 would be the quarters.
    """
    width, height = sides
    quarters = [Region(box, "quarter") for box in _cells(sides, 2)]
    middle = regions.Box(width // 4, height // 4, width - width // 4, height - height // 4)
    cells = [Region(box, "grid") for box in _cells(sides, grid)] if grid > 2 else []
    return [*quarters, Region(middle, "centre"), *cells]


def whole(sides: tuple[int, int]) -> Region:
    """Returns the whole picture."""
    return Region(regions.Box(0, 0, *sides), WHOLE)


def read(path: str | os.PathLike, progress: Progress | None = None) -> Boxes:
    """Returns the boxes of a file, or of all JSON files in a folder.

    A file is COCO's, of many pictures, or SAM's (SA-1B), of one. A box is x, y, width, height in
    pixels; masks beside them are not looked at, but for their `area`.

    Args:
      path: file or folder.
      progress: called with (bytes read, bytes) of a file, or (files read, files) of a folder.

    Raises:
      types.UserError: if it cannot be read, or is none of these.
    """
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        return Boxes(_file(path, progress))
    names = sorted(name for name in os.listdir(path) if name.endswith(".json"))
    if not names:
        raise types.UserError(f"{path} holds no JSON file; {_NEEDED}")
    found: dict[str, array.array] = {}
    for done, name in enumerate(names, 1):
        found |= _file(os.path.join(path, name), None)
        if progress:
            progress(done, len(names))
    return Boxes(found)


def _cells(sides: tuple[int, int], count: int) -> Iterator[regions.Box]:
    across, down = ([side * n // count for n in range(count + 1)] for side in sides)
    for (top, bottom), (left, right) in itertools.product(
        itertools.pairwise(down), itertools.pairwise(across)
    ):
        if left < right and top < bottom:
            yield regions.Box(left, top, right, bottom)


def _file(path: str, progress: Progress | None) -> dict[str, array.array]:
    """Returns name of picture -> its boxes."""
    names: dict[Any, str] = {}
    boxes: dict[Any, array.array] = {}
    keys: list[str] = []
    with textfile.TextFile(path, progress) as file:
        stream = json_stream.JsonStream(path, file)
        if stream.peek() != "{":
            raise types.UserError(f"{path} is no JSON object; {_NEEDED}")
        for key in stream.keys():  # noqa: SIM118
            keys.append(key)
            if key == "images" and stream.peek() == "[":
                for image in stream.elements():
                    names[_value(path, image, "id", int)] = _value(path, image, "file_name", str)
            elif key == "annotations" and stream.peek() == "[":
                for note in stream.elements():
                    number = note.get("image_id") if isinstance(note, dict) else None
                    number = number if isinstance(number, int) else None
                    boxes.setdefault(number, array.array("d")).extend(_box(path, note))
            elif key == "image":
                names[None] = _value(path, stream.value(), "file_name", str)
            else:
                stream.value()
    if not names or "annotations" not in keys:
        shown = types.at_most_ten(list(map(repr, keys))) or "(none)"
        raise types.UserError(f"{path} is one object with the keys {shown}; {_NEEDED}")
    if None in names:  # SAM's, of one picture, whatever its annotations say
        boxes = {None: sum(boxes.values(), array.array("d"))}
    strangers = [str(number) for number in boxes if number not in names]
    if strangers:
        raise types.UserError(
            f"{path}: {len(strangers)} values of image_id in its annotations are no id of its "
            f"images ({types.at_most_ten(strangers)}); the file needs both"
        )
    return {names[number]: found for number, found in boxes.items()}


def _value(path: str, record: Any, key: str, kind: type) -> Any:
    found = record.get(key) if isinstance(record, dict) else None
    if not isinstance(found, kind) or (kind is str and not found):
        raise types.UserError(f"{path}: the {key} of an image is {found!r:.60}; {_NEEDED}")
    return found


def _box(path: str, note: Any) -> list[float]:
    """Returns x, y, width, height and area, NaN if that is not said."""
    box = note.get("bbox") if isinstance(note, dict) else None
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        raise types.UserError(
            f"{path}: the bbox of an annotation is {box!r:.60}, not x, y, width, height; {_NEEDED}"
        )
    area = note.get("area")
    return [*box, area if _is_number(area) else math.nan]


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
