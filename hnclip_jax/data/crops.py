"""Loads, beside each pair, the segment of the picture that fits its sentence best.

A segment's own file is taken where it is there; else it is cut out of the whole picture by its box.
Pictures without a segment stay in the list: theirs is masked.
"""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hnclip_jax import types
from hnclip_jax.data import images, lists, regions, segments, tokenizer
from hnclip_jax.data.formats import fields

if TYPE_CHECKING:
    from hnclip_jax.data import inputs


class _Place(NamedTuple):
    """Where a segment is.

    reference: of its picture; None = it has none.
    patches: [N] bool, those of the whole picture that belong to it.
    """

    reference: images.Reference | None
    patches: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class LoadSegment:
    """Row -> crop, its sentence, and where both are in the whole; input "segment".

        crop               [size, size, 3] uint8, black where there is none
        crop_tokens        [S] int32, of the sentence
        has_crop           bool
        patch_mask         [N] bool, patches of the whole picture that the segment's box touches
        word_mask_of_crop  [S] bool, tokens of the whole caption that are the sentence

    records: of the list.
    positions: [pairs] int32, the record of each pair.
    captions: of the pairs.
    locate: see `lists.PictureList`.
    tokenize, options: as the pair is loaded.
    size, patch_size, context_length: numbers of the model.
    as_released: patches and words as GOAL's released code takes them.
    """

    records: Sequence[lists.Record]
    positions: np.ndarray
    captions: Sequence[str]
    locate: Callable[[str], str | None]
    tokenize: tokenizer.Tokenizer
    options: images.Options
    size: int
    patch_size: int
    context_length: int
    as_released: bool

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Loads the best segment of a pair's picture."""
        record = self.records[int(self.positions[row])]
        segment = of(record)
        place = segment and self._place(record, segment)
        if place is None or place.reference is None:
            return self._nothing()
        mask = segments.word_mask_as_released if self.as_released else segments.word_mask
        return {
            "crop": images.load_image(place.reference, self.size, self.options),
            "crop_tokens": self._tokens(segment.caption),
            "has_crop": np.bool_(True),
            "patch_mask": place.patches,
            "word_mask_of_crop": mask(
                self.tokenize, self.captions[row], segment.caption, self.context_length
            ),
        }

    def describe(self) -> str:
        """Returns one line: how many pictures have a segment, and what is wrong with the others.

        Reads the header of every picture.
        """
        with futures.ThreadPoolExecutor() as pool:
            counts = np.sum([*pool.map(self._look, self.records)], axis=0)
        crops, files, without_box, outside, lost = counts
        return (
            f"segment: {crops:,} of {len(self.records):,} pictures have one, {files:,} in a file, "
            f"{crops - files:,} to be cut out; {without_box:,} have no usable box, {outside:,} "
            f"boxes are outside of the crop, {lost:,} sentences are not in the caption"
        )

    def _look(self, record: lists.Record) -> tuple[bool, ...]:
        """Returns whether it has a crop, in a file, no box, one outside, a lost sentence."""
        segment = of(record)
        if segment is None:
            return (False,) * 5
        reference, patches = self._place(record, segment)
        is_cut = isinstance(reference, regions.CutOut)
        outside = segment.box is not None and not patches.any()
        lost = all(segments.find(text, segment.caption) is None for text in record.captions)
        has_crop = reference is not None
        return has_crop, has_crop and not is_cut, segment.box is None, outside, lost

    def _place(self, record: lists.Record, segment: segments.Segment) -> _Place:
        reference = self.locate(segment.filename) if segment.filename else None
        box = segment.box
        if box is None:
            return _Place(reference, self._no_patches())
        sides = regions.sides(record.image, self.options)
        if reference is None and regions.inside(box, sides):
            reference = regions.CutOut(record.image, box, self.options)
        if self.as_released:
            patches = len(self._no_patches())
            mask = regions.patch_mask_as_released(box, segment.frame, self.size, patches)
        else:
            mask = regions.patch_mask(box, sides, self.size, self.patch_size)
        return _Place(reference, mask)

    def _nothing(self) -> dict[str, np.ndarray]:
        return {
            "crop": np.zeros((self.size, self.size, 3), np.uint8),
            "crop_tokens": self._tokens(""),
            "has_crop": np.bool_(False),
            "patch_mask": self._no_patches(),
            "word_mask_of_crop": np.zeros(self.context_length, bool),
        }

    def _no_patches(self) -> np.ndarray:
        return np.zeros((self.size // self.patch_size) ** 2, bool)

    def _tokens(self, text: str) -> np.ndarray:
        return self.tokenize(text, self.context_length).ids[0]


def of(record: lists.Record) -> segments.Segment | None:
    """Returns the segment of a record that is loaded; None if it has none.

    Raises:
      ValueError: says what is wrong with its segments.
    """
    return segments.best(segments.parse(record.extra.get(segments.KEY)))


def build(context: "inputs.Context") -> LoadSegment:
    """Returns the loader of input "segment", after a look at the segments of the whole list.

    Raises:
      types.UserError: if some are no segments, none has a box or a file, or two files would be one.
    """
    as_released = context.method.goal_mode == "as_released"
    if as_released:
        regions.check_released(context.image_size, context.patch_size)
    _check(context.pictures)
    pictures_of, captions = lists.views(context.pictures.records)
    return LoadSegment(
        records=context.pictures.records,
        positions=pictures_of.positions,
        captions=captions,
        locate=context.pictures.locate,
        tokenize=context.tokenize,
        options=context.options,
        size=context.image_size,
        patch_size=context.patch_size,
        context_length=context.context_length,
        as_released=as_released,
    )


def _check(pictures: lists.PictureList) -> None:
    wrong, first, count = fields.Marked(), "", 0
    names: dict[str, str] = {}
    for record in pictures.records:
        try:
            segment = of(record)
        except ValueError as error:
            first = first or str(error)
            wrong.add(record.index)
            continue
        path = pictures.locate(segment.filename) if segment and segment.filename else None
        count += bool(path or (segment and segment.box))
        if path and names.setdefault(path, segment.filename) != segment.filename:
            raise types.UserError(
                f"{pictures.path}: the segments {names[path]!r} and {segment.filename!r} would "
                f"both be {path}; keep their folders under image_root"
            )
    if wrong:
        raise types.UserError(
            f"{pictures.path}: {wrong.of(len(pictures.records))} have a segment that is none "
            f"({wrong}); in the first, {first}; {segments.NEEDED}"
        )
    if not count:
        raise types.UserError(
            f"{pictures.path}: no row has a {segments.KEY!r} with a box or a file that is there, "
            "which this method needs; tools/make_segments.py makes a list with segments of this one"
        )
