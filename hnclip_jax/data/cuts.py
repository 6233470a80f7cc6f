"""Pictures cut into regions, captions into sentences, and the segments that scores make of both."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax.data import images, lists, proposals, regions, segments, sentences, tokenizer

_BOX = ("x1", "y1", "x2", "y2", "width", "height")
_EDGES = "original_filename_structure"

Locate = Callable[[str], str | None]


@dataclasses.dataclass(frozen=True)
class Cutter:
    """Record -> `Cut`: what becomes of it before anything is embedded.

    boxes: given ones; None = fixed regions for all.
    grid: of fixed regions.
    least, most: range of a given region's share of the area.
    size: pixels of a crop's side.
    options: how files become pixels.
    tokenize, context_length: how sentences become ids.
    """

    boxes: proposals.Boxes | None
    grid: int
    least: float
    most: float
    size: int
    options: images.Options
    tokenize: tokenizer.Tokenizer
    context_length: int

    def __call__(self, record: lists.Record) -> "Cut":
        """Decodes a picture once and cuts it up."""
        texts = list(dict.fromkeys(t for text in record.captions for t in sentences.split(text)))
        ids, truncated = self.tokenize(texts, self.context_length)
        if not texts:
            size = (0, self.size, self.size, 3)
            return Cut(record, [], ids, 0, [], np.zeros(size, np.uint8), False)
        picture = images.decode(record.image, self.options)
        given = self._given(record.image, picture.size)
        found = given or proposals.fixed(picture.size, self.grid)
        found = [proposals.whole(picture.size), *found]
        crops = [
            images.resize_and_crop(regions.cut(picture, one.box), self.size, self.options)
            for one in found
        ]
        return Cut(record, texts, ids, int(truncated.sum()), found, np.stack(crops), not given)

    def _given(self, path: str, sides: tuple[int, int]) -> list[proposals.Region]:
        name = self.boxes.find(path) if self.boxes else None
        return self.boxes.of(name, sides, self.least, self.most) if name else []


class Cut(NamedTuple):
    """A record, cut up.

    record: of the list.
    texts: its sentences.
    ids: [sentences, S] int32.
    truncated: how many of them are longer than S.
    regions: the whole picture first.
    crops: [regions, size, size, 3] uint8.
    is_fixed: whether no given box fits.
    """

    record: lists.Record
    texts: list[str]
    ids: np.ndarray
    truncated: int
    regions: list[proposals.Region]
    crops: np.ndarray
    is_fixed: bool


def row(
    one: Cut, scores: np.ndarray, *, keep_whole: bool, folder: str, locate: Locate
) -> dict[str, Any]:
    """Returns the row of a list with segments: each sentence gets the region with its best score.

    Args:
      one: the record, cut up.
      scores: [sentences, regions] float32; of equal ones the first counts.
      keep_whole: whether the whole picture makes a segment; without, such a sentence has none.
      folder: of the new list; what lies below it is named from there.
      locate: of the old list, see `lists.PictureList`.
    """
    found = []
    for text, of_regions in zip(one.texts, scores, strict=True):
        best = int(np.argmax(of_regions))
        box, source = one.regions[best]
        if source == proposals.WHOLE and not keep_whole:
            continue
        sides = (box.right - box.left, box.bottom - box.top)
        found.append(
            {
                "caption": text,
                "similarity_score": round(float(of_regions[best]), 4),
                "bbox_coordinates": dict(zip(_BOX, (*box, *sides), strict=True)),
                "source": source,
            }
        )
    record, extra = one.record, dict(one.record.extra)
    if isinstance(edges := extra.get(_EDGES), str):
        extra[_EDGES] = _named(locate(edges) or edges, folder)
    texts = record.captions
    made = {
        "original_filename": _named(record.image, folder),
        "original_caption": texts[0] if len(texts) == 1 else texts,
        **extra,
        segments.KEY: found,
    }
    if record.id != os.path.basename(record.image):
        made["id"] = record.id
    return made | ({"group": record.group} if record.group else {})


def _named(path: str, folder: str) -> str:
    """Returns a path as a list in `folder` has it: relative if it leads to below that folder."""
    inside = path.startswith(os.path.join(folder, ""))
    return os.path.relpath(path, folder) if inside else path
