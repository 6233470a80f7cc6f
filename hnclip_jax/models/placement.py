"""Where a mesh reaches into the towers: the look-up of tokens, and whose turn it is backward."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from hnclip_jax import types

LookUp = Callable[[types.Array, types.Array], types.Array]
"""(table [V, W], ids [B, S]) -> the rows [B, S, W] that the ids name; NaN for an id beyond it."""


def look_up(table: types.Array, ids: types.Array) -> types.Array:
    """Returns the rows of a table that is not split."""
    # Plain indexing would give the last row for an id beyond the table.
    return jnp.take(table, ids, axis=0)


@jax.custom_vjp
def after(first: types.Array, params: types.Params) -> tuple[types.Array, types.Params]:
    """Returns both as they are; but backward, `first` waits until `params` have their gradient.

    Two towers share a backward pass, and left to itself the compiler may begin with either. In
    turn, what one of them kept for it is gone when the other's blocks are computed once more.

    Args:
      first: what the tower gave whose backward pass comes last.
      params: of the tower whose backward pass comes first; it must use what is returned.
    """
    return first, params


def _forward(first: types.Array, params: types.Params) -> tuple:
    return (first, params), None


def _backward(_: None, gradients: tuple) -> tuple:
    return jax.lax.optimization_barrier(gradients)


after.defvjp(_forward, _backward)
