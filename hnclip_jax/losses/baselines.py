"""Losses that people compare with: sigmoid, cycle consistency, soft targets.

Arguments that are not described are those at the top of losses/pairs.py. InfoNCE, label smoothing,
the constant margin and ArcFace need no function here: they are settings of
`contrastive.shifted_info_nce`.
"""

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import batch, contrastive, margins, pairs
from hnclip_jax.types import Array


def siglip(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    bias: Array | float,
    margin: margins.Margin = margins.none,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns the sigmoid loss: summed over captions j, averaged over pictures i,

        softplus(-(s S_ij + b)) for j = i      softplus(s (S_ij + Delta_ij) + b) for j != i

    Different pairs with equal ids contribute nothing.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      bias: scalar b, as a rule a learned one.
      margin: gives Delta, 0 = SigLIP; see losses/margins.py. One that changes the diagonal changes
        the positives.

    References:
      SigLIP, arXiv 2303.15343.
    """
    rows = pairs.gathered(image, text, axis_name, same_pair)
    geometry = jax.lax.stop_gradient((rows.text_ld, rows.text_bd))
    block = margins.Block(rows.index, rows.image_to_text, *geometry)
    logits = jnp.asarray(scale, jnp.float32) * (block.similarity + margin(block))
    logits = logits + jnp.asarray(bias, jnp.float32)
    costs = jax.nn.softplus(jnp.where(rows.own, -logits, logits))
    costs = jnp.sum(costs, where=rows.own | rows.negatives)
    return batch.total(costs, axis_name) / rows.own.shape[1]


def cyclip(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    cross: float = 0.25,
    within: float = 0.25,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns InfoNCE plus cycle consistency, B times the mean over all i and j of

        cross (S_ij - S_ji)^2 + within (v_i v_j - t_i t_j)^2

    that is, a sum over j and a mean over i, of cosines and not of logits. Ids guard InfoNCE alone:
    consistency has no negatives and takes every pair, as published.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      cross: weight of the consistency between pictures and captions.
      within: weight of the consistency of pictures with pictures and captions with captions.

    References:
      CyCLIP, arXiv 2205.14459.
    """
    rows = pairs.gathered(image, text, axis_name, same_pair)
    across = rows.image_to_text - rows.text_to_image
    inside = pairs.cosines(rows.image_ld, rows.image_bd) - pairs.cosines(rows.text_ld, rows.text_bd)
    costs = jnp.sum(cross * jnp.square(across) + within * jnp.square(inside))
    consistency = batch.total(costs, axis_name) / rows.own.shape[1]
    return consistency + contrastive.info_nce(
        image, text, scale, axis_name=axis_name, same_pair=same_pair
    )


def soft_targets(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    share: float = 0.2,
    temperature: float = 0.05,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns InfoNCE whose targets follow the captions' likeness, in both directions the same:

        Y = (1 - share) I + share softmax(G / temperature)      G = text text^T

    The softmax runs over a row of G with its diagonal, and over the pairs that are not kept apart.
    No gradient flows through Y. The opposite of HN-CLIP: look-alikes are pushed less.

    Args:
      image, text, scale, axis_name, same_pair: as at the top of losses/pairs.py.
      share: part of the target that goes by likeness; 0 = InfoNCE.
      temperature: of the likeness, in cosine units, above 0.

    Raises:
      types.UserError: as at the top of losses/pairs.py, and for a temperature of 0 or less.

    References:
      SoftCLIP, arXiv 2303.17561; CWCL, arXiv 2309.14580; both take more than captions for Y.
    """
    if temperature <= 0:
        raise types.UserError(
            f"the temperature of soft targets is {temperature}, but divides; give one above 0"
        )
    rows = pairs.gathered(image, text, axis_name, same_pair)
    likeness = jax.lax.stop_gradient(pairs.cosines(rows.text_ld, rows.text_bd)) / temperature
    targets = jax.nn.softmax(jnp.where(rows.own | rows.negatives, likeness, batch.MASKED), axis=1)

    def direction(cosines: Array) -> Array:
        logits = jnp.asarray(scale, jnp.float32) * cosines
        positive = rows.positive(logits)
        moved = positive - jnp.sum(targets * logits, axis=1)
        return contrastive.cross_entropy(rows.rest(logits), positive) + share * moved

    return rows.mean(direction, axis_name)
