"""Losses that people compare with and that single out hard negatives.

Arguments that are not described are those at the top of losses/pairs.py. A pair that has no
negative left costs 0.
"""

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import batch, contrastive, pairs
from hnclip_jax.types import Array


def hn_nce(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    alpha: float = 1.0,
    beta: float = 0.25,
    detach: bool = False,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns the HN-NCE loss of DiHT, averaged over pairs i and both directions:

        log(alpha e^(s S_ii) + sum_j w_ij e^(s S_ij)) - s S_ii
        w_ij = n_i e^(beta s S_ij) / sum_k e^(beta s S_ik)

    j and k run over the n_i negatives of i; each direction has weights of its own.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      alpha: weight of the positive; with 0 the loss may be negative. 1, and beta 0, is InfoNCE.
      beta: sharpness of the weights.
      detach: no gradient through the weights.

    References:
      DiHT, arXiv 2301.02280.
    """
    rows = pairs.gathered(image, text, axis_name, same_pair)

    def direction(cosines: Array) -> Array:
        logits = jnp.asarray(scale, jnp.float32) * cosines
        weights = _log_weights(rows, beta * logits)
        weights = jax.lax.stop_gradient(weights) if detach else weights
        above = rows.rest(logits + weights) - rows.positive(logits)
        return _if_negatives(rows, jnp.logaddexp(above, jnp.log(jnp.float32(alpha))))

    return rows.mean(direction, axis_name)


def hcl(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    beta: float = 1.0,
    prior: float = 0.0,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns the HCL loss, averaged over pairs i and both directions:

        log(e^(s S_ii) + N_i) - s S_ii
        N_i = max((sum_j w_ij e^(s S_ij) - prior n_i e^(s S_ii)) / (1 - prior), n_i e^-s)

    n and w as in `hn_nce`; gradient flows through w.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      beta: sharpness of the weights; 0 is the debiased loss DCL, and with a prior of 0 InfoNCE.
      prior: share of the negatives that are none, at least 0 and below 1.

    Raises:
      types.UserError: as at the top of losses/pairs.py, and for a prior that is no such share.

    References:
      HCL, arXiv 2010.04592; DCL, arXiv 2007.00224.
    """
    if not 0 <= prior < 1:
        raise types.UserError(
            f"the prior of hcl is {prior}, but is a share of the negatives; "
            "give a number of at least 0 and below 1"
        )
    rows = pairs.gathered(image, text, axis_name, same_pair)
    scale = jnp.asarray(scale, jnp.float32)

    def direction(cosines: Array) -> Array:
        logits = scale * cosines
        positive = rows.positive(logits)
        everything = rows.rest(logits + _log_weights(rows, beta * logits))
        wrong = jnp.log(jnp.float32(prior)) + rows.log_count + positive
        rest = _log_corrected(everything, wrong, prior, rows.log_count - scale)
        return _if_negatives(rows, contrastive.cross_entropy(rest, positive))

    return rows.mean(direction, axis_name)


def vse(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    margin: float = 0.2,
    hardest: bool = True,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns the hinge of VSE++, averaged over pairs i, its two directions added up:

        [margin + max_j S_ij - S_ii]_+ + [margin + max_j S_ji - S_ii]_+

    over the negatives j of i. The cosines are taken as they are; `scale` is not used.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      margin: in cosine units.
      hardest: False adds up the hinges of all negatives instead (VSE0).

    References:
      VSE++, arXiv 1707.05612.
    """
    del scale
    rows = pairs.gathered(image, text, axis_name, same_pair)

    def direction(cosines: Array) -> Array:
        short = jnp.where(rows.negatives, cosines, batch.MASKED) - rows.positive(cosines)[:, None]
        if hardest:
            return jax.nn.relu(margin + jnp.max(short, axis=1))
        return jnp.sum(jax.nn.relu(margin + short), axis=1)

    return 2 * rows.mean(direction, axis_name)


def negclip(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    negative_text: Array,
    has_negative: Array,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns InfoNCE with wrong captions as further columns of the direction picture to caption.

    A picture meets the captions of the batch and the wrong ones of all pairs; a caption meets
    pictures alone, and a wrong caption is no query. A wrong caption is wrong for the pairs that
    have the id of its own, too, and stays their negative.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      negative_text: rows as `text`, unit norm: a wrong caption of each pair.
      has_negative: [B] or [L] bool; False: the row of `negative_text` is not there.

    References:
      NegCLIP, arXiv 2210.01936.
    """
    if jnp.shape(negative_text) != jnp.shape(text) or jnp.shape(has_negative) != (len(text),):
        raise types.UserError(
            f"negative_text has shape {jnp.shape(negative_text)} and has_negative "
            f"{jnp.shape(has_negative)}, but text has {jnp.shape(text)}; give each pair one row "
            "of both, and has_negative=False where there is no wrong caption"
        )
    rows = pairs.gathered(image, text, axis_name, same_pair)
    wrong_bd, there = batch.gather(
        (jnp.asarray(negative_text, jnp.float32), has_negative), axis_name
    )
    scale = jnp.asarray(scale, jnp.float32)
    wrong = jnp.where(there[None, :], scale * pairs.cosines(rows.image_ld, wrong_bd), batch.MASKED)

    of_image, of_text = scale * rows.image_to_text, scale * rows.text_to_image
    rest = jnp.logaddexp(rows.rest(of_image), jax.nn.logsumexp(wrong, axis=1))
    costs = contrastive.cross_entropy(rest, rows.positive(of_image))
    costs = costs + contrastive.cross_entropy(rows.rest(of_text), rows.positive(of_text))
    return batch.total(jnp.sum(costs), axis_name) / (2 * rows.own.shape[1])


def _log_weights(rows: pairs.Pairs, scores: Array) -> Array:
    """Returns log w, [L, B]: of each pair's softmax of `scores` over its n negatives, times n.

    In logarithms, as the exponentials overflow at s = 100; and over the negatives from the start,
    as the positive taken from a sum of all would leave rounding.
    """
    return scores + (rows.log_count - rows.rest(scores))[:, None]


def _log_corrected(everything: Array, wrong: Array, prior: float, least: Array) -> Array:
    """Returns log max((e^everything - e^wrong) / (1 - prior), e^least), [L]."""

    def estimate(share: Array) -> Array:
        return everything + jnp.log(-jnp.expm1(share)) - jnp.log1p(-jnp.float32(prior))

    share = wrong - everything
    enough = estimate(jnp.minimum(share, 0.0)) > least
    # Replaced before the logarithm: a branch not taken would still give 0 * inf backwards.
    return jnp.where(enough, estimate(jnp.where(enough, share, -1.0)), least)


def _if_negatives(rows: pairs.Pairs, losses: Array) -> Array:
    """Returns `losses` [L], 0 for a pair without negatives."""
    return jnp.where(jnp.any(rows.negatives, axis=1), losses, 0.0)
