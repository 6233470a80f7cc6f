"""Vectors of length one: the one normalisation that models and losses share."""

import jax
import jax.numpy as jnp

from hnclip_jax.types import Array


def unit(x: Array) -> Array:
    """Returns `x` over its norm along the last axis; vectors of norm below 1e-12 as they are.

    Zero is a value with a finite gradient here, where x / norm(x) gives NaN for both.
    """
    squares = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    # Replaced before the root, not after: a branch not taken would still give 0 * inf backwards.
    return x * jax.lax.rsqrt(jnp.where(squares > 1e-24, squares, 1.0))
