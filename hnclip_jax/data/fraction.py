"""A share of a training list: by seed, and smaller shares within larger ones."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hnclip_jax.data import lists


@dataclasses.dataclass(frozen=True, eq=False)
class Some(Sequence):
    """Some items of a sequence, looked up when they are asked for.

    items: all of them.
    positions: [n] int64, those that are meant.
    """

    items: Sequence[Any]
    positions: np.ndarray

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self.positions)

    def __getitem__(self, position: int | slice) -> Any:
        """Returns one item, or a tuple of those of a slice."""
        if isinstance(position, slice):
            return tuple(self.items[int(at)] for at in self.positions[position])
        return self.items[int(self.positions[position])]


def take(pictures: lists.PictureList, fraction: float, seed: int) -> lists.PictureList:
    """Returns a share of the pictures of a list, with all of their captions, in the list's order.

    Args:
      pictures: the whole list.
      fraction: above 0, at most 1; the number of pictures is rounded up.
      seed: which pictures; with one seed, a smaller share is a part of every larger one.
    """
    if fraction == 1:
        return pictures
    count = len(pictures.records)
    order = np.random.default_rng(seed).permutation(count)
    # Half a millionth less, or 0.1 of 30 would be 4 by rounding.
    some = Some(pictures.records, np.sort(order[: max(1, math.ceil(fraction * count - 5e-7))]))
    texts = [text for record in some for text in record.captions]
    report = dataclasses.replace(
        pictures.report, pairs=len(texts), duplicates=len(texts) - len(set(texts))
    )
    return dataclasses.replace(pictures, records=some, report=report)
