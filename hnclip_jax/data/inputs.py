"""What methods load beside the pair: the table INPUTS, name -> what makes a loader of it.

    short      short_tokens [S] int32: the caption's first sentence
    segment    crop, crop_tokens, has_crop, patch_mask, word_mask_of_crop; see crops.py
    structure  edge maps and what belongs to them; see structure.py
    negatives  negative_tokens [S] int32, has_negative bool: a caption that is wrong

A row is a pair, as `lists.views` counts them: each caption of a picture makes its own.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hnclip_jax import groups, types
from hnclip_jax.data import crops, images, lists, survey, tokenizer
from hnclip_jax.data.formats import fields

NEGATIVE = "negative_caption"


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """What a loader may depend on.

    pictures: the list.
    image_size: pixels of a picture's side.
    patch_size: pixels of a patch's side.
    context_length: S.
    tokenize: caption -> ids.
    options: how files become pixels.
    method: the method's settings.
    """

    pictures: lists.PictureList
    image_size: int
    patch_size: int
    context_length: int
    tokenize: tokenizer.Tokenizer
    options: images.Options
    method: groups.MethodGroup


class Loader(Protocol):
    """Loads one row; picklable, since workers are separate processes."""

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Returns the arrays of a row, as `losses.terms` and `types.Batch` name them."""

    def describe(self) -> str:
        """Returns one line: how much of the list has what it loads."""


@dataclasses.dataclass(frozen=True, eq=False)
class LoadShort:
    """Row -> {"short_tokens": [S] int32}, the caption up to its first ". "."""

    captions: Sequence[str]
    tokenize: tokenizer.Tokenizer
    context_length: int

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Encodes the beginning of one caption."""
        text = first_sentence(self.captions[row])
        return {"short_tokens": self.tokenize(text, self.context_length).ids[0]}

    def describe(self) -> str:
        """Returns one line: how many captions have more than one sentence."""
        longer = sum(len(first_sentence(text)) < len(text) for text in self.captions)
        return f"short: {longer:,} of {len(self.captions):,} captions have more than one sentence"


def first_sentence(caption: str) -> str:
    """Returns a caption up to its first ". ", without it; the whole caption if there is none.

    References:
      beichenzbc/Long-CLIP, train/sharegpt4v.py: line ends become blanks before.
    """
    flat = caption.replace("\n", " ")
    return flat.split(". ", 1)[0] or flat


@dataclasses.dataclass(frozen=True, eq=False)
class LoadNegative:
    """Row -> {"negative_tokens": [S] int32, "has_negative": bool}.

    records: of the list.
    positions, inside: [pairs] int32, the record of each pair, and which caption of it.
    """

    records: Sequence[lists.Record]
    positions: np.ndarray
    inside: np.ndarray
    tokenize: tokenizer.Tokenizer
    context_length: int

    def __call__(self, row: int) -> dict[str, np.ndarray]:
        """Encodes the wrong caption of one pair."""
        record = self.records[int(self.positions[row])]
        text = negatives(record)[int(self.inside[row])]
        return {
            "negative_tokens": self.tokenize(text, self.context_length).ids[0],
            "has_negative": np.bool_(text != ""),
        }

    def describe(self) -> str:
        """Returns one line: how many captions have a negative."""
        count = sum(text != "" for record in self.records for text in negatives(record))
        return f"negatives: {count:,} of {len(self.positions):,} captions have one"


def negatives(record: lists.Record) -> list[str]:
    """Returns the wrong caption that belongs to each caption of a record; "" where it has none.

    One text holds for all captions of the record. Of a list, each caption gets its own; a single
    caption gets the first.

    Raises:
      ValueError: says what is wrong with them.
    """
    found: Any = record.extra.get(NEGATIVE)
    texts = found if isinstance(found, list) else [found] * len(record.captions)
    if len(record.captions) == 1:
        texts = texts[:1] or [None]
    if len(texts) != len(record.captions):
        raise ValueError(f"it has {len(texts)} for {len(record.captions)} captions")
    for text in texts:
        if not isinstance(text, str | None):
            raise ValueError(f"it is {text!r:.60}")
    return [survey.clean([text])[0] for text in texts]


def _build_short(context: Context) -> LoadShort:
    captions = lists.views(context.pictures.records)[1]
    return LoadShort(captions, context.tokenize, context.context_length)


def _build_negatives(context: Context) -> LoadNegative:
    pictures = context.pictures
    wrong, first, count = fields.Marked(), "", 0
    for record in pictures.records:
        try:
            count += any(negatives(record))
        except ValueError as error:
            first = first or str(error)
            wrong.add(record.index)
    if wrong:
        raise types.UserError(
            f"{pictures.path}: {wrong.of(len(pictures.records))} have a {NEGATIVE!r} that does not "
            f"fit ({wrong}); in the first, {first}; needed is a text, or a list of one per caption"
        )
    if not count:
        raise types.UserError(
            f"{pictures.path}: no row has a {NEGATIVE!r}, which this loss needs; add to the JSON "
            "list a text, or a list of one per caption, that is wrong of the picture"
        )
    captions = lists.views(pictures.records)[1]
    return LoadNegative(
        pictures.records,
        captions.positions,
        captions.inside,
        context.tokenize,
        context.context_length,
    )


def _build_structure(context: Context) -> Loader:
    # Here, because most runs need none of it.
    from hnclip_jax.data import structure

    return structure.build(context)


INPUTS: dict[str, Callable[[Context], Loader]] = {
    "short": _build_short,
    "segment": crops.build,
    "structure": _build_structure,
    "negatives": _build_negatives,
}
