"""Draws an edge map of every picture of a list, and makes a list with them, for StructXLIP.

    python tools/make_edges.py --data=train.json --edges=edges --out=train_structure.json

Any list will do, with segments or without; these are kept as they stand, and their local edge maps
are cut out of the picture's while training. Maps are grey PNGs with white lines, as large as the
picture; each knows how it was drawn. Maps that were drawn in the same way are kept, so the command
can be stopped and started again.

  canny   OpenCV's Canny, 100 and 200, after a Gaussian of 5 x 5 pixels
  soft    how steep the blurred picture is, |d/dx| + |d/dy| by Sobel's 3 x 3 filter, the measure
          that Canny's thresholds are for: black up to --low, white from --high, grey between

Needs OpenCV: pip install 'hnclip_jax[edges]'
"""

import dataclasses
import io
import json
import os
import sys
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import numpy as np
from absl import flags
from PIL import Image, PngImagePlugin

from hnclip_jax import types
from hnclip_jax.commands import pictures as pictures_lib
from hnclip_jax.commands import sources
from hnclip_jax.data import images, lists, paths
from hnclip_jax.training import logging

try:
    import cv2
except ImportError:
    cv2 = None

KINDS = ("canny", "soft")

_NAME = "make_edges"
_AT_ONCE = 256
_NOTE = "structure"  # Where a PNG says how it was drawn.


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How an edge map is drawn.

    kind: one of KINDS.
    low, high: thresholds.
    blur: pixels of the Gaussian's side, odd; its width in sigma is OpenCV's rule. 1 = none.
    options: how files become pixels.

    Raises:
      types.UserError: for values that do not fit.
    """

    kind: str = "canny"
    low: float = 100.0
    high: float = 200.0
    blur: int = 5
    options: images.Options = images.DEFAULT

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise types.UserError(
                f"--low={self.low:g} and --high={self.high:g}, but 0 <= low < high is needed"
            )
        if self.blur < 1 or self.blur % 2 == 0:
            raise types.UserError(f"--blur={self.blur}, but an odd number of pixels is needed")

    def note(self) -> dict[str, Any]:
        """Returns what is written down beside a map."""
        options = self.options
        turned, page = options.exif_orientation, options.background
        numbers = {name: getattr(self, name) for name in ("kind", "low", "high", "blur")}
        return {**numbers, "exif_orientation": turned, "transparency": page}

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Returns the edge map of an RGB picture, [height, width] uint8."""
        grey = cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2GRAY)
        if self.blur > 1:
            grey = cv2.GaussianBlur(grey, (self.blur, self.blur), 0)
        if self.kind == "canny":
            return cv2.Canny(grey, self.low, self.high)
        steep = sum(np.abs(cv2.Sobel(grey, cv2.CV_32F, x, 1 - x, ksize=3)) for x in (0, 1))
        shown = (steep - self.low) / (self.high - self.low)
        return np.rint(np.clip(shown, 0, 1) * 255).astype(np.uint8)


@dataclasses.dataclass(frozen=True)
class Map:
    """The edge map at `path`, of the picture at `picture`."""

    picture: str
    path: str

    def draw(self, drawing: Drawing) -> tuple[dict[str, Any], bool]:
        """Returns how the map was drawn, and whether that was now.

        Raises:
          types.UserError: if the picture cannot be decoded, or the map not be written.
        """
        wanted = {**drawing.note(), "picture_bytes": os.path.getsize(self.picture)}
        found = _note(self.path)
        if found == {**wanted, "opencv": found.get("opencv")}:
            return found, False
        note = {**wanted, "opencv": cv2.__version__}
        text = PngImagePlugin.PngInfo()
        text.add_text(_NOTE, json.dumps(note))
        content = io.BytesIO()
        pixels = drawing(images.decode(self.picture, drawing.options))
        Image.fromarray(pixels).save(content, "PNG", pnginfo=text)
        _write(self.path, content.getvalue())
        return note, True


def plan(pictures: lists.PictureList, edges: str, image_root: str) -> list[Map]:
    """Returns the map of every record; below `edges` they lie as the pictures below their root.

    Raises:
      types.UserError: if pictures are no files of their own.
    """
    packed = [str(row.image) for row in pictures.records if not isinstance(row.image, str)]
    if packed:
        raise types.UserError(
            f"{len(packed)} pictures are no files of their own ({types.at_most_ten(packed[:3])}), "
            "so a list cannot name them; unpack them first"
        )
    root = image_root or os.path.dirname(pictures.path)
    made = []
    for record in pictures.records:
        parts = os.path.relpath(record.image, root).split(os.sep)
        parts = ("up" if part == os.pardir else part for part in parts)
        made.append(Map(record.image, os.path.join(edges, *parts) + ".png"))
    return made


def draw(maps: Sequence[Map], drawing: Drawing) -> tuple[dict[str, dict[str, Any]], int]:
    """Draws the maps that are not there yet.

    Returns:
      Path -> how it was drawn, and how many were drawn now.

    Raises:
      types.UserError: if some cannot be drawn, once all others are.
    """
    todo = list({item.path: item for item in maps}.values())
    notes, new, wrong = {}, 0, []

    def attempt(item: Map) -> tuple[dict[str, Any], bool] | Exception:
        try:
            return item.draw(drawing)
        except (types.UserError, OSError) as error:
            return error

    progress = logging.Progress("edges", "picture")
    cv2.setNumThreads(1)  # The pool has one for each core.
    with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(todo), _AT_ONCE):
            some = todo[start : start + _AT_ONCE]
            for item, result in zip(some, pool.map(attempt, some), strict=True):
                if isinstance(result, Exception):
                    wrong.append(str(result))
                else:
                    notes[item.path] = result[0]
                    new += result[1]
            progress(start + len(some), len(todo))
    progress.close()
    if wrong:
        raise types.UserError(
            f"{len(wrong)} of {len(todo)} pictures have no edge map now, so no list was written; "
            f"the first: {types.at_most_ten(wrong[:3], '; ')}; mend them, or leave them out"
        )
    return notes, new


def write(
    pictures: lists.PictureList, maps: Sequence[Map], notes: dict[str, dict[str, Any]], out: str
) -> None:
    """Writes the list with the edge maps, a JSON array with one row a line.

    Pictures below the new list's folder, and all maps, are named from there.

    Raises:
      types.UserError: if it cannot be written.
    """
    folder = os.path.dirname(out)
    lines = []
    for record, item in zip(pictures.records, maps, strict=True):
        inside = record.image.startswith(os.path.join(folder, ""))
        one = len(record.captions) == 1
        note = {key: value for key, value in notes[item.path].items() if key != "picture_bytes"}
        row = {
            "original_filename": os.path.relpath(record.image, folder) if inside else record.image,
            "original_caption": record.captions[0] if one else list(record.captions),
            **record.extra,
            "original_filename_structure": os.path.relpath(item.path, folder),
            "structure": note,
        }
        row |= {"id": record.id} if record.id != os.path.basename(record.image) else {}
        row |= {"group": record.group} if record.group else {}
        lines.append(json.dumps(row, ensure_ascii=False))
    _write(out, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def _lost(pictures: lists.PictureList, out: str, image_root: str) -> int:
    """Returns how many files of segments are there, but not as seen from the new list."""
    places = paths.Places(os.path.dirname(out), image_root)
    segments = (part for record in pictures.records for part in record.extra.get("segment") or ())
    names = filter(None, (part.get("filename") for part in segments if isinstance(part, dict)))
    return sum(pictures.locate(name) != places.locate(name) for name in names)


def _note(path: str) -> dict[str, Any]:
    """Returns how a map was drawn; nothing if it is not there, or another program's."""
    try:
        with Image.open(path) as image:
            return json.loads(image.info[_NOTE])
    except (OSError, KeyError, ValueError):
        return {}


def _write(path: str, content: bytes) -> None:
    """Writes a file that is never seen half-written."""
    scratch = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(scratch, "wb") as file:
            file.write(content)
        os.replace(scratch, path)
    except OSError as error:
        raise types.UserError(f"cannot write {path}: {error.strerror}") from error


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("data", None, "list of pictures and captions", flag_values=values)
    flags.DEFINE_string("edges", None, "folder for the edge maps", flag_values=values)
    flags.DEFINE_string("out", None, "list to write", flag_values=values)
    sources.define_flags(values, data=False)
    flags.DEFINE_enum("kind", KINDS[0], KINDS, "what is drawn", flag_values=values)
    for name, default in (("low", 100.0), ("high", 200.0)):
        flags.DEFINE_float(name, default, f"the {name}er threshold", flag_values=values)
    flags.DEFINE_integer("blur", 5, "pixels of the Gaussian, odd; 1 = none", flag_values=values)
    pictures_lib.define_flags(values)
    return values


def run(values: flags.FlagValues) -> None:
    """Draws the maps and writes the list, or raises types.UserError."""
    for name in ("data", "edges", "out"):
        if not getattr(values, name):
            raise types.UserError(f"--{name} is missing; see --help")
    options = pictures_lib.options(values)
    drawing = Drawing(values.kind, values.low, values.high, values.blur, options)
    if cv2 is None:
        raise types.UserError("edge maps need OpenCV: pip install 'hnclip_jax[edges]'")
    out, edges = (os.path.abspath(os.path.expanduser(p)) for p in (values.out, values.edges))
    if os.path.isdir(out) or out == os.path.abspath(values.data):
        raise types.UserError(f"--out={values.out} is a folder or the list itself; name a new file")
    source = sources.from_flags(values)
    pictures = sources.read(source, part="train").pictures
    maps = plan(pictures, edges, source.image_root)
    notes, new = draw(maps, drawing)
    write(pictures, maps, notes, out)
    logging.say(
        f"{_NAME}: {new:,} edge maps drawn, {len(notes) - new:,} kept, in {edges}; "
        f"{len(maps):,} rows in {out}"
    )
    lost = _lost(pictures, out, source.image_root)
    if lost:
        logging.say(
            f"{_NAME}: {lost:,} files of segments are not found from {out}; write the list beside "
            f"{values.data}, or set image_root to their folder"
        )


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 done, 2 a mistake of the user."""
    values = _flags()
    if "--help" in argv:
        print(f"{__doc__}\nFlags:\n{values.get_help()}")
        return 0
    try:
        left = values(argv)[1:]
        if left:
            raise types.UserError(f"{left[0]!r} is no flag; write --data={left[0]} for a list")
        run(values)
    except (types.UserError, flags.Error) as error:
        print(f"{_NAME}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
