"""Symmetric InfoNCE on logits s (S + Delta): the one place where softmax over the batch happens.

Only the text embeddings are gathered: each device forms the rows of its own pictures against all
texts, and the devices exchange a max and a sum of B numbers for the other direction. On mappings
and gradients see losses/batch.py.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import batch, blockwise, margins
from hnclip_jax.types import Array


class _Rows(NamedTuple):
    """Per-example arrays, of some rows or of all columns; geometry may be None."""

    image: Array
    text: Array
    geometry: Array | None
    guard: batch.Guard


def info_nce(
    image: Array,
    text: Array,
    scale: Array | float,
    *,
    axis_name: batch.AxisName = None,
    block_rows: int | None = None,
    same_pair: Array | None = None,
) -> Array:
    """Returns symmetric InfoNCE, a float32 scalar: mean over the global batch and both directions.

    Args:
      image: [B, D], or [L, D] with `axis_name`; unit norm. Computed in float32.
      text: as `image`; row b belongs to image b.
      scale: scalar s = exp(logit_scale).
      axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
      block_rows: most rows of the logits held at once, forward and backward; None means all.
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
    axis_name: batch.AxisName = None,
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
      axis_name: mapped axis or axes over which the batch is split; see losses/batch.py.
      block_rows: most rows of the logits held at once, forward and backward; None means all.
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
    axis_name: batch.AxisName = None,
    block_rows: int | None = None,
    same_pair: Array | None = None,
    valid: Array | None = None,
    geometry: Array | None = None,
    smoothing: float = 0.0,
) -> Array:
    """Returns symmetric InfoNCE on s (S + Delta), Delta from `margin`; the rest as in `hn_clip`.

    Args:
      image, text, scale, axis_name, block_rows, same_pair, geometry: as in `hn_clip`.
      margin: see losses/margins.py. With block_rows, arrays must be bound to it, not closed over.
      valid: [B] or [L] bool; pairs with False are left out, and the loss is the mean over the rest:
        0 if nothing is left.
      smoothing: e of label smoothing: targets are (1 - e) I + e / (columns that a row sees).
    """
    rows = _as_rows(image, text, geometry, batch.Guard(same_pair, valid))
    blockwise.check(block_rows)
    index = batch.row_index(len(rows.image), axis_name)
    columns = batch.gather(rows._replace(image=None), axis_name)
    pairs = batch.check_pairs(len(columns.text))
    shown = batch.shown(columns.guard, pairs) if smoothing else None
    if block_rows is None or block_rows >= len(rows.image):
        logits = _logits(index, rows, columns, margin, scale)
        row_loss, positive, column = cross_entropies(logits, logits, index)
        if smoothing:
            row_loss = row_loss + smoothing * _smoothing(logits, index, shown)
    else:
        sums = _in_blocks(index, rows, columns, margin, scale, shown, block_rows)
        positive, column = sums.positive, sums.column
        row_loss = cross_entropy(sums.rest, positive)
        if smoothing:
            row_loss = row_loss + smoothing * sums.extra
    count = batch.count(valid, pairs, axis_name)
    return mean_loss(row_loss, positive, column, index, axis_name, count)


def _logits(
    index: Array, rows: _Rows, columns: _Rows, margin: margins.Margin, scale: Array | float
) -> Array:
    """Returns [R, B]: `logits_of` rows that are numbered `index`, [R]."""
    similarity = jnp.matmul(rows.image, columns.text.T, precision="highest")
    source = (rows.text, columns.text)
    if rows.geometry is not None:
        source = (rows.geometry, columns.geometry)
    block = margins.Block(index, similarity, *jax.lax.stop_gradient(source))
    return logits_of(block, margin, scale, rows.guard, columns.guard)


def logits_of(
    block: margins.Block,
    margin: margins.Margin,
    scale: Array | float,
    rows: batch.Guard,
    columns: batch.Guard,
) -> Array:
    """Returns [R, B] float32, s (S + Delta), hidden where the guards keep pairs apart."""
    logits = jnp.asarray(scale, jnp.float32) * (block.similarity + margin(block))
    return batch.hide(logits, block.index, rows, columns)


def _smoothing(logits: Array, index: Array, shown: Array) -> Array:
    """Returns [R], what one unit of label smoothing adds to both directions' losses, by row.

    Smoothed cross entropy is the plain one plus e (positive - mean of all logits), and either
    direction's means are sums over the same entries.

    Args:
      logits: [R, B], hidden where pairs are kept apart.
      index: [R] int32.
      shown: [B] float32, entries that are not hidden per row, which are those per column.
    """
    own = batch.is_own(index, logits.shape[1])
    share = 1 / shown[index][:, None] + 1 / shown[None, :]
    seen = jnp.where(logits > batch.MASKED, logits * share, 0.0)
    return 2 * jnp.sum(logits, axis=1, where=own) - jnp.sum(seen, axis=1)


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
    own = batch.is_own(index, row_logits.shape[1])
    rest = jax.nn.logsumexp(jnp.where(own, batch.MASKED, row_logits), axis=1)
    row_loss = cross_entropy(rest, jnp.sum(row_logits, axis=1, where=own))
    positive = jnp.sum(column_logits, axis=1, where=own)
    return row_loss, positive, jax.nn.logsumexp(jnp.where(own, batch.MASKED, column_logits), axis=0)


def mean_loss(
    row_loss: Array,
    positive: Array,
    column: Array,
    index: Array,
    axis_name: batch.AxisName,
    count: Array | int,
) -> Array:
    """Returns the loss of the global batch, a scalar, from what `cross_entropies` gave.

    Args:
      row_loss: [L].
      positive: [L].
      column: [B].
      index: [L] int32, the rows' numbers in the global batch.
      axis_name: as in `info_nce`. The devices exchange a max of B numbers and a sum of 2 B + 1.
      count: pairs to divide by, from `batch.count`.
    """
    top = jax.lax.stop_gradient(column)
    top = top if axis_name is None else jax.lax.pmax(top, axis_name)
    parts = (
        jnp.exp(column - top),
        jnp.zeros(len(column), jnp.float32).at[index].set(positive),
        jnp.sum(row_loss),
    )
    rest, positive_b, row_sum = batch.total(parts, axis_name)
    column_loss = cross_entropy(top + jnp.log(rest), positive_b)
    return (row_sum + jnp.sum(column_loss)) / (2 * count)


def cross_entropy(rest: Array, positive: Array) -> Array:
    """Returns -log softmax of `positive`, given the logsumexp of all other logits.

    The softplus keeps the digits of a loss near 0, and of its gradient, where the difference of two
    logsumexp rounds to 0.
    """
    return jax.nn.softplus(rest - positive)


def _as_rows(image: Array, text: Array, geometry: Array | None, guard: batch.Guard) -> _Rows:
    shapes = [jnp.shape(x) for x in (image, text, geometry, *guard) if x is not None]
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or len({shape[0] for shape in shapes}) > 1:
        raise types.UserError(
            f"image, text (and geometry, same_pair, valid) have shapes {shapes}, but need one row "
            "per pair: [L, D], [L, D], ([L, D'], [L], [L]); give the embeddings of the same "
            "examples"
        )
    image, text, geometry = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32), (image, text, geometry)
    )
    return _Rows(image, text, geometry, guard)


def _in_blocks(
    index: Array,
    rows: _Rows,
    columns: _Rows,
    margin: margins.Margin,
    scale: Array | float,
    shown: Array | None,
    block_rows: int,
) -> blockwise.Sums:
    """Returns the sums of all rows, made and differentiated `block_rows` at a time.

    Gradient flows where it does in one piece: image, text of the columns, scale, and the floats
    that are bound to `margin`.
    """
    rebind, learnt, told = blockwise.unbind(margin)

    def logits(image: Array, trained: Any, part: Any, fixed: Any) -> Array:
        text, scale, learnt = trained
        columns, told, _ = fixed
        part = part[0], part[1]._replace(image=image)
        return _logits(*part, columns._replace(text=text), rebind(learnt, told), scale)

    def smoothing(logits: Array, part: Any, fixed: Any) -> Array:
        return _smoothing(logits, part[0], fixed[2])

    makers = blockwise.Makers(logits, None if shown is None else smoothing)
    return blockwise.sums(
        makers,
        rows.image,
        (columns.text, jnp.asarray(scale, jnp.float32), learnt),
        (index, rows._replace(image=None)),
        (columns._replace(text=None), told, shown),
        block_rows,
    )
