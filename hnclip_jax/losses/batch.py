"""The global batch: rows gathered and numbered over devices, and who is no negative of whom.

Every loss runs in three ways with one result. `axis_name=None`: the arrays hold the whole batch, on
one device or sharded under plain jit. With an `axis_name` (a mesh axis, or a tuple of them in mesh
order) inside `jax.shard_map` or `jax.pmap`: the arrays hold this device's rows, and what the loss
needs of the others is gathered. A loss is the mean over the global batch, the same on every device.

Gradients are right under `jax.shard_map`: taken outside of it, or inside with its default
check_vma=True. Under `jax.pmap` (and inside with check_vma=False) a psum is transposed to a psum,
so on n devices the gradient for a device's rows, and its part of the gradient for shared
parameters, come n times too large: average the gradients of shared parameters over the devices
(`jax.lax.pmean`) instead of adding them up.
"""

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.types import Array

AxisName: TypeAlias = str | tuple[str, ...] | None

# Finite: a row or column without any negative then has a gradient of 0 and not nan.
MASKED = -1e30


class Guard(NamedTuple):
    """What keeps pairs apart; a field is None where it guards nothing.

    same_pair: [n] integer ids; pairs with equal ids are no negatives of each other.
    valid: [n] bool; a pair with False is not there: neither query nor negative.
    """

    same_pair: Array | None = None
    valid: Array | None = None


def gather(local: Any, axis_name: AxisName) -> Any:
    """Returns the arrays of `local` with the rows of all devices, in `row_index` order."""
    return local if axis_name is None else jax.lax.all_gather(local, axis_name, tiled=True)


def total(local: Any, axis_name: AxisName) -> Any:
    """Returns the arrays of `local`, added up over all devices."""
    return local if axis_name is None else jax.lax.psum(local, axis_name)


def row_index(count: int, axis_name: AxisName) -> Array:
    """Returns [L] int32, the numbers in the global batch of this device's `count` rows."""
    first = 0 if axis_name is None else count * jax.lax.axis_index(axis_name)
    return jnp.arange(count) + first


def check_pairs(pairs: int) -> int:
    """Returns `pairs`, the size of the global batch; one pair is a user error."""
    if pairs < 2:
        raise types.UserError(
            f"a contrastive batch needs at least 2 pairs but has {pairs}: without negatives the "
            "loss is always 0; raise the batch size"
        )
    return pairs


def is_own(index: Array, pairs: int) -> Array:
    """Returns [R, B] bool, True where a row (numbers `index`, [R]) meets its own column."""
    return index[:, None] == jnp.arange(pairs)[None, :]


def hide(logits: Array, index: Array, rows: Guard, columns: Guard) -> Array:
    """Returns `logits` [R, B], MASKED where the guards keep a row and a column apart.

    A row's own column always stays.

    Args:
      logits: [R, B].
      index: [R] int32, the rows' numbers in the global batch.
      rows: guard of the R rows.
      columns: guard of the B columns.
    """
    apart = None
    if rows.same_pair is not None:
        apart = rows.same_pair[:, None] == columns.same_pair[None, :]
    if rows.valid is not None:
        missing = ~(rows.valid[:, None] & columns.valid[None, :])
        apart = missing if apart is None else apart | missing
    if apart is None:
        return logits
    return jnp.where(apart & ~is_own(index, logits.shape[1]), MASKED, logits)


def shown(columns: Guard, pairs: int) -> Array:
    """Returns [B] float32: how many columns of its row each pair sees, its own included.

    Args:
      columns: guard of the whole batch.
      pairs: its size.
    """
    if columns.same_pair is None and columns.valid is None:
        return jnp.full(pairs, pairs, jnp.float32)
    valid = jnp.ones(pairs, bool) if columns.valid is None else jnp.asarray(columns.valid)
    ids = jnp.arange(pairs) if columns.same_pair is None else jnp.asarray(columns.same_pair)
    # Sorted, not compared all with all: that would be another [B, B]. What is not there goes last.
    order = jnp.lexsort((ids, ~valid))
    last = jnp.sum(valid)
    key = jnp.where(jnp.arange(pairs) < last, ids[order], jnp.iinfo(ids.dtype).max)
    end = jnp.minimum(jnp.searchsorted(key, ids, side="right"), last)
    twins = end - jnp.searchsorted(key, ids, side="left")
    count = jnp.where(valid, last - twins + 1, 1)
    return count.astype(jnp.float32)


def mean(values: Array, valid: Array, axis_name: AxisName) -> Array:
    """Returns the mean of `values` [L] over the valid rows of the global batch, 0 if there is none.

    Args:
      values: [L].
      valid: [L] bool.
      axis_name: see the top of this file.
    """
    kept = total(jnp.sum(values, where=valid), axis_name)
    return kept / count(valid, len(valid), axis_name)


def count(valid: Array | None, pairs: int, axis_name: AxisName) -> Array | int:
    """Returns how many pairs of the global batch are there; 1 if there is none.

    Args:
      valid: [L] bool, this device's part of `Guard.valid`, or None.
      pairs: size of the global batch.
      axis_name: see the top of this file.
    """
    if valid is None:
        return pairs
    return jnp.maximum(total(jnp.sum(valid.astype(jnp.float32)), axis_name), 1.0)
