"""How many items score above, and how many the same as, given scores: blockwise, both directions.

One pass over the products serves both directions. The scores to compare with are taken from
products too, of the same compiled program and shape: only so is an equal score equal to the bit.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hnclip_jax import types

Progress = Callable[[int, int], None]

# Every product has this many captions and, for one gallery, as many pictures, because the last bit
# of a score may depend on the shape of the product. So no count depends on the size of the blocks.
_TILE = 256
_PICTURES = 1024
# Two counts share an int32; so neither side of a block may be longer than 2 ** 15.
_MOST_ROWS, _SHIFT = 16_384, 16


class Counts(NamedTuple):
    """Items of the gallery for each score that was asked about, right ones included; int64.

    greater: [N, R], items above it.
    equal: [N, R], items of that score.
    """

    greater: np.ndarray
    equal: np.ndarray


class Scores:
    """Scores of pictures and captions, a block at a time; never all at once.

    What a score is, subclasses say by `block`, `tile` and `scores`. Pictures and captions go by
    their places in an order: where pairs that belong together are near each other, few blocks hold
    their scores.

    pictures, texts: how many there are.
    rows: captions of a block.
    columns: pictures of a tile.
    """

    def __init__(self, pictures: int, texts: int, rows: int, columns: int) -> None:
        """Takes the sizes."""
        self.pictures, self.texts, self.rows, self.columns = pictures, texts, rows, columns

    def block(self, first: int, last: int) -> Any:
        """Returns what `scores` needs of captions: those of these places, padded to `rows`."""
        raise NotImplementedError

    def tile(self, first: int, last: int) -> Any:
        """Returns what `scores` needs of pictures: those of these places, padded to `columns`."""
        raise NotImplementedError

    def scores(self, block: Any, tile: Any) -> jax.Array:
        """Returns [rows, columns] float32, always by one compiled program; padding scores 0."""
        raise NotImplementedError

    def of_pairs(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Returns the [P] float32 scores of captions with pictures, each by its place in the order.

        Args:
          rows: [P] int, captions; ascending.
          columns: [P] int, pictures.
        """
        scores = np.empty(len(rows), np.float32)
        tiles = _spans(self.pictures, self.columns)
        for first, last in _spans(self.texts, self.rows):
            begin, end = np.searchsorted(rows, (first, last))
            tile = columns[begin:end] // self.columns
            block = self.block(first, last)
            for index in np.unique(tile):
                there = begin + np.flatnonzero(tile == index)
                found = np.asarray(self.scores(block, self.tile(*tiles[index])))
                scores[there] = found[rows[there] - first, columns[there] - tiles[index][0]]
        return scores

    def count(
        self, text_scores: np.ndarray, image_scores: np.ndarray, progress: Progress | None = None
    ) -> tuple[Counts, Counts]:
        """Returns what stands above and beside given scores: for captions, and for pictures.

        Args:
          text_scores: [T, R] float32, of captions in their order; infinity asks nothing.
          image_scores: [M, R'] float32, of pictures.
          progress: called with (captions done, captions).
        """
        text_counts = np.zeros((2, *text_scores.shape), np.int64)
        image_counts = np.zeros((2, *image_scores.shape), np.int64)
        tiles = _spans(self.pictures, self.columns)
        asked = [jnp.asarray(padded(image_scores[a:b], self.columns)) for a, b in tiles]
        for first, last in _spans(self.texts, self.rows):
            block = self.block(first, last)
            wanted = jnp.asarray(padded(text_scores[first:last], self.rows))
            for (left, right), own in zip(tiles, asked, strict=True):
                found = self.scores(block, self.tile(left, right))
                # Fetched at once: a queue of products would hold several of them.
                text, image = jax.device_get(_tally(found, wanted, own))
                text_counts[:, first:last] += _apart(text)[:, : last - first]
                image_counts[:, left:right] += _apart(image)[:, : right - left]
            if progress:
                progress(last, self.texts)
        pictures = _up(self.pictures, self.columns) - self.pictures
        texts = _up(self.texts, self.rows) - self.texts
        return (
            _without_padding(text_counts, text_scores, pictures),
            _without_padding(image_counts, image_scores, texts),
        )


class Products(Scores):
    """Cosines."""

    def __init__(
        self,
        image: np.ndarray,
        text: np.ndarray,
        order: tuple[np.ndarray, np.ndarray],
        block_rows: int,
    ) -> None:
        """Normalises the pictures; captions follow block by block.

        Args:
          image: [M, D] float32, finite, of any length.
          text: [T, D] float32, likewise.
          order: which picture and which caption is the first, second, ... in all that follows.
          block_rows: captions of a block, rounded up to a multiple of 256.
        """
        rows = _up(min(block_rows, len(text), _MOST_ROWS), _TILE)
        columns = _up(math.ceil(len(image) / math.ceil(len(image) / _PICTURES)), _TILE // 2)
        super().__init__(len(image), len(text), rows, columns)
        self._text, self._text_order = text, order[1]
        self._tiles = {
            first: jnp.asarray(padded(unit(image[order[0][first:last]]), columns))
            for first, last in _spans(len(image), columns)
        }

    def block(self, first: int, last: int) -> jax.Array:
        """Returns [rows, D] unit vectors."""
        return jnp.asarray(padded(unit(self._text[self._text_order[first:last]]), self.rows))

    def tile(self, first: int, last: int) -> jax.Array:
        """Returns [columns, D] unit vectors."""
        del last
        return self._tiles[first]

    def scores(self, block: jax.Array, tile: jax.Array) -> jax.Array:
        """Returns their cosines."""
        return _product(block, tile)


def unit(rows: np.ndarray) -> np.ndarray:
    """Returns [N, D] rows of length 1; a row of zeros stays one, and scores 0."""
    # First by the largest entry, because the squares could overflow or vanish.
    rows = _divided(rows, np.abs(rows).max(axis=1))
    return _divided(rows, np.linalg.norm(rows, axis=1))


def _divided(rows: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return rows / np.where(sizes > 0, sizes, 1)[:, None]


def _up(count: int, unit_size: int) -> int:
    return unit_size * math.ceil(count / unit_size)


def _spans(count: int, size: int) -> list[tuple[int, int]]:
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def padded(rows: np.ndarray, count: int) -> np.ndarray:
    """Returns [count, ...]: the rows, and behind them rows of zeros."""
    return np.pad(rows, [(0, count - len(rows))] + [(0, 0)] * (rows.ndim - 1))


@jax.jit
def _product(text: jax.Array, image: jax.Array) -> jax.Array:
    """Returns the [rows, columns] scores of a block of captions and a tile of pictures."""

    def scores(tile: jax.Array) -> jax.Array:
        return jnp.einsum("td,md->tm", tile, image, precision="highest")

    tiles = text.reshape(-1, _TILE, text.shape[1])
    return jax.lax.map(scores, tiles).reshape(len(text), len(image))


@jax.jit
def _tally(
    scores: jax.Array, text_scores: jax.Array, image_scores: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Returns [rows, R] and [columns, R'] int32: greater in the upper half, equal in the lower."""

    def count(axis: int, wanted: jax.Array) -> jax.Array:
        there = jnp.expand_dims(wanted, axis)
        both = jnp.where(scores > there, 1 << _SHIFT, (scores == there).astype(jnp.int32))
        return jnp.sum(both, axis=axis)

    return (
        jnp.stack([count(1, text_scores[:, r]) for r in range(text_scores.shape[1])], axis=1),
        jnp.stack([count(0, image_scores[:, r]) for r in range(image_scores.shape[1])], axis=1),
    )


def _apart(counts: np.ndarray) -> np.ndarray:
    return np.stack([counts >> _SHIFT, counts & ((1 << _SHIFT) - 1)])


def _without_padding(counts: np.ndarray, scores: np.ndarray, padding: int) -> Counts:
    # Padding is zeros, which score exactly 0 with everything.
    greater, equal = counts
    return Counts(greater - padding * (scores < 0), equal - padding * (scores == 0))


def check_rows(name: str, rows: types.Array) -> np.ndarray:
    """Returns [N, D] float32 rows, checked.

    Raises:
      types.UserError: for another shape, or values that are not finite.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    if rows.ndim != 2 or not rows.size:
        raise types.UserError(f"{name} embeddings have shape {rows.shape}; needed is [rows, width]")
    # In parts, because the answers for all values at once would take a quarter of their memory.
    spans = _spans(len(rows), 4096)
    finite = np.concatenate([np.isfinite(rows[a:b]).all(axis=1) for a, b in spans])
    bad = np.flatnonzero(~finite)
    if bad.size:
        raise types.UserError(
            f"{bad.size} of {len(rows)} {name} embeddings hold NaN or infinity, the first is row "
            f"{bad[0]}; look at that input, or compute in float32"
        )
    return rows
