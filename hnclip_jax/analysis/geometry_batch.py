"""The matrix G of one batch: some captions of a list, drawn at random, and their cosines."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Batch(NamedTuple):
    """Some captions in the order in which they were drawn.

    rows: [B] int64, their positions in the list.
    cosines: [B, B] float64, G.
    negatives: [B, B] bool, False for captions of one pair: on the diagonal at least.
    largest: row and column of the largest cosine of negatives, row < column; None if there are no
      negatives.
    texts: the two captions of that entry, or none.
    """

    rows: np.ndarray
    cosines: np.ndarray
    negatives: np.ndarray
    largest: tuple[int, int] | None
    texts: tuple[str, ...]

    @property
    def value(self) -> float | None:
        """The largest cosine of negatives; None if there are none."""
        return None if self.largest is None else float(self.cosines[self.largest])

    def text(self) -> str:
        """Returns the largest entry with its captions, for a terminal."""
        if self.largest is None:
            return f"A batch of {len(self.rows)} captions has no negatives."
        lines = [f"The largest entry of G in a batch of {len(self.rows)} is {self.value:.4f}:"]
        return "\n".join([*lines, *(f"  {text}" for text in self.texts)])

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON values."""
        return {
            "rows": self.rows.tolist(),
            "cosines": self.cosines.tolist(),
            "negatives": self.negatives.tolist(),
            "largest": self.largest,
            "largest_value": self.value,
            "largest_texts": self.texts,
        }


def draw(
    text: np.ndarray, pair_ids: np.ndarray, captions: Sequence[str], size: int, seed: int
) -> Batch:
    """Returns a batch; for lists of one length and one seed it is the same captions.

    Args:
      text: [T, D] float32, unit norm.
      pair_ids: [T] int; captions with equal ids are no negatives of each other.
      captions: the T texts.
      size: captions in the batch; all of them, if there are fewer.
      seed: of the choice.
    """
    rows = np.random.default_rng(seed).permutation(len(text))[:size]
    chosen = text[rows].astype(np.float64)
    cosines = chosen @ chosen.T
    negatives = pair_ids[rows, None] != pair_ids[rows]
    largest = None
    if negatives.any():
        best = np.argmax(np.where(np.triu(negatives), cosines, -np.inf))
        row, column = np.unravel_index(best, cosines.shape)
        largest = int(row), int(column)
    texts = tuple(captions[rows[at]] for at in largest or ())
    return Batch(rows, cosines, negatives, largest, texts)
