"""StructXLIP: edge maps against captions without colours, pictures, and phrases."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hnclip_jax.losses import batch, contrastive, margins, terms
from hnclip_jax.types import Array

LOCAL_TEMPERATURE = 0.07
LOCAL_SCALE_LIMIT = 100.0
DECAY_EPOCHS = (1.0, 8.0)


def pool_spans(states: Array, spans: Array) -> Array:
    """Returns weighted sums of the states in each span, [B, K, W] float32; an empty one gives 0.

    The weights of a span are the softmax of its states' L2 norms; no gradient flows through them.

    Args:
      states: [B, S, W], any floating type. Computed in float32.
      spans: [B, K, 2] integers, (start, stop) positions; stop <= start means no span.

    References:
      StructXLIP, arXiv 2602.20089, as in the released code.
    """
    states = jnp.asarray(states, jnp.float32)
    position = jnp.arange(states.shape[1], dtype=spans.dtype)[None, None, :]
    inside = (position >= spans[:, :, :1]) & (position < spans[:, :, 1:])
    norms = jnp.linalg.norm(jax.lax.stop_gradient(states), axis=2)
    weights = jax.nn.softmax(jnp.where(inside, norms[:, None, :], batch.MASKED), axis=2)
    weights = jnp.where(inside, weights, 0.0)
    return jnp.einsum("bks,bsw->bkw", weights, states, precision="highest")


def pool_phrases(states: Array, arrays: Mapping[str, Array]) -> Array:
    """Returns `pool_spans` of the words' states [B, S, W] over arrays["spans"]."""
    return pool_spans(states, arrays["spans"])


def consistency(image: Array, edge: Array, has: Array, axis_name: batch.AxisName = None) -> Array:
    """Returns 1 - <image, edge>, a float32 scalar: the mean over pictures that have an edge map.

    Args:
      image: [B, D], or [L, D] with `axis_name`; unit norm. Computed in float32.
      edge: as `image`, of the pictures' edge maps. Gradient flows into both.
      has: [B] or [L] bool; if all are False the loss is 0.
      axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.

    References:
      StructXLIP, arXiv 2602.20089, as in the released code.
    """
    image, edge = jnp.asarray(image, jnp.float32), jnp.asarray(edge, jnp.float32)
    distance = 1 - jnp.sum(image * edge, axis=1)
    return batch.mean(distance, has, axis_name)


class _Edges(NamedTuple):
    """Local edge maps of the global batch, [M] of them.

    embedding: [M, D].
    valid: [M] bool.
    owner: [M] int32, the number of the pair that each belongs to.
    same_pair: [M], as in `batch.Guard`, or None.
    """

    embedding: Array
    valid: Array
    owner: Array
    same_pair: Array | None


def local(
    spans: Array,
    span_valid: Array,
    edges: Array,
    edge_valid: Array,
    scale: Array | float,
    axis_name: batch.AxisName = None,
    *,
    same_pair: Array | None = None,
    block_rows: int | None = None,
) -> Array:
    """Returns the loss of phrases against local edge maps, a float32 scalar.

    For a phrase, logsumexp of k <phrase, map> over all valid maps of the global batch, less that
    over the maps of its own picture, k = min(scale / 0.07, 100). The mean over the phrases of a
    picture, then over the pictures that have both; 0 if there are none.

    Args:
      spans: [B, P, D], or [L, P, D] with `axis_name`; unit norm, phrases. Computed in float32.
      span_valid: [B, P] or [L, P] bool.
      edges: [B, K, D] or [L, K, D], unit norm, local edge maps. They are gathered.
      edge_valid: [B, K] or [L, K] bool.
      scale: scalar s = exp(logit_scale); gets a gradient only where s / 0.07 is below 100.
      axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
      same_pair: [B] or [L] integer ids; maps of other pairs with an equal id are left out.
      block_rows: captions whose logits, [P, B K] each, are held at once; None means all.

    References:
      StructXLIP, arXiv 2602.20089, as in the released code.
    """
    spans, edges = jnp.asarray(spans, jnp.float32), jnp.asarray(edges, jnp.float32)
    index = batch.row_index(len(spans), axis_name)
    maps = _edges_of_batch(edges, edge_valid, index, same_pair, axis_name)
    k = jnp.minimum(jnp.asarray(scale, jnp.float32) / LOCAL_TEMPERATURE, LOCAL_SCALE_LIMIT)
    body = functools.partial(_loss_of_caption, maps, k)
    rows = spans, span_valid, index, same_pair
    if block_rows is None or block_rows >= len(spans):
        losses = jax.vmap(body)(rows)
    else:
        losses = jax.lax.map(jax.checkpoint(body), rows, batch_size=block_rows)
    valid = jnp.any(span_valid, axis=1) & jnp.any(edge_valid, axis=1)
    return batch.mean(losses, valid, axis_name)


def _edges_of_batch(
    edges: Array,
    valid: Array,
    index: Array,
    same_pair: Array | None,
    axis_name: batch.AxisName,
) -> _Edges:
    """Returns the maps of all devices, from this device's [L, K, D], [L, K], [L], [L]."""
    edges, valid, owner, ids = batch.gather((edges, valid, index, same_pair), axis_name)
    pairs, count, width = edges.shape
    return _Edges(
        edges.reshape(pairs * count, width),
        valid.reshape(pairs * count),
        jnp.repeat(owner, count),
        None if ids is None else jnp.repeat(ids, count),
    )


def _loss_of_caption(
    maps: _Edges, k: Array, row: tuple[Array, Array, Array, Array | None]
) -> Array:
    """Returns the mean over one caption's phrases, a scalar; 0 if it has none.

    Args:
      maps: see there.
      k: scalar, the inverse temperature.
      row: phrases [P, D], which of them are valid [P], the pair's number [], its id [] or None.
    """
    phrases, valid, number, same_pair = row
    logits = k * jnp.matmul(phrases, maps.embedding.T, precision="highest")
    own = maps.owner == number
    other = maps.valid & ~own
    if same_pair is not None:
        other &= maps.same_pair != same_pair
    own &= maps.valid
    rest, positive = (
        jax.nn.logsumexp(jnp.where(shown[None, :], logits, batch.MASKED), axis=1)
        for shown in (other, own)
    )
    losses = contrastive.cross_entropy(rest, positive)
    count = jnp.maximum(jnp.sum(valid.astype(jnp.float32)), 1.0)
    # A picture without maps has no positive: its losses are about 1e30, and count for nothing.
    return jnp.sum(losses, where=valid & jnp.any(own)) / count


def factor(settings: terms.Settings, epoch: Array, floor: float) -> Array:
    """Returns the factor of a weight, a float32 scalar from 1 down to `floor`.

    It is 1 in epochs 0 and 1, falls along half a cosine and stays at `floor` from epoch 8. As in
    the released code it depends on the epoch's number, so it is constant within an epoch.

    Args:
      settings: method.structxlip_decay False means 1 at all times.
      epoch: float32 scalar, epochs done, with fraction.
      floor: what is left in the end.
    """
    if not settings.method.structxlip_decay:
        return jnp.float32(1.0)
    # A little more: a step over the steps of an epoch may round to just below a whole number.
    number = jnp.floor(jnp.asarray(epoch, jnp.float32) + 1e-4)
    first, last = DECAY_EPOCHS
    done = jnp.clip((number - first) / (last - first), 0.0, 1.0)
    return floor + (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * done))


def _structure_term(inputs: terms.Inputs) -> Array:
    """Returns plain InfoNCE of edge maps and structure captions; s gets no gradient from it."""
    edge = inputs.views["edge"]
    return contrastive.shifted_info_nce(
        edge.image,
        edge.text,
        jax.lax.stop_gradient(jnp.asarray(inputs.scale, jnp.float32)),
        margins.none,
        axis_name=inputs.axis_name,
        block_rows=inputs.block_rows,
        same_pair=inputs.same_pair,
        valid=inputs.arrays["has_edge"],
    )


def _rgb_term(inputs: terms.Inputs) -> Array:
    edge = inputs.views["edge"].image
    return consistency(inputs.pair.image, edge, inputs.arrays["has_edge"], inputs.axis_name)


def _local_term(inputs: terms.Inputs) -> Array:
    """Returns `local` of the phrases, whose states are those of the structure caption.

    In mode "as_released" they are those of the full caption, at the same positions, and have passed
    the final norm before they are pooled.
    """
    as_released = inputs.settings.method.structxlip_mode == "as_released"
    caption = inputs.pair if as_released else inputs.views["edge"]
    spans = inputs.arrays["spans"]
    return local(
        caption.spans,
        spans[:, :, 1] > spans[:, :, 0],
        inputs.views["local_edge"].image,
        inputs.arrays["has_local"],
        inputs.scale,
        inputs.axis_name,
        same_pair=inputs.same_pair,
        block_rows=inputs.block_rows,
    )


VIEWS = {
    # Its phrases are for mode "as_released"; where nothing reads them the compiler drops them.
    terms.PAIR: terms.View("image", "tokens", pool_words=pool_phrases, words_normed=True),
    "edge": terms.View("edge", "structure_tokens", pool_words=pool_phrases),
    "local_edge": terms.View("local_edge"),
}

TERMS = (
    terms.Term(
        "structxlip_structure",
        _structure_term,
        weight=lambda settings: settings.method.structxlip_structure_weight,
        factor=functools.partial(factor, floor=0.7),
        views=("edge",),
        inputs=("structure",),
    ),
    terms.Term(
        "structxlip_rgb",
        _rgb_term,
        weight=lambda settings: settings.method.structxlip_rgb_weight,
        factor=functools.partial(factor, floor=0.5),
        views=("edge",),
        inputs=("structure",),
    ),
    terms.Term(
        "structxlip_local",
        _local_term,
        weight=lambda settings: settings.method.structxlip_local_weight,
        factor=functools.partial(factor, floor=0.4),
        views=("edge", "local_edge"),
        inputs=("structure",),
    ),
)
