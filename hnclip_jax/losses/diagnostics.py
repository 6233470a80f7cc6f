"""What a batch looks like to the loss: figures for the logged steps of a run."""

import jax
import jax.numpy as jnp

from hnclip_jax.losses import batch, contrastive, margins
from hnclip_jax.types import Array

SOLVED = 1e-3  # a pair counts as solved when its loss is below this


def measure(
    image: Array,
    text: Array,
    scale: Array | float,
    margin: margins.Margin = margins.none,
    *,
    same_pair: Array | None = None,
    geometry: Array | None = None,
) -> dict[str, Array]:
    """Returns the figures of one batch, float32 scalars.

    Written for the whole batch: one device, or plain jit on sharded arrays. Holds [B, B] arrays.

    Args:
      image: [B, D], unit norm.
      text: [B, D], unit norm.
      scale: scalar s = exp(logit_scale).
      margin: the margin that the batch is trained with.
      same_pair: [B] integer ids, as in `info_nce`; they touch the losses, not the figures on G.
      geometry: [B, D'], what G is taken from; None means `text`.

    Returns:
      info_nce: the loss without margin.
      g_mean, g_std: mean and standard deviation of G off the diagonal.
      g_hardest: mean over captions of their largest G with another caption.
      solved_plain, solved: share of pairs whose loss (mean of the two directions) is below 1e-3,
        without and with the margin.
      s_positive: mean cosine of the matched pairs.
    """
    index = batch.row_index(batch.check_pairs(len(text)), None)
    image, text = jnp.asarray(image, jnp.float32), jnp.asarray(text, jnp.float32)
    source = text if geometry is None else jnp.asarray(geometry, jnp.float32)
    similarity = jnp.matmul(image, text.T, precision="highest")
    block = margins.Block(index, similarity, *jax.lax.stop_gradient((source, source)))
    plain = _pair_losses(block, margins.none, scale, same_pair)
    trained = _pair_losses(block, margin, scale, same_pair)
    g = margins.text_geometry(block)
    others = ~batch.is_own(index, len(index))
    return {
        "info_nce": jnp.mean(plain),
        "g_mean": jnp.mean(g, where=others),
        "g_hardest": jnp.mean(jnp.max(g, axis=1, where=others, initial=-jnp.inf)),
        "g_std": jnp.std(g, where=others),
        "solved_plain": jnp.mean((plain < SOLVED).astype(jnp.float32)),
        "solved": jnp.mean((trained < SOLVED).astype(jnp.float32)),
        "s_positive": jnp.mean(jnp.sum(image * text, axis=1)),
    }


def _pair_losses(
    block: margins.Block, margin: margins.Margin, scale: Array | float, same_pair: Array | None
) -> Array:
    """Returns [B], each pair's loss, the mean of its two directions."""
    guard = batch.Guard(same_pair)
    logits = contrastive.logits_of(block, margin, scale, guard, guard)
    row_loss, positive, column = contrastive.cross_entropies(logits, logits, block.index)
    return (row_loss + contrastive.cross_entropy(column, positive)) / 2
