"""Late interaction between words and patches: the token term, for training only."""

import functools

import jax
import jax.numpy as jnp

from hnclip_jax import groups, types, vectors
from hnclip_jax.losses import batch, contrastive, terms, token_boost
from hnclip_jax.types import Array

LARGEST_SCALE = 100.0
"""A learned scale of the term counts as this much at most, as CLIP's own does."""


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
    return boosted_interaction(
        patches, words, word_mask, scale, axis_name=axis_name, same_pair=same_pair
    )


def boosted_interaction(
    patches: Array,
    words: Array,
    word_mask: Array,
    scale: Array | float,
    *,
    boost: token_boost.Boost | None = None,
    symmetric: bool = False,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns the token term on the scores and a margin, a float32 scalar.

    Args:
      patches, words, word_mask, scale, axis_name, same_pair: as in `token_interaction`.
      boost: what is added to the scores of the negatives, the same in both directions; None adds
        nothing, and a gamma of 0 gives the same bits.
      symmetric: both directions use the mean of the two scores, instead of one each.

    Raises:
      types.UserError: as `token_interaction`.
    """
    if len(patches) != len(words):
        raise types.UserError(
            f"patches have {len(patches)} rows and words {len(words)}, but picture b belongs to "
            "caption b; give both towers the same examples"
        )
    index = batch.row_index(len(patches), axis_name)
    words_bsd, mask_bs, same_pair_b = batch.gather((words, word_mask, same_pair), axis_name)
    pairs = batch.check_pairs(len(words_bsd))
    scores = late_interaction(patches, words_bsd, mask_bs)
    if symmetric:
        scores = ((scores[0] + scores[1]) / 2,) * 2
    if boost is not None:
        words_lsd, words_bsd = (jnp.asarray(x, jnp.float32) for x in (words, words_bsd))
        seen = jax.lax.stop_gradient((scores[0], words_lsd, word_mask, words_bsd, mask_bs))
        delta = token_boost.margin(boost, token_boost.Block(index, *seen, axis_name))
        scores = (scores[0] + delta, scores[1] + delta)
    row_logits, column_logits = (
        batch.hide(
            jnp.asarray(scale, jnp.float32) * score,
            index,
            batch.Guard(same_pair),
            batch.Guard(same_pair_b),
        )
        for score in scores
    )
    row_loss, positive, column = contrastive.cross_entropies(row_logits, column_logits, index)
    return contrastive.mean_loss(row_loss, positive, column, index, axis_name, pairs)


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


def token_term(inputs: terms.Inputs) -> Array:
    """Returns the token term of the pair, with the switches of settings.loss, a float32 scalar.

    Patches and words need not be of unit norm here.

    Args:
      inputs: the pair's embeddings with tokens; parameters["token_scale"], the log of a scale, when
        token_scale is "learned".
    """
    loss, pair = inputs.settings.loss, inputs.pair
    patches, words, word_mask = vectors.unit(pair.patches), vectors.unit(pair.words), pair.word_mask
    if loss.token_include_global:
        patches = jnp.concatenate([patches, pair.image[:, None, :]], axis=1)
        words = jnp.concatenate([words, pair.text[:, None, :]], axis=1)
        word_mask = jnp.pad(word_mask, ((0, 0), (0, 1)), constant_values=True)
    return boosted_interaction(
        patches,
        words,
        word_mask,
        _scale_of(inputs),
        boost=_boost_of(inputs),
        symmetric=loss.token_symmetric,
        axis_name=inputs.axis_name,
        same_pair=inputs.same_pair,
    )


def _scale_of(inputs: terms.Inputs) -> Array | float:
    loss = inputs.settings.loss
    scale = inputs.scale
    if loss.token_scale == "fixed":
        scale = _given_scale(loss)
    elif loss.token_scale == "learned":
        scale = jnp.minimum(jnp.exp(inputs.parameters["token_scale"]), LARGEST_SCALE)
    return jax.lax.stop_gradient(scale) if loss.token_detach_scale else scale


def _given_scale(loss: groups.LossGroup) -> float:
    if loss.token_scale_value <= 0:
        raise types.UserError(
            f"loss.token_scale_value is {loss.token_scale_value}, but the scale of the token term "
            "must be above 0; 100 is what CLIP ends with"
        )
    return loss.token_scale_value


def _boost_of(inputs: terms.Inputs) -> token_boost.Boost | None:
    """Returns what settings.loss asks for; None where gamma is 0 for good and no G need be made."""
    loss, pair = inputs.settings.loss, inputs.pair
    if loss.token_boost == "none" or _never_boosts(loss):
        return None
    geometry = token_boost.of_words
    if loss.token_boost == "global":
        embeddings = pair.text if inputs.geometry is None else inputs.geometry
        geometry = functools.partial(token_boost.of_captions, embeddings=embeddings)
    if loss.token_gamma < 0:
        return token_boost.Boost(geometry, inputs.gamma, matched_to=(pair.image, pair.text))
    return token_boost.Boost(geometry, loss.token_gamma)


def _never_boosts(loss: groups.LossGroup) -> bool:
    gamma_is_zero = not any(loss.gamma_by_epoch or (loss.gamma,))
    return gamma_is_zero if loss.token_gamma < 0 else loss.token_gamma == 0


def initial_scale(key: Array, sizes: terms.Sizes, settings: terms.Settings) -> dict[str, Array]:
    """Returns {"token_scale": float32 scalar, the log of token_scale_value}; see `terms.Init`.

    Raises:
      types.UserError: if token_scale_value is not above 0.
    """
    del key, sizes
    return {"token_scale": jnp.log(jnp.float32(_given_scale(settings.loss)))}


TERM = terms.Term(
    "token", token_term, weight=lambda settings: settings.loss.token_weight, tokens=True
)


def term(loss: groups.LossGroup) -> terms.Term:
    """Returns TERM, with a scale of its own as a parameter where `loss` has it learned."""
    return TERM._replace(init=initial_scale) if loss.token_scale == "learned" else TERM
