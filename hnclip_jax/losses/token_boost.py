"""The margin inside the token term: its geometry, from captions or their words, and its gamma."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from hnclip_jax.losses import batch
from hnclip_jax.types import Array

# Cosines in float32 are rounded by about 1e-7: a smaller spread is no spread.
SMALLEST_SPREAD = 1e-6


class Block(NamedTuple):
    """The pairs of this device against all of the batch: what a boost may look at.

    No gradient flows through any of it.

    index: [L] int32, the rows' numbers in the global batch.
    scores: [L, B] float32, pictures against captions, as the rows of the loss use them.
    words_lsd: [L, S, D] float32, unit norm, the words of the device's captions.
    mask_ls: [L, S] bool.
    words_bsd: [B, S, D] float32, those of the whole batch.
    mask_bs: [B, S] bool.
    axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
    """

    index: Array
    scores: Array
    words_lsd: Array
    mask_ls: Array
    words_bsd: Array
    mask_bs: Array
    axis_name: batch.AxisName


Geometry: TypeAlias = Callable[[Block], Array]
"""Block -> G, [L, B] float32, captions against captions; its diagonal does not matter."""


class Boost(NamedTuple):
    """What is added to the scores of the negatives: gamma G.

    geometry: `of_captions` with its embeddings bound, or `of_words`.
    gamma: scalar, in the units of the scores.
    matched_to: None, or image and text [L, D], unit norm: gamma is then in cosine units, and is
      scaled by how far the scores spread, relative to the cosines of these.
    """

    geometry: Geometry
    gamma: Array | float
    matched_to: tuple[Array, Array] | None = None


def of_captions(block: Block, embeddings: Array) -> Array:
    """Returns G = embeddings embeddings^T, [L, B].

    Args:
      block: see there.
      embeddings: [L, D], unit norm, one per caption of this device. They are gathered.
    """
    own = jax.lax.stop_gradient(jnp.asarray(embeddings, jnp.float32))
    everyone = batch.gather(own, block.axis_name)
    return jnp.matmul(own, everyone.T, precision="highest")


def of_words(block: Block) -> Array:
    """Returns the late interaction of captions with captions, [L, B].

    G[j, k] is the mean over the words of j of their largest cosine with a word of k, averaged with
    the same from k to j; 0 where a caption has no words. One caption k at a time.
    """

    def against(caption: tuple[Array, Array]) -> Array:
        return _likeness(block.words_lsd, block.mask_ls, *caption)

    return jax.lax.map(against, (block.words_bsd, block.mask_bs)).T


def margin(boost: Boost, block: Block) -> Array:
    """Returns gamma G with its diagonal set to 0, [L, B] float32, without gradient."""
    gamma = jnp.asarray(boost.gamma, jnp.float32)
    if boost.matched_to is not None:
        gamma = gamma * _relative_spread(block, *boost.matched_to)
    delta = jax.lax.stop_gradient(gamma * boost.geometry(block))
    return jnp.where(batch.is_own(block.index, delta.shape[1]), 0.0, delta)


def _relative_spread(block: Block, image: Array, text: Array) -> Array:
    """Returns std of the scores over std of the cosines <image, text>, both off the diagonal.

    A scalar, the same on every device; 0 if the cosines are all equal.
    """
    image, text = jax.lax.stop_gradient(
        (jnp.asarray(image, jnp.float32), jnp.asarray(text, jnp.float32))
    )
    everyone = batch.gather(text, block.axis_name)
    cosines = jnp.matmul(image, everyone.T, precision="highest")
    scores, cosines = _spreads(jnp.stack([block.scores, cosines]), block.index, block.axis_name)
    ratio = scores / jnp.maximum(cosines, SMALLEST_SPREAD)
    return jnp.where(cosines > SMALLEST_SPREAD, ratio, 0.0)


def _spreads(values: Array, index: Array, axis_name: batch.AxisName) -> Array:
    """Returns [K], the standard deviation off the diagonal of K matrices of the global batch.

    Args:
      values: [K, L, B], this device's rows.
      index: [L] int32, the rows' numbers.
      axis_name: see losses/batch.py.
    """
    pairs = values.shape[2]
    others = ~batch.is_own(index, pairs)[None, :, :]
    count = float(pairs * (pairs - 1))
    mean = batch.total(jnp.sum(values, axis=(1, 2), where=others), axis_name) / count
    # In two passes: the spread may be a hundredth of the mean.
    squares = jnp.square(values - mean[:, None, None])
    return jnp.sqrt(batch.total(jnp.sum(squares, axis=(1, 2), where=others), axis_name) / count)


def _likeness(words: Array, word_mask: Array, other: Array, other_mask: Array) -> Array:
    """Returns [L], how like L captions [L, S, D], [L, S] are to one other [S, D], [S]."""
    cosines = jnp.einsum("lsd,td->lst", words, other, precision="highest")
    shown = word_mask[:, :, None] & other_mask[None, None, :]
    hidden = jnp.where(shown, cosines, batch.MASKED)
    both = jnp.any(word_mask, axis=1) & jnp.any(other_mask)
    there = _mean(jnp.max(hidden, axis=2), word_mask)
    back = _mean(jnp.max(hidden, axis=1), jnp.broadcast_to(other_mask[None, :], word_mask.shape))
    return jnp.where(both, (there + back) / 2, 0.0)


def _mean(values: Array, mask: Array) -> Array:
    """Returns [L], the mean of values [L, S] where the mask is True; 0 where it never is."""
    count = jnp.sum(mask.astype(jnp.float32), axis=1)
    return jnp.sum(values, axis=1, where=mask) / jnp.maximum(count, 1.0)
