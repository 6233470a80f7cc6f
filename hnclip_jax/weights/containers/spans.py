"""A span of bytes in a file and the array in it, mapped only when it is asked for."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import stored


@dataclasses.dataclass(frozen=True)
class Span:
    """Where values lie.

    path: of the file.
    start: first byte.
    size: in bytes.
    check: called before values are read; raises types.UserError if they are damaged.
    """

    path: pathlib.Path
    start: int
    size: int
    check: Callable[[], None] = lambda: None


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Returns how many elements lie between the first and the last one, these included."""
    if 0 in shape:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))


def rows(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides, in elements, of an array whose rows lie one after the other."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def array(
    span: Span,
    dtype: np.dtype,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int = 0,
) -> stored.Stored:
    """Returns the array in a span; the caller made sure that it lies inside.

    Its values are views of the file and read-only: the system may drop those pages whenever memory
    is short, and they are given back with the last array that shows them.

    Args:
      span: the bytes.
      dtype: of the values.
      shape: of the array.
      strides: one step along each axis, in elements.
      offset: of the first value, in elements.
    """
    shape, size = tuple(shape), dtype.itemsize

    def read() -> np.ndarray:
        span.check()
        if 0 in shape:
            return np.zeros(shape, dtype)
        start, length = span.start + offset * size, extent(shape, strides) * size
        try:
            mapped = np.memmap(span.path, np.uint8, "r", start, (length,))
        except (OSError, ValueError) as error:
            raise types.UserError(f"{span.path} changed while it was read: {error}") from error
        return np.ndarray(shape, dtype, mapped, 0, tuple(stride * size for stride in strides))

    return stored.Stored(shape, dtype, read)
