"""Ranks and recall, both directions, any number of captions per picture, a block at a time.

A rank is counted, not sorted: how many wrong items of the gallery score above the best right one,
and how many score the same. Equal scores are shared out by chance, so that a model which gives
every item one score gets K / M, not 100 %.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hnclip_jax import types

# Every product has this many rows, because the last bit of a score may depend on the shape of the
# product that it came from. So no count depends on the size of the blocks.
_TILE = 128
_PADDED_ITEM, _PADDED_QUERY = -1, -2


class Ranks(NamedTuple):
    """Where the best right item of each query stands; int64, one entry per query.

    greater: wrong items with a higher score.
    equal: wrong items with the same score.
    right: right items with that score; 1 or more.
    """

    greater: np.ndarray
    equal: np.ndarray
    right: np.ndarray


def retrieval_metrics(
    image: types.Array,
    text: types.Array,
    text_to_image: Sequence[int] | types.Array | None = None,
    ks: Sequence[int] = (1, 5, 10),
    *,
    block_rows: int = 1024,
) -> dict[str, float]:
    """Returns recall at each of `ks` in percent, by cosine, and the number of tied queries.

    Args:
      image: [M, D] embeddings of the pictures, of any length.
      text: [T, D] embeddings of the captions, of any length.
      text_to_image: [T] int, the row of each caption's picture; None = row i belongs to row i.
      ks: how many items of the gallery count as found.
      block_rows: queries whose scores are held at once, rounded up to a multiple of 128. It bounds
        the memory and changes no result.

    Returns:
      {"t2i_r@1": caption finds picture, ..., "i2t_r@1": picture finds any of its captions, ...,
      "ties": queries of both directions for which a wrong item scores the same as the right one}.

    Raises:
      types.UserError: for shapes that do not fit, values that are not finite, a row number out of
        range, a picture without a caption, or a K below 1.
    """
    if not all(isinstance(k, int | np.integer) and k >= 1 for k in ks):
        raise types.UserError(f"ks is {tuple(ks)}; recall@K needs whole numbers from 1")
    directions = ranks(image, text, text_to_image, block_rows=block_rows)
    metrics: dict[str, float] = {
        f"{name}_r@{k}": recall(found, k) for name, found in directions.items() for k in ks
    }
    metrics["ties"] = sum(int(np.count_nonzero(found.equal)) for found in directions.values())
    return metrics


def ranks(
    image: types.Array,
    text: types.Array,
    text_to_image: Sequence[int] | types.Array | None = None,
    *,
    block_rows: int = 1024,
) -> dict[str, Ranks]:
    """Returns {"t2i": one rank per caption, "i2t": one rank per picture}.

    Args and errors are those of `retrieval_metrics`.
    """
    image, text = _unit_rows("image", image), _unit_rows("text", text)
    if image.shape[1] != text.shape[1]:
        raise types.UserError(
            f"image embeddings have width {image.shape[1]}, text embeddings {text.shape[1]}; "
            "both must come from one model"
        )
    if block_rows < 1:
        raise types.UserError(f"block_rows is {block_rows}, but must be at least 1")
    owner = _owners(text_to_image, len(image), len(text))
    pictures = np.arange(len(image), dtype=np.int32)
    return {
        "t2i": _ranks_of(text, owner, image, pictures, block_rows),
        "i2t": _ranks_of(image, pictures, text, owner, block_rows),
    }


def recall(found: Ranks, k: int, ties: str = "expected") -> float:
    """Returns recall@k in percent.

    With m = max(k - greater, 0) places left for the tied items, a query counts

        expected      1 - C(equal, m) / C(equal + right, m): the chance that a right one gets one
        optimistic    1 if greater < k: the right ones come first
        pessimistic   1 if greater + equal < k: they come last

    Args:
      found: the ranks of one direction.
      k: how many items of the gallery count as found.
      ties: one of the three rules.

    Raises:
      types.UserError: for an unknown rule.
    """
    rules = {
        "expected": _chance(found, k),
        "optimistic": found.greater < k,
        "pessimistic": found.greater + found.equal < k,
    }
    if ties not in rules:
        raise types.unknown_name("tie rule", ties, rules)
    return float(100 * np.sum(rules[ties]) / len(found.greater))


def _chance(found: Ranks, k: int) -> np.ndarray:
    places = np.maximum(k - found.greater, 0)
    miss = np.ones(len(places))
    # The ratio of binomials as a product over the places; it is 0 once the wrong items run out.
    for taken in range(min(places.max(), found.equal.max() + 1)):
        wrong = np.maximum(found.equal - taken, 0)
        miss *= np.where(taken < places, wrong / (wrong + found.right), 1.0)
    return 1 - miss


def _unit_rows(name: str, rows: types.Array) -> np.ndarray:
    """Returns [N, D] float32 rows of length 1; a row of zeros stays one, and scores 0."""
    rows = np.ascontiguousarray(rows, np.float32)
    if rows.ndim != 2 or not rows.size:
        raise types.UserError(f"{name} embeddings have shape {rows.shape}; needed is [rows, width]")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if bad.size:
        raise types.UserError(
            f"{bad.size} of {len(rows)} {name} embeddings hold NaN or infinity, the first is row "
            f"{bad[0]}; look at that input, or compute in float32"
        )
    # First by the largest entry, because the squares could overflow or vanish.
    rows = _divided(rows, np.abs(rows).max(axis=1))
    return _divided(rows, np.linalg.norm(rows, axis=1))


def _divided(rows: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return rows / np.where(sizes > 0, sizes, 1)[:, None]


def _owners(text_to_image: types.Array | None, pictures: int, texts: int) -> np.ndarray:
    """Returns [T] int32, the picture of each caption, checked."""
    if text_to_image is None:
        if pictures != texts:
            raise types.UserError(
                f"{pictures} pictures but {texts} captions; give text_to_image, the row of each "
                "caption's picture"
            )
        return np.arange(texts, dtype=np.int32)
    owner = np.asarray(text_to_image)
    if owner.shape != (texts,) or not np.issubdtype(owner.dtype, np.integer):
        raise types.UserError(
            f"text_to_image is {owner.dtype} {list(owner.shape)}; needed is one whole number for "
            f"each of the {texts} captions"
        )
    if owner.min() < 0 or owner.max() >= pictures:
        raise types.UserError(
            f"text_to_image goes from {owner.min()} to {owner.max()}, but there are {pictures} "
            "pictures; count from 0"
        )
    bare = np.setdiff1d(np.arange(pictures), owner)
    if bare.size:
        raise types.UserError(
            f"{bare.size} of {pictures} pictures have no caption, the first is row {bare[0]}; "
            "leave them out"
        )
    return owner.astype(np.int32)


def _ranks_of(
    queries: np.ndarray,
    query_ids: np.ndarray,
    gallery: np.ndarray,
    gallery_ids: np.ndarray,
    block_rows: int,
) -> Ranks:
    """Returns the ranks of all queries; an item is right for a query if their ids are equal."""
    items = _TILE * math.ceil(len(gallery) / _TILE)
    gallery = jnp.asarray(_padded(gallery, items, 0))
    gallery_ids = jnp.asarray(_padded(gallery_ids, items, _PADDED_ITEM))
    rows = _TILE * math.ceil(min(block_rows, len(queries)) / _TILE)
    blocks = []
    for start in range(0, len(queries), rows):
        block = _padded(queries[start : start + rows], rows, 0)
        ids = _padded(query_ids[start : start + rows], rows, _PADDED_QUERY)
        # Fetched at once: a queue of blocks would hold several blocks of scores.
        blocks.append(jax.device_get(_count(block, ids, gallery, gallery_ids)))
    counts = (np.concatenate(parts)[: len(queries)] for parts in zip(*blocks, strict=True))
    return Ranks(*(count.astype(np.int64) for count in counts))


def _padded(rows: np.ndarray, count: int, value: int) -> np.ndarray:
    width = [(0, count - len(rows))] + [(0, 0)] * (rows.ndim - 1)
    return np.pad(rows, width, constant_values=value)


@jax.jit
def _count(
    queries: jax.Array, query_ids: jax.Array, gallery: jax.Array, gallery_ids: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the fields of Ranks for one block of queries, int32."""

    def product(tile: jax.Array) -> jax.Array:
        return jnp.einsum("md,nd->mn", tile, gallery, precision="highest")

    tiles = queries.reshape(-1, _TILE, queries.shape[1])
    scores = jax.lax.map(product, tiles).reshape(len(queries), len(gallery))
    right = query_ids[:, None] == gallery_ids[None, :]
    wrong = ~right & (gallery_ids != _PADDED_ITEM)[None, :]
    # Taken from the same product as the others, so that equal embeddings have equal scores.
    best = jnp.where(right, scores, -jnp.inf).max(axis=1, keepdims=True)
    return (
        jnp.sum(wrong & (scores > best), axis=1),
        jnp.sum(wrong & (scores == best), axis=1),
        jnp.sum(right & (scores == best), axis=1),
    )
