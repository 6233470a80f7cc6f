"""What StructXLIP looks at beside a pair: edge maps, the caption without looks, and its phrases."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images, lists, offsets, regions, selection, structure_text, tokenizer

if TYPE_CHECKING:
    from hnclip_jax.data import inputs

WHOLE = "original_filename_structure"
LOCAL = "filename_structure_cropped"

# More than any caption has tokens: positions as if the context had no end.
_UNBOUNDED = 2**30


@dataclasses.dataclass(frozen=True, eq=False)
class LoadStructure:
    """Row -> what StructXLIP needs of a pair; input "structure".

        edge              [size, size, 3] uint8, the picture's edge map, black if it has none
        has_edge          bool
        structure_tokens  [S] int32, of the caption without looks
        spans             [64, 2] int32, its phrases, (start, stop) positions of tokens
        local_edge        [K, size, size, 3] uint8, edge maps of the K best segments, likewise
        has_local         [K] bool

    A segment's own edge map is taken where it is there; else it is cut out of the picture's by its
    box. A map that is not there is black and False; one that cannot be read is an error.

    captions: of the pairs.
    context: see there.
    """

    captions: lists.PairView
    context: "inputs.Context"

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Loads one pair.

        Raises:
          types.UserError: for an edge map that is there, but cannot be read.
        """
        context = self.context
        record = self.captions.records[int(self.captions.positions[row])]
        text = structure_text.without_looks(self.captions[row], context.method.structxlip_filter)
        whole = self._read(record.extra.get(WHOLE))
        maps = [self._pixels(one) for one in (whole, *self._local(record, whole))]
        none = np.zeros((context.image_size, context.image_size, 3), np.uint8)
        pixels = np.stack([none if one is None else one for one in maps])
        has = np.array([one is not None for one in maps])
        return {
            "edge": pixels[0],
            "has_edge": has[0],
            "structure_tokens": context.tokenize(text, context.context_length).ids[0],
            "spans": phrase_spans(
                context.tokenize, text, context.context_length, context.method.structxlip_mode
            ),
            "local_edge": pixels[1:],
            "has_local": has[1:],
        }

    def describe(self) -> str:
        """Returns one line: how many pictures have an edge map, and how many local ones."""
        records, locate = self.captions.records, self.context.pictures.locate
        whole = local = 0
        for record in records:
            found = _locate(locate, record.extra.get(WHOLE)) is not None
            whole += found
            local += any(
                _locate(locate, segment.get(LOCAL)) or (found and _box(segment))
                for segment in _best(record, self.context.method.structxlip_top_k)
            )
        return (
            f"structure: {whole:,} of {len(records):,} pictures have an edge map, {local:,} have "
            "edge maps of segments"
        )

    def _local(self, record: lists.Record, whole: Image.Image | None) -> list[Image.Image | None]:
        """Returns the edge maps of the K best segments, the best first; None = it has none."""
        count = self.context.method.structxlip_top_k
        best = _best(record, count)
        maps = [self._read(segment.get(LOCAL)) for segment in best]
        boxes = [_box(segment) for segment in best]
        if whole is not None and None in maps and any(boxes):
            sides = regions.sides(record.image, self.context.options)
            maps = [
                _cut(whole, box, sides) if found is None and box else found
                for found, box in zip(maps, boxes, strict=True)
            ]
        return maps + [None] * (count - len(maps))

    def _read(self, name: Any) -> Image.Image | None:
        """Returns an edge map, RGB of three equal channels; None if it is not there."""
        path = _locate(self.context.pictures.locate, name)
        if path is None:
            return None
        # Lines are white: where a map is transparent, nothing is.
        options = dataclasses.replace(self.context.options, background="black")
        return images.decode(path, options).convert("L").convert("RGB")

    def _pixels(self, edges: Image.Image | None) -> np.ndarray | None:
        if edges is None:
            return None
        return images.resize_and_crop(edges, self.context.image_size, self.context.options)


def build(context: "inputs.Context") -> LoadStructure:
    """Returns the loader of input "structure", after a look at the edge maps of the whole list.

    Raises:
      types.UserError: if no picture has an edge map, a file would be two of them, or a map and a
        picture; or if method.structxlip_filter names a list of words that there is not.
    """
    structure_text.check_lists(context.method.structxlip_filter)
    pictures, top = context.pictures, context.method.structxlip_top_k
    if not any(_locate(pictures.locate, row.extra.get(WHOLE)) for row in pictures.records):
        raise types.UserError(
            f"{pictures.path}: no row has a {WHOLE!r} that is there, which this method needs; "
            "tools/make_edges.py draws edge maps and makes a list with them of this one"
        )
    paths, names = selection.Digests(), selection.Digests()
    for path, name in _files(pictures, top):
        paths.add(path)
        names.add(name)
    clash = selection.clash(paths.array(), names.array())
    if clash:
        (path, one), (_, other) = (
            next(itertools.islice(_files(pictures, top), place, None)) for place in clash
        )
        raise types.UserError(
            f"{pictures.path}: {one!r} and {other!r} would both be {path}; keep the folders of "
            "edge maps and pictures under image_root"
        )
    return LoadStructure(lists.views(pictures.records)[1], context)


def phrase_spans(
    tokenize: tokenizer.Tokenizer, text: str, context_length: int, mode: str
) -> np.ndarray:
    """Returns which tokens a caption's phrases are, [64, 2] int32, (0, 0) where there is none.

    Both modes count the tokens of the caption without looks.

    "fixed": for the states of that caption. A clause of one word is a phrase. Phrases that do not
    lie before the last position, which is left to the end token, are dropped.
    "as_released": for the states of the original caption, where other words stand at these
    positions as soon as one was taken out before. A clause of one word is no phrase; one that
    reaches to the end of the context takes in its last token, be it the end token.

    Args:
      tokenize: makes the tokens.
      text: the caption without looks.
      context_length: S.
      mode: method.structxlip_mode.

    References:
      intelligolabs/StructXLIP, structxlip/losses.py.
    """
    fixed = mode == "fixed"
    parts = structure_text.phrases(text, lone_words=fixed)
    found = offsets.token_spans(tokenize, text, parts, _UNBOUNDED)
    inside = found[:, 1] <= (context_length - 1 if fixed else context_length)
    found = found[inside & (found[:, 0] < found[:, 1])]
    spans = np.zeros((structure_text.MAX_PHRASES, 2), np.int32)
    spans[: len(found)] = found
    return spans


def _files(pictures: lists.PictureList, top: int) -> Iterator[tuple[str, str]]:
    """Yields path and name of every picture, and of every edge map that is there and looked at."""
    for record in pictures.records:
        if isinstance(record.image, str):
            yield record.image, record.image
        names = record.extra.get(WHOLE), *(part.get(LOCAL) for part in _best(record, top))
        for name in names:
            path = _locate(pictures.locate, name)
            if path is not None:
                yield path, name


def _locate(locate: Callable[[str], str | None], name: Any) -> str | None:
    return locate(name) if isinstance(name, str) and name else None


def _best(record: lists.Record, count: int) -> list[Mapping[str, Any]]:
    """Returns the segments with the highest scores, at most `count`; of equals the first."""
    segments = record.extra.get("segment")
    segments = segments if isinstance(segments, list) else []
    objects = [segment for segment in segments if isinstance(segment, dict)]
    return sorted(objects, key=_score, reverse=True)[:count]


def _score(segment: Mapping[str, Any]) -> float:
    score = _number(segment.get("similarity_score"))
    return -math.inf if score is None else score


def _box(segment: Mapping[str, Any]) -> regions.Box | None:
    """Returns where a segment is in the picture; None if that is not said, or nowhere."""
    box = segment.get("bbox_coordinates")
    if not isinstance(box, dict):
        return None
    edges = [_number(box.get(key)) for key in ("x1", "y1", "x2", "y2")]
    if None in edges or edges[0] >= edges[2] or edges[1] >= edges[3]:
        return None
    return regions.Box(*edges)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _cut(edges: Image.Image, box: regions.Box, sides: tuple[int, int]) -> Image.Image | None:
    """Returns the part of an edge map, of any size, that a box in a picture of `sides` covers."""
    right, down = edges.width / sides[0], edges.height / sides[1]
    box = regions.Box(box.left * right, box.top * down, box.right * right, box.bottom * down)
    return regions.cut(edges, box) if regions.inside(box, edges.size) else None
