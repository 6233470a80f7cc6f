"""FineLIP: patches and words drawn together to a few tokens, their late interaction, a hinge."""

from typing import Any

import jax
import jax.numpy as jnp

from hnclip_jax import types, vectors
from hnclip_jax.losses import batch, margins, terms
from hnclip_jax.types import Array

_NORM_EPS = 1e-5
_LEAK = 0.1


def init(key: Array, sizes: terms.Sizes, settings: terms.Settings) -> dict[str, Any]:
    """Returns random float32 parameters of both aggregators: {"image": {...}, "text": {...}}.

    Each holds norm/scale and norm/bias [D], fc_in/kernel [D, D / 5], fc_in/bias, fc_out/kernel
    [D / 5, K], fc_out/bias, and scale, a scalar. Kernels and biases are uniform within
    1 / sqrt(inputs). K is method.finelip_tokens or, where that is 0, a fifth of the patches, for
    both modalities.

    Raises:
      types.UserError: if a fifth of the patches is none.

    References:
      FineLIP, arXiv 2504.01916.
    """
    tokens = settings.method.finelip_tokens or sizes.patches // 5
    if not tokens:
        raise types.UserError(
            f"method.finelip_tokens is 0, for a fifth of the patches, but the model has only "
            f"{sizes.patches}; give the number of tokens"
        )
    image_key, text_key = jax.random.split(key)
    return {
        "image": _init_aggregator(image_key, sizes.width, tokens),
        "text": _init_aggregator(text_key, sizes.width, tokens),
    }


def aggregate(parameters: types.Params, tokens: Array, mask: Array | None = None) -> Array:
    """Returns K weighted means of the tokens, [L, K, D] float32; the weights are learned.

    weights = softmax over the n tokens of scale (GELU(norm(x) A + a) B + b)

    Args:
      parameters: of one modality, from `init`.
      tokens: [L, n, D], of any norm. Computed in float32.
      mask: [L, n] bool; False hides a token. Where all are hidden the result is 0. None: none is.

    References:
      FineLIP, arXiv 2504.01916 (adaptive token refinement).
    """
    tokens = jnp.asarray(tokens, jnp.float32)
    hidden = jax.nn.gelu(_dense(parameters["fc_in"], _norm(parameters["norm"], tokens)), False)
    logits = parameters["scale"] * _dense(parameters["fc_out"], hidden)
    if mask is None:
        weights = jax.nn.softmax(logits, axis=1)
    else:
        shown = mask[:, :, None]
        weights = jax.nn.softmax(jnp.where(shown, logits, batch.MASKED), axis=1)
        weights = jnp.where(shown, weights, 0.0)
    return jnp.einsum("lnk,lnd->lkd", weights, tokens, precision="highest")


def image_tokens_of(parameters: types.Params, embeddings: types.Embeddings) -> Array:
    """Returns tokens of pictures, [L, K + 1, D] float32 unit vectors: class token, then patches.

    Args:
      parameters: from `init`.
      embeddings: with image and patches, these as projected, of any norm.
    """
    patches = aggregate(parameters["image"], embeddings.patches)
    picture = jnp.asarray(embeddings.image, jnp.float32)[:, None, :]
    return vectors.unit(jnp.concatenate([picture, patches], axis=1))


def text_tokens_of(parameters: types.Params, embeddings: types.Embeddings) -> Array:
    """Returns tokens of captions, [L, K + 1, D] float32 unit vectors.

    Begin token and words are aggregated; the end token comes last.

    Args:
      parameters: from `init`.
      embeddings: with text, word_mask and words, these as projected, of any norm.
    """
    begin_and_words = jnp.asarray(embeddings.word_mask).at[:, 0].set(True)
    words = aggregate(parameters["text"], embeddings.words, begin_and_words)
    caption = jnp.asarray(embeddings.text, jnp.float32)[:, None, :]
    return vectors.unit(jnp.concatenate([words, caption], axis=1))


def scores(image_tokens: Array, text_tokens: Array, block: int = 8) -> Array:
    """Returns R, [L, B] float32: the score of every picture with every caption, from -0.2 to 2.

    R[i, j] = mean over tokens of j of max over tokens of i of f(cosine)
            + mean over tokens of i of max over tokens of j of f(cosine),  f = leaky ReLU (0.1)

    Some captions at a time, forward and backward: the largest array in memory is [block, L, a, b].

    Args:
      image_tokens: [L, a, D], unit norm. Computed in float32.
      text_tokens: [B, b, D], unit norm.
      block: captions at a time.

    Raises:
      types.UserError: if the arrays do not fit together.

    References:
      FineLIP, arXiv 2504.01916 (cross-modal late interaction); the leaky ReLU is in its code only.
    """
    shapes = jnp.shape(image_tokens), jnp.shape(text_tokens)
    if {len(shape) for shape in shapes} != {3} or shapes[0][2] != shapes[1][2]:
        raise types.UserError(
            f"image_tokens are {shapes[0]} and text_tokens {shapes[1]}, but must be [L, a, D] and "
            "[B, b, D]; take both from the same model"
        )
    pictures = jnp.asarray(image_tokens, jnp.float32)

    def of_caption(caption: Array) -> Array:
        cosines = jnp.einsum("lad,bd->lab", pictures, caption, precision="highest")
        # f rises everywhere, so it may as well follow the max, on far fewer numbers.
        best = jnp.max(cosines, axis=1), jnp.max(cosines, axis=2)
        by_text, by_image = (jnp.mean(jax.nn.leaky_relu(x, _LEAK), axis=1) for x in best)
        return by_text + by_image

    captions = jnp.asarray(text_tokens, jnp.float32)
    return jax.lax.map(jax.checkpoint(of_caption), captions, batch_size=block).T


def triplet(
    token_scores: Array,
    *,
    margin: Array | float,
    index: Array,
    axis_name: batch.AxisName = None,
    same_pair: Array | None = None,
    hardest: bool = False,
) -> Array:
    """Returns the hinge loss of a matrix of scores, a float32 scalar: a sum and no mean.

    sum over i != j of [margin + R_ij - R_ii]_+ + [margin + R_ij - R_jj]_+

    It grows as the square of the batch, B^2, or as B with `hardest`. Adam takes no notice of a
    constant factor, but clipping of the gradient and a weight beside other terms do.

    Args:
      token_scores: [B, B], or this device's rows [L, B] with `axis_name`. Row = image.
      margin: scalar, or as `token_scores` for a margin of each pair.
      index: [L] int32, the rows' numbers in the global batch.
      axis_name: mapped axis or axes over which the rows are split; see losses/batch.py.
      same_pair: [L] integer ids; pairs with equal ids are no negatives of each other.
      hardest: of each row, and of each column, the largest violation alone.

    Raises:
      types.UserError: for a global batch of one pair.

    References:
      FineLIP, arXiv 2504.01916; `hardest` is VSE++, arXiv 1707.05612.
    """
    token_scores = jnp.asarray(token_scores, jnp.float32)
    own = batch.is_own(index, batch.check_pairs(token_scores.shape[1]))
    positive = jnp.sum(token_scores, axis=1, where=own)
    positive_b, same_pair_b = batch.gather((positive, same_pair), axis_name)
    guarded = batch.hide(token_scores, index, batch.Guard(same_pair), batch.Guard(same_pair_b))
    reach = jnp.asarray(margin, jnp.float32) + jnp.where(own, batch.MASKED, guarded)
    row = jax.nn.relu(reach - positive[:, None])
    column = jax.nn.relu(reach - positive_b[None, :])
    if hardest:
        row = jnp.max(row, axis=1)
        # Each device settles the columns of its own captions.
        column = batch.gather(jnp.max(column, axis=0)[None, :], axis_name)[:, index]
        column = jnp.max(column, axis=0)
    return batch.total(jnp.sum(row) + jnp.sum(column), axis_name)


def triplet_term(inputs: terms.Inputs) -> Array:
    """Returns `triplet` of the batch's `scores`, a float32 scalar.

    The margin is method.finelip_margin; with method.finelip_gamma, our own addition, it is that
    plus gamma G of each pair, where G takes no gradient and is of the frozen encoder if the global
    term's is. Captions are gathered, pictures stay where they are.
    """
    method = inputs.settings.method
    image_tokens = image_tokens_of(inputs.parameters, inputs.pair)
    text_tokens = text_tokens_of(inputs.parameters, inputs.pair)
    index = batch.row_index(len(image_tokens), inputs.axis_name)
    pair_scores = scores(image_tokens, batch.gather(text_tokens, inputs.axis_name))
    margin = method.finelip_margin
    if method.finelip_gamma:
        text = inputs.pair.text if inputs.geometry is None else inputs.geometry
        text_ld = jax.lax.stop_gradient(jnp.asarray(text, jnp.float32))
        text_bd = batch.gather(text_ld, inputs.axis_name)
        block = margins.Block(index, pair_scores, text_ld, text_bd)
        margin = margin + margins.hn(block, method.finelip_gamma)
    return triplet(
        pair_scores,
        margin=margin,
        index=index,
        axis_name=inputs.axis_name,
        same_pair=inputs.same_pair,
        hardest=method.finelip_hardest,
    )


def fused(similarity: Array, token_scores: Array, weight: float = 0.2) -> Array:
    """Returns (1 - weight) S + weight R, the score to rank by when tokens count, as the inputs.

    Args:
      similarity: S, cosines of the global embeddings.
      token_scores: R, from `scores`, of the same pictures and captions.
      weight: share of R.

    References:
      The released code of FineLIP, arXiv 2504.01916.
    """
    return (1 - weight) * similarity + weight * token_scores


def ramp(settings: terms.Settings, epoch: Array | float) -> Array:
    """Returns the factor of the term's weight, a float32 scalar: 0 to 1 over the first epochs."""
    epochs = settings.method.finelip_ramp_epochs
    epoch = jnp.asarray(epoch, jnp.float32)
    return jnp.clip(epoch / epochs, 0.0, 1.0) if epochs else jnp.ones_like(epoch)


def _init_aggregator(key: Array, width: int, tokens: int) -> dict[str, Any]:
    in_key, out_key = jax.random.split(key)
    return {
        "norm": {"scale": jnp.ones(width, jnp.float32), "bias": jnp.zeros(width, jnp.float32)},
        "fc_in": _init_dense(in_key, width, width // 5),
        "fc_out": _init_dense(out_key, width // 5, tokens),
        "scale": jnp.ones((), jnp.float32),
    }


def _init_dense(key: Array, inputs: int, outputs: int) -> dict[str, Array]:
    bound = inputs**-0.5
    kernel_key, bias_key = jax.random.split(key)
    return {
        "kernel": jax.random.uniform(kernel_key, (inputs, outputs), jnp.float32, -bound, bound),
        "bias": jax.random.uniform(bias_key, (outputs,), jnp.float32, -bound, bound),
    }


def _norm(parameters: types.Params, x: Array) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    standard = centred * jax.lax.rsqrt(variance + _NORM_EPS)
    return standard * parameters["scale"][None, None, :] + parameters["bias"][None, None, :]


def _dense(parameters: types.Params, x: Array) -> Array:
    product = jnp.matmul(x, parameters["kernel"], precision="highest")
    return product + parameters["bias"][None, None, :]


TERMS = (
    terms.Term(
        "triplet",
        triplet_term,
        lambda settings: settings.method.finelip_weight,
        factor=ramp,
        tokens=True,
        init=init,
        lr=2e-4,
    ),
)
