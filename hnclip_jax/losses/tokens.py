"""Late interaction between words and patches: the token term, for training only, no parameters."""

import functools

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import batch, contrastive
from hnclip_jax.types import Array


def late_interaction(patches: Array, words: Array, word_mask: Array) -> tuple[Array, Array]:
    """Returns the scores of every picture against every caption, from tokens.

    image_to_text[i, j] = mean over patches n of max over words l of <P_in, T_jl>
    text_to_image[i, j] = mean over words l of max over patches n of <P_in, T_jl>

    One caption at a time, forward and backward: the largest array in memory is [L, N, S].

    Args:
      patches: [L, N, D], unit norm, class token left out. Computed in float32.
      words: [B, S, D], unit norm.
      word_mask: [B, S] bool; False hides begin, end and padding. A caption all False scores 0.

    Returns:
      Two [L, B] float32 arrays. Row = image, column = caption, in both.

    Raises:
      types.UserError: if the arrays do not fit together.

    References:
      FILIP, arXiv 2111.07783.
    """
    if words.shape[:2] != word_mask.shape or words.shape[2:] != patches.shape[2:]:
        raise types.UserError(
            f"patches are {patches.shape}, words {words.shape}, word_mask {word_mask.shape}, but "
            "must be [L, N, D], [B, S, D], [B, S]; take all three from the same batch and model"
        )
    body = functools.partial(_scores_of_caption, jnp.asarray(patches, jnp.float32))
    captions = jnp.asarray(words, jnp.float32), word_mask
    image_to_text, text_to_image = jax.lax.map(jax.checkpoint(body), captions)
    return image_to_text.T, text_to_image.T


def token_interaction(
    patches: Array,
    words: Array,
    word_mask: Array,
    scale: Array | float,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns the token term, a float32 scalar: InfoNCE, each direction on its own scores.

    The scores are those of `late_interaction`. With `axis_name` words and masks are gathered and
    patches stay where they are; on gradients see losses/batch.py.

    Args:
      patches: [B, N, D], or [L, N, D] with `axis_name`; unit norm, class token left out.
      words: [B, S, D] or [L, S, D], unit norm; row b belongs to image b.
      word_mask: [B, S] or [L, S] bool; False hides begin, end and padding.
      scale: scalar s = exp(logit_scale), shared with the global term.
      axis_name: mapped axis or axes over which the batch is split.
      same_pair: [B] or [L] integer ids; pairs with equal ids are no negatives of each other.

    Raises:
      types.UserError: for a global batch of one pair, or arrays that do not fit together.

    References:
      FILIP, arXiv 2111.07783; HN-CLIP, arXiv 2608.18521.
    """
    if len(patches) != len(words):
        raise types.UserError(
            f"patches have {len(patches)} rows and words {len(words)}, but picture b belongs to "
            "caption b; give both towers the same examples"
        )
    index = batch.row_index(len(patches), axis_name)
    words_bsd, mask_bs, same_pair_b = batch.gather((words, word_mask, same_pair), axis_name)
    pairs = batch.check_pairs(len(words_bsd))
    row_logits, column_logits = (
        batch.hide(
            jnp.asarray(scale, jnp.float32) * scores,
            index,
            batch.Guard(same_pair),
            batch.Guard(same_pair_b),
        )
        for scores in late_interaction(patches, words_bsd, mask_bs)
    )
    row_loss, positive, column = contrastive.cross_entropies(row_logits, column_logits, index)
    return contrastive.mean_loss(row_loss, positive, column[None, :], index, axis_name, pairs)


def _scores_of_caption(patches: Array, caption: tuple[Array, Array]) -> tuple[Array, Array]:
    """Returns two [L] arrays, the scores of all pictures against one caption."""
    words, word_mask = caption
    cosines = jnp.einsum("lnd,sd->lns", patches, words, precision="highest")
    # Masked before the max, and not with 0: all cosines may be negative.
    hidden = jnp.where(word_mask[None, None, :], cosines, batch.MASKED)
    image_to_text = jnp.mean(jnp.max(hidden, axis=2), axis=1)
    best_patch = jnp.where(word_mask[None, :], jnp.max(cosines, axis=1), 0.0)
    count = jnp.sum(word_mask)
    text_to_image = jnp.sum(best_patch, axis=1) / jnp.maximum(count, 1).astype(jnp.float32)
    return jnp.where(count > 0, image_to_text, 0.0), text_to_image
