"""Symmetric InfoNCE on logits s (S + Delta): the one place where softmax over the batch happens.

Three ways to run, one result. `axis_name=None`: the arrays hold the whole batch, on one device or
sharded under plain jit. With an `axis_name` (a mesh axis, or a tuple of them in mesh order) inside
`jax.shard_map` or `jax.pmap`: the arrays hold this device's rows, the text embeddings are gathered,
and each device forms the rows of its own pictures against all texts. The loss is the mean over the
global batch, the same on every device.

Gradients are right under `jax.shard_map`: taken outside of it, or inside with its default
check_vma=True. Under `jax.pmap` (and inside with check_vma=False) a psum is transposed to a psum,
so on n devices the gradient for a device's rows, and its part of the gradient for shared
parameters, come n times too large: average the gradients of shared parameters over the devices
(`jax.lax.pmean`) instead of adding them up.
"""

import functools
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import margins
from hnclip_jax.types import Array

AxisName: TypeAlias = str | tuple[str, ...] | None

# Finite: a row or column without any negative then has a gradient of 0 and not nan.
MASKED = -1e30


class _Rows(NamedTuple):
    """Per-example arrays, of some rows or of all columns; geometry and same_pair may be None."""

    image: Array
    text: Array
    geometry: Array | None
    same_pair: Array | None


def info_nce(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    axis_name: AxisName = None,
    block_rows: int | None = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns symmetric InfoNCE, a float32 scalar: mean over the global batch and both directions.

    Args:
      image: [B, D], or [L, D] with `axis_name`; unit norm. Computed in float32.
      text: as `image`; row b belongs to image b.
      scale: scalar s = exp(logit_scale).
      axis_name: mapped axis or axes over which the batch is split; see the top of this file.
      block_rows: rows of the logits held at once, forward and backward; None means all.
      same_pair: [B] or [L] integer ids; pairs with equal ids are no negatives of each other.

    Raises:
      types.UserError: for a global batch of one pair, or arrays that do not fit together.
    """
    return shifted_info_nce(
        image,
        text,
        scale,
        margins.none,
        axis_name=axis_name,
        block_rows=block_rows,
        same_pair=same_pair,
    )


def hn_clip(
    image: Array,
    text: Array,
    scale: Array | float,
    gamma: Array | float = 0.5,
    axis_name: AxisName = None,
    block_rows: int | None = None,
    same_pair: Array | None = None,
    geometry: Array | None = None,
) -> Array:
    """Returns the HN-CLIP loss, a float32 scalar: InfoNCE with gamma G added to all negatives.

    G = text text^T comes from the texts that the loss gathers anyway; no gradient flows through it.

    Args:
      image: [B, D], or [L, D] with `axis_name`; unit norm. Computed in float32.
      text: as `image`; row b belongs to image b.
      scale: scalar s = exp(logit_scale).
      gamma: scalar, may be traced; 0 gives `info_nce` bit for bit.
      axis_name: mapped axis or axes over which the batch is split; see the top of this file.
      block_rows: rows of the logits held at once, forward and backward; None means all.
      same_pair: [B] or [L] integer ids; pairs with equal ids are no negatives of each other.
      geometry: rows as `text`, any width, unit norm: embeddings to take G from instead, say those
        of the frozen starting encoder. They need a gather of their own.

    Raises:
      types.UserError: for a global batch of one pair, or arrays that do not fit together.

    References:
      HN-CLIP, arXiv 2608.18521.
    """
    return shifted_info_nce(
        image,
        text,
        scale,
        functools.partial(margins.hn, gamma=gamma),
        axis_name=axis_name,
        block_rows=block_rows,
        same_pair=same_pair,
        geometry=geometry,
    )


def shifted_info_nce(
    image: Array,
    text: Array,
    scale: Array | float,
    margin: margins.Margin,
    *,
    axis_name: AxisName = None,
    block_rows: int | None = None,
    same_pair: Array | None = None,
    geometry: Array | None = None,
) -> Array:
    """Returns symmetric InfoNCE on s (S + Delta), Delta from `margin`; the rest as in `hn_clip`."""
    rows = _as_rows(image, text, geometry, same_pair)
    index = row_index(len(rows.image), axis_name)
    columns = gather(rows._replace(image=None), axis_name)
    check_pairs(len(columns.text))

    def body(numbered: tuple[Array, _Rows]) -> tuple[Array, Array, Array]:
        numbers, part = numbered
        similarity = jnp.matmul(part.image, columns.text.T, precision="highest")
        source = (part.text, columns.text)
        if geometry is not None:
            source = (part.geometry, columns.geometry)
        block = margins.Block(numbers, similarity, *jax.lax.stop_gradient(source))
        logits = logits_of(block, margin, scale, part.same_pair, columns.same_pair)
        return cross_entropies(logits, logits, numbers)

    return mean_loss(*_in_blocks(body, (index, rows), block_rows), index, axis_name)


def gather(local: Any, axis_name: AxisName) -> Any:
    """Returns the arrays of `local` with the rows of all devices, in `row_index` order."""
    return local if axis_name is None else jax.lax.all_gather(local, axis_name, tiled=True)


def row_index(count: int, axis_name: AxisName) -> Array:
    """Returns [L] int32, the numbers in the global batch of this device's `count` rows."""
    first = 0 if axis_name is None else count * jax.lax.axis_index(axis_name)
    return jnp.arange(count) + first


def logits_of(
    block: margins.Block,
    margin: margins.Margin,
    scale: Array | float,
    row_ids: Array | None,
    column_ids: Array | None,
) -> Array:
    """Returns [R, B] float32, s (S + Delta) with equal ids masked."""
    logits = jnp.asarray(scale, jnp.float32) * (block.similarity + margin(block))
    return hide_same_pairs(logits, block.index, row_ids, column_ids)


def hide_same_pairs(
    logits: Array, index: Array, row_ids: Array | None, column_ids: Array | None
) -> Array:
    """Returns `logits` [R, B], masked where ids are equal but for a row's own column."""
    if row_ids is None:
        return logits
    same = row_ids[:, None] == column_ids[None, :]
    return jnp.where(same & ~margins.is_own(index, logits.shape[1]), MASKED, logits)


def cross_entropies(
    row_logits: Array, column_logits: Array, index: Array
) -> tuple[Array, Array, Array]:
    """Returns the parts of both directions' cross entropy that R rows of the batch can tell.

    Args:
      row_logits: [R, B], read along rows (a picture against all captions).
      column_logits: [R, B], read along columns (a caption against these pictures).
      index: [R] int32, the rows' numbers in the global batch.

    Returns:
      row_loss [R]; positive [R], the matched entries of column_logits; column [B], logsumexp of
      each column's negatives among these rows.
    """
    own = margins.is_own(index, row_logits.shape[1])
    rest = jax.nn.logsumexp(jnp.where(own, MASKED, row_logits), axis=1)
    row_loss = cross_entropy(rest, jnp.sum(row_logits, axis=1, where=own))
    positive = jnp.sum(column_logits, axis=1, where=own)
    return row_loss, positive, jax.nn.logsumexp(jnp.where(own, MASKED, column_logits), axis=0)


def mean_loss(
    row_loss: Array, positive: Array, column: Array, index: Array, axis_name: AxisName
) -> Array:
    """Returns the loss of the global batch, a scalar, from what `cross_entropies` gave.

    Args:
      row_loss: [L].
      positive: [L].
      column: [K, B], one row per block.
      index: [L] int32, the rows' numbers in the global batch.
      axis_name: as in `info_nce`. The devices exchange a max of B numbers and a sum of 2 B + 1.
    """
    pairs = column.shape[1]
    top = jax.lax.stop_gradient(jnp.max(column, axis=0))
    top = top if axis_name is None else jax.lax.pmax(top, axis_name)
    parts = (
        jnp.sum(jnp.exp(column - top[None, :]), axis=0),
        jnp.zeros(pairs, jnp.float32).at[index].set(positive),
        jnp.sum(row_loss),
    )
    parts = parts if axis_name is None else jax.lax.psum(parts, axis_name)
    rest, positive_b, row_sum = parts
    column_loss = cross_entropy(top + jnp.log(rest), positive_b)
    return (row_sum + jnp.sum(column_loss)) / (2 * pairs)


def cross_entropy(rest: Array, positive: Array) -> Array:
    """Returns -log softmax of `positive`, given the logsumexp of all other logits.

    The softplus keeps the digits of a loss near 0, and of its gradient, where the difference of two
    logsumexp rounds to 0.
    """
    return jax.nn.softplus(rest - positive)


def check_pairs(pairs: int) -> int:
    """Returns `pairs`, the size of the global batch; one pair is a user error."""
    if pairs < 2:
        raise types.UserError(
            f"a contrastive batch needs at least 2 pairs but has {pairs}: without negatives the "
            "loss is always 0; raise the batch size"
        )
    return pairs


def _as_rows(image: Array, text: Array, geometry: Array | None, same_pair: Array | None) -> _Rows:
    shapes = [jnp.shape(x) for x in (image, text, geometry, same_pair) if x is not None]
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or len({shape[0] for shape in shapes}) > 1:
        raise types.UserError(
            f"image, text (and geometry, same_pair) have shapes {shapes}, but need one row per "
            "pair: [L, D], [L, D], ([L, D'], [L]); give the embeddings of the same examples"
        )
    image, text, geometry = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32), (image, text, geometry)
    )
    return _Rows(image, text, geometry, same_pair)


def _in_blocks(body: Any, rows: Any, block_rows: int | None) -> tuple[Array, Array, Array]:
    """Returns `body` of `rows`, computed and differentiated `block_rows` at a time."""
    count = len(rows[0])
    if block_rows is not None and block_rows < 1:
        raise types.UserError(
            f"block_rows is {block_rows}, but must be at least 1, or None for all"
        )
    if block_rows is None or block_rows >= count:
        row_loss, positive, column = body(rows)
        return row_loss, positive, column[None, :]
    body = jax.checkpoint(body)
    whole = count - count % block_rows
    blocks = jax.tree.map(lambda x: x[:whole].reshape(-1, block_rows, *x.shape[1:]), rows)
    row_loss, positive, column = jax.lax.map(body, blocks)
    parts = [(row_loss.reshape(-1), positive.reshape(-1), column)]
    if whole < count:
        row_loss, positive, column = body(jax.tree.map(lambda x: x[whole:], rows))
        parts.append((row_loss, positive, column[None, :]))
    return tuple(jnp.concatenate(part) for part in zip(*parts, strict=True))
