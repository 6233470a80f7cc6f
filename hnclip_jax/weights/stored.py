"""An array that is still in its file: shape and type are known, values are read when asked for."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Stored:
    """Stands for a numpy array wherever only some of its values are needed, or none yet.

    A file of weights may be larger than what is left of the memory. So nothing keeps the array:
    every `np.asarray` reads it anew, and whoever wants it once converts, writes and forgets it.

    shape: of the array.
    dtype: of the array.
    read: returns it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the values, as `np.asarray` and `np.array` want them."""
        array = self.read()
        wanted = array.dtype if dtype is None else np.dtype(dtype)
        if copy is False and wanted != array.dtype:
            raise ValueError(f"{array.dtype} values are no {wanted} without a copy")
        return array.astype(wanted, copy=bool(copy))

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize
