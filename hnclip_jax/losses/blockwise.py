"""Logsumexps of a matrix of logits that is made, used and dropped a block of rows at a time.

Autodiff of a loop over blocks keeps B numbers or more for each of them. The backward pass here
makes the logits of a block a second time; what is kept between the passes are the inputs and two
numbers for each row and each column.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from hnclip_jax import types
from hnclip_jax.losses import batch
from hnclip_jax.types import Array

# Leaves by their number in a tree.
Arrays: TypeAlias = dict[int, Array]


class Makers(NamedTuple):
    """How a block of R rows is made; neither function may close over arrays of a trace.

    logits: (image [R, D], trained, rows, fixed) -> [R, B] float32; its gradient is taken.
    extra: (logits, rows, fixed) -> [R] float32, what else is wanted of the block; or None.
    """

    logits: Callable[[Array, Any, Any, Any], Array]
    extra: Callable[[Array, Any, Any], Array] | None = None


class Sums(NamedTuple):
    """What L rows of the batch can tell of both directions' softmax.

    rest: [L], logsumexp of each row's negatives.
    positive: [L], the matched logits.
    extra: [L] from `Makers.extra`, or None.
    column: [B], logsumexp of each column's negatives among these rows.
    """

    rest: Array
    positive: Array
    extra: Array | None
    column: Array


class _Exponentials(NamedTuple):
    """A logsumexp before its logarithm: the largest entry, the sum of exp(entry - top)."""

    top: Array
    total: Array

    @property
    def log(self) -> Array:
        return self.top + jnp.log(self.total)


class _Place(NamedTuple):
    """Where a block of `size` rows lies.

    start: int32 scalar. The last block is moved up so that it ends with the rows.
    fresh: [R] bool, False for those of its rows that the block before had, too.
    """

    start: Array
    fresh: Array

    def of(self, whole: Any) -> Any:
        """Returns the block's rows of each array of a tree."""
        size = len(self.fresh)
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, self.start, size), whole)

    def put(self, part: Any, whole: Any) -> Any:
        """Returns `whole` with the block's fresh rows replaced by those of `part`."""

        def one(part: Array, whole: Array, old: Array) -> Array:
            fresh = self.fresh.reshape(-1, *(1,) * (part.ndim - 1))
            part = jnp.where(fresh, part, old)
            return jax.lax.dynamic_update_slice_in_dim(whole, part, self.start, 0)

        return jax.tree.map(one, part, whole, self.of(whole))

    def negatives(self, logits: Array, index: Array) -> Array:
        """Returns the logits [R, B] of the block's rows, numbered `index`, but for the negatives of
        its fresh rows MASKED."""
        hidden = batch.is_own(index, logits.shape[1]) | ~self.fresh[:, None]
        return jnp.where(hidden, batch.MASKED, logits)


def sums(
    makers: Makers, image: Array, trained: Any, rows: Any, fixed: Any, block_rows: int
) -> Sums:
    """Returns the sums of L rows against B columns, made at most `block_rows` rows at a time.

    Gradients flow to `image` and `trained`, in reverse mode alone: `jax.jvp` is an error.

    Args:
      makers: how a block is made.
      image: [L, D] float32.
      trained: tree of float arrays that all blocks share; their gradient is held once.
      rows: tuple of arrays [L, ..] and trees of them; its first is [L] int32, the rows' numbers in
        the global batch.
      fixed: tree of arrays that all blocks share.
      block_rows: at least 1.
    """
    # On devices a shared array becomes one that differs by device, as its gradient does until that
    # is added up, which is best done once and not in every block.
    trained = jax.tree.map(lambda x: x + jnp.zeros_like(image, x.dtype, ()), trained)
    blocks = math.ceil(len(image) / block_rows)
    return _sums(makers, math.ceil(len(image) / blocks), image, trained, rows, fixed)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _sums(makers: Makers, size: int, image: Array, trained: Any, rows: Any, fixed: Any) -> Sums:
    return _forward(makers, size, image, trained, rows, fixed)[0]


def _forward(
    makers: Makers, size: int, image: Array, trained: Any, rows: Any, fixed: Any
) -> tuple[Sums, Any]:
    """Returns the sums, and what `_backward` wants to know."""

    def block(place: _Place, done: Any) -> Any:
        of_rows, column = done
        part = place.of(rows)
        logits = makers.logits(place.of(image), trained, part, fixed)
        negatives = place.negatives(logits, part[0])
        positive = jnp.sum(logits, axis=1, where=batch.is_own(part[0], logits.shape[1]))
        extra = makers.extra and makers.extra(logits, part, fixed)
        found = _exponentials(negatives, 1), positive, extra
        return place.put(found, of_rows), _join(column, negatives)

    first = _Place(jnp.int32(0), jnp.ones(size, bool))
    pairs = jax.eval_shape(
        lambda *given: makers.logits(*given, fixed), *first.of((image,)), trained, first.of(rows)
    ).shape[1]
    of_rows, of_columns = (jnp.zeros_like(image, shape=(n,)) for n in (len(image), pairs))
    start = (_Exponentials(of_rows, of_rows), of_rows, makers.extra and of_rows)
    nothing = _Exponentials(of_columns + batch.MASKED, of_columns)
    (row, positive, extra), column = _over_blocks(block, (start, nothing), len(image), size)
    found = Sums(row.log, positive, extra, column.log)
    return found, (image, trained, rows, fixed, row, column)


def _backward(makers: Makers, size: int, kept: Any, cotangent: Sums) -> Any:
    """Returns the gradients by image and trained, and None twice."""
    image, trained, rows, fixed, row, column = kept
    # d logsumexp = exp(entry - top) / total; divided here, where there are few numbers.
    of_row = cotangent.rest / row.total
    of_column = cotangent.column / column.total

    def block(place: _Place, done: Any) -> Any:
        of_image, of_trained = done
        part = place.of(rows)
        top, by_row, by_positive, by_extra = place.of(
            (row.top, of_row, cotangent.positive, cotangent.extra)
        )
        logits, pull = jax.vjp(
            lambda *given: makers.logits(*given, part, fixed), place.of(image), trained
        )
        negatives = place.negatives(logits, part[0])
        own = batch.is_own(part[0], logits.shape[1]) & place.fresh[:, None]
        by_logits = by_row[:, None] * jnp.exp(negatives - top[:, None])
        by_logits += of_column[None, :] * jnp.exp(negatives - column.top[None, :])
        by_logits += jnp.where(own, by_positive[:, None], 0.0)
        if makers.extra:
            by_extra = jnp.where(place.fresh, by_extra, 0.0)
            by_logits += jax.vjp(lambda x: makers.extra(x, part, fixed), logits)[1](by_extra)[0]
        by_image, by_trained = pull(by_logits)
        return place.put(by_image, of_image), jax.tree.map(jnp.add, of_trained, by_trained)

    start = jax.tree.map(jnp.zeros_like, (image, trained))
    return *_over_blocks(block, start, len(image), size), None, None


_sums.defvjp(_forward, _backward)


def _over_blocks(block: Callable[[_Place, Any], Any], start: Any, count: int, size: int) -> Any:
    """Returns what `block` makes of `start`, called for all blocks of `count` rows, in order."""

    def step(done: Any, first: Array) -> tuple[Any, None]:
        begin = jnp.minimum(first, count - size)
        return block(_Place(begin, begin + jnp.arange(size) >= first), done), None

    return jax.lax.scan(step, start, jnp.arange(0, count, size))[0]


def _exponentials(entries: Array, axis: int) -> _Exponentials:
    top = jnp.max(entries, axis=axis)
    return _Exponentials(top, jnp.sum(jnp.exp(entries - jnp.expand_dims(top, axis)), axis=axis))


def _join(column: _Exponentials, entries: Array) -> _Exponentials:
    """Returns `column` with the rows of `entries`, [R, B], added to it."""
    top = jnp.maximum(column.top, jnp.max(entries, axis=0))
    total = jnp.sum(jnp.exp(entries - top[None, :]), axis=0)
    return _Exponentials(top, column.total * jnp.exp(column.top - top) + total)


def check(block_rows: int | None) -> None:
    """Raises types.UserError for blocks of no rows."""
    if block_rows is not None and block_rows < 1:
        raise types.UserError(
            f"block_rows is {block_rows}, but must be at least 1, or None for all"
        )


def unbind(function: Callable) -> tuple[Callable, Arrays, Arrays]:
    """Returns what binds arrays to a `functools.partial` again, its float arrays, its others."""
    bound = jax.tree_util.Partial(function)
    if isinstance(function, functools.partial):
        bound = jax.tree_util.Partial(function.func, *function.args, **function.keywords)
    leaves, tree = jax.tree.flatten(bound)
    arrays = {n: x for n, x in enumerate(leaves) if isinstance(x, jax.Array | np.ndarray)}
    floats = {n: x for n, x in arrays.items() if jnp.issubdtype(x.dtype, jnp.inexact)}
    others = {n: x for n, x in arrays.items() if n not in floats}
    rest = [None if n in arrays else x for n, x in enumerate(leaves)]

    def rebind(floats: Arrays, others: Arrays) -> Callable:
        given = {**floats, **others}
        return jax.tree.unflatten(tree, [given.get(n, x) for n, x in enumerate(rest)])

    return rebind, floats, others
