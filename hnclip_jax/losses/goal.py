"""GOAL: a crop and its sentence, against each other and against their places in the whole."""

from collections.abc import Mapping

import jax.numpy as jnp

from hnclip_jax.losses import batch, contrastive, margins, terms
from hnclip_jax.types import Array


def mean_inside(states: Array, mask: Array) -> Array:
    """Returns the mean of the states that a mask shows, [B, 1, W] float32; zeros if it shows none.

    Args:
      states: [B, T, W], any floating type. Computed in float32.
      mask: [B, T] bool.
    """
    total = jnp.sum(jnp.asarray(states, jnp.float32), axis=1, keepdims=True, where=mask[:, :, None])
    count = jnp.sum(mask.astype(jnp.float32), axis=1)
    return total / jnp.maximum(count, 1.0)[:, None, None]


def pool_patches(states: Array, arrays: Mapping[str, Array]) -> Array:
    """Returns [B, 1, W], the mean of the whole picture's patches that the crop's box touches.

    Args:
      states: [B, N, W], class token left out.
      arrays: has patch_mask, [B, N] bool.
    """
    return mean_inside(states, arrays["patch_mask"])


def pool_words(states: Array, arrays: Mapping[str, Array]) -> Array:
    """Returns [B, 1, W], the mean of the whole caption's tokens that are the crop's sentence.

    Args:
      states: [B, S, W].
      arrays: has word_mask_of_crop, [B, S] bool.
    """
    return mean_inside(states, arrays["word_mask_of_crop"])


def similarity(
    pooled: Array, target: Array, valid: Array, axis_name: batch.AxisName = None
) -> Array:
    """Returns token similarity learning, a float32 scalar: mean of (1 - <pooled, target>)^2.

    The mean runs over the valid rows of the global batch; it is 0 if there are none.

    Args:
      pooled: [B, D], or [L, D] with `axis_name`; unit norm: part of the whole. In float32.
      target: as `pooled`: the part by itself. Gradient flows into both.
      valid: [B] or [L] bool; rows with False are left out.
      axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.

    References:
      GOAL, arXiv 2503.17782.
    """
    pooled, target = jnp.asarray(pooled, jnp.float32), jnp.asarray(target, jnp.float32)
    squares = jnp.square(1 - jnp.sum(pooled * target, axis=1))
    return batch.mean(squares, valid, axis_name)


def _local_term(inputs: terms.Inputs) -> Array:
    """Returns plain InfoNCE of the crops and their sentences; the boost stays with the wholes."""
    crop = inputs.views["crop"]
    return contrastive.shifted_info_nce(
        crop.image,
        crop.text,
        inputs.scale,
        margins.none,
        axis_name=inputs.axis_name,
        block_rows=inputs.block_rows,
        same_pair=inputs.same_pair,
        valid=inputs.arrays["has_crop"],
    )


def _image_term(inputs: terms.Inputs) -> Array:
    arrays = inputs.arrays
    valid = arrays["has_crop"] & jnp.any(arrays["patch_mask"], axis=1)
    region = inputs.pair.regions[:, 0]
    return similarity(region, inputs.views["crop"].image, valid, inputs.axis_name)


def _text_term(inputs: terms.Inputs) -> Array:
    arrays = inputs.arrays
    valid = arrays["has_crop"] & jnp.any(arrays["word_mask_of_crop"], axis=1)
    span = inputs.pair.spans[:, 0]
    return similarity(span, inputs.views["crop"].text, valid, inputs.axis_name)


VIEWS = {
    terms.PAIR: terms.View("image", "tokens", pool_patches=pool_patches, pool_words=pool_words),
    "crop": terms.View("crop", "crop_tokens"),
}

TERMS = (
    terms.Term(
        "goal_local",
        _local_term,
        weight=lambda settings: settings.method.goal_local_weight,
        views=("crop",),
        inputs=("segment",),
    ),
    terms.Term(
        "goal_image",
        _image_term,
        weight=lambda settings: settings.method.goal_image_weight,
        views=("crop",),
        inputs=("segment",),
    ),
    terms.Term(
        "goal_text",
        _text_term,
        weight=lambda settings: settings.method.goal_text_weight,
        views=("crop",),
        inputs=("segment",),
    ),
)
