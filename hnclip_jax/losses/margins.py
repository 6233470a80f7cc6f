"""Margins: what is added to the cosines before the softmax, in cosine units.

A margin is a function of a `Block` (some rows of the batch against all columns) that returns Delta
for it, [R, B]; the loss is InfoNCE on s (S + Delta). Parameters are bound with `functools.partial`.
Every margin here is 0 on the diagonal and changes the negatives, but for `arcface`: it is 0
everywhere else and changes the positives.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from hnclip_jax.losses import batch
from hnclip_jax.types import Array

# Where arccos still has a usable slope in float32.
LARGEST_COSINE = 1 - 1e-6


class Block(NamedTuple):
    """R rows of the batch against all of its columns: all that a margin may look at.

    index: [R] int32, the rows' numbers in the global batch.
    similarity: [R, B] float32, S = image text^T. Gradient flows.
    geometry_rd: [R, D] float32, text embeddings of these rows. No gradient flows.
    geometry_bd: [B, D] float32, text embeddings of the whole batch. No gradient flows.
    """

    index: Array
    similarity: Array
    geometry_rd: Array
    geometry_bd: Array


Margin: TypeAlias = Callable[[Block], Array]


def none(block: Block) -> Array:
    """Returns zeros, [R, B]: plain InfoNCE. The text geometry is not computed."""
    return jnp.zeros_like(block.similarity)


def hn(block: Block, gamma: Array | float) -> Array:
    """Returns gamma * G off the diagonal, [R, B]; G = text text^T is the batch's text geometry.

    Args:
      block: rows to compute. Texts of a frozen encoder in it make the frozen-geometry control.
      gamma: scalar; look-alike captions are pushed harder when positive, less when negative.

    References:
      HN-CLIP, arXiv 2608.18521.
    """
    return _negatives(block, gamma * text_geometry(block))


def constant(
    block: Block, gamma: Array | float = 0.0, margin: Array | float | None = None
) -> Array:
    """Returns the same margin for every negative, [R, B]: the control without text geometry.

    Args:
      block: rows to compute.
      gamma: scalar; used when `margin` is None.
      margin: scalar, cosine units; None means gamma times the batch's mean off-diagonal G.

    References:
      CosFace, arXiv 1801.09414.
    """
    if margin is None:
        margin = gamma * mean_off_diagonal(block.geometry_bd)
    return _negatives(block, jnp.full_like(block.similarity, margin))


def centred(block: Block, gamma: Array | float) -> Array:
    """Returns gamma * (G - mean off-diagonal G), [R, B]: the control without the constant part."""
    centre = mean_off_diagonal(block.geometry_bd)
    return _negatives(block, gamma * (text_geometry(block) - centre))


def row_centred(block: Block, gamma: Array | float) -> Array:
    """Returns gamma * (G - its row's mean off the diagonal), [R, B].

    The control without any part that all negatives of a picture share. The negatives of a caption,
    a column, are those of different rows, so there a part stays.
    """
    geometry = text_geometry(block)
    others = ~batch.is_own(block.index, geometry.shape[1])
    centre = jnp.mean(geometry, axis=1, keepdims=True, where=others)
    return _negatives(block, gamma * (geometry - centre))


def row_shuffled(block: Block, gamma: Array | float, key: Array) -> Array:
    """Returns gamma * G, the negatives of each row permuted, [R, B]: right values, wrong places.

    Args:
      block: rows to compute.
      gamma: scalar.
      key: jax.random key. A row's permutation depends on it and the row's number in the global
        batch alone, not on devices or blocks.
    """
    pairs = block.geometry_bd.shape[0]
    shuffle = jax.vmap(lambda row: _other_columns(jax.random.fold_in(key, row), row, pairs))
    geometry = jnp.take_along_axis(text_geometry(block), shuffle(block.index), axis=1)
    return _negatives(block, gamma * geometry)


def arcface(block: Block, margin: Array | float) -> Array:
    """Returns cos(arccos S_ii + margin) - S_ii on the diagonal, [R, B]: a margin between angles.

    S_ii is clipped to +-(1 - 1e-6) in the first part, and gradient flows through both: a positive
    at 1 gets none. No boundary is kept at an angle of pi.

    Args:
      block: rows to compute.
      margin: scalar, radians.

    References:
      ArcFace, arXiv 1801.07698.
    """
    cosine = jnp.clip(block.similarity, -LARGEST_COSINE, LARGEST_COSINE)
    # The sum of two angles written out: arccos has no use for being computed.
    sine = jnp.sqrt((1 - cosine) * (1 + cosine))
    margin = jnp.asarray(margin, jnp.float32)
    turned = cosine * jnp.cos(margin) - sine * jnp.sin(margin)
    own = batch.is_own(block.index, cosine.shape[1])
    return jnp.where(own, turned - block.similarity, 0.0)


def mean_off_diagonal(embeddings: Array) -> Array:
    """Returns the mean off-diagonal entry of embeddings embeddings^T, a scalar, without forming it.

    Args:
      embeddings: [B, D] float32, B at least 2.
    """
    pairs = embeddings.shape[0]
    # The sum of all entries is the squared norm of the sum of the rows.
    everything = jnp.sum(jnp.square(jnp.sum(embeddings, axis=0)))
    diagonal = jnp.sum(jnp.square(embeddings))
    return (everything - diagonal) / (pairs * (pairs - 1))


def _negatives(block: Block, delta: Array) -> Array:
    """Returns `delta` with its diagonal set to 0."""
    return jnp.where(batch.is_own(block.index, delta.shape[1]), 0.0, delta)


def text_geometry(block: Block) -> Array:
    """Returns G of the block, [R, B], diagonal included."""
    return jnp.matmul(block.geometry_rd, block.geometry_bd.T, precision="highest")


def _other_columns(key: Array, row: Array, pairs: int) -> Array:
    """Returns [B] int32: a permutation of the columns but `row`, at the columns but `row`."""
    order = jax.random.permutation(key, pairs - 1)
    column = jnp.arange(pairs)
    # Permuted is the list without the row's own column: those behind it have moved up by one there.
    source = order[jnp.minimum(jnp.where(column > row, column - 1, column), pairs - 2)]
    return jnp.where(source >= row, source + 1, source)
