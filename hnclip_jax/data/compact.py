"""Very many small records in little memory: a sequence whose blocks are deflated.

A million long captions are more than a gigabyte as Python objects and less than half as text that
is compressed. Reading in order costs next to nothing; a jump costs a third of a millisecond.
"""

import pickle
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

_BLOCK = 64


class Compact(Sequence):
    """A sequence that grows by `append`; its items are pickled, so that each read makes a new one.

    A slice is a tuple. Threads may read at once.
    """

    def __init__(self) -> None:
        """Begins empty."""
        self._blocks: list[bytes] = []
        self._tail: list[Any] = []
        # One attribute, so that another thread sees a number and the block that belongs to it.
        self._opened: tuple[int, list[Any]] = (-1, [])

    def append(self, item: Any) -> None:
        """Adds an item at the end."""
        self._tail.append(item)
        if len(self._tail) == _BLOCK:
            self._blocks.append(zlib.compress(pickle.dumps(self._tail, protocol=5), 1))
            self._tail = []

    def __len__(self) -> int:
        """Returns how many items there are."""
        return len(self._blocks) * _BLOCK + len(self._tail)

    def __getitem__(self, index: int | slice) -> Any:
        """Returns an item, or a tuple of those of a slice."""
        if isinstance(index, slice):
            return tuple(self[position] for position in range(*index.indices(len(self))))
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"item {index} of {len(self)}")
        number, inside = divmod(index, _BLOCK)
        return self._block(number)[inside]

    def __iter__(self) -> Iterator[Any]:
        """Yields the items in order."""
        for number in range(len(self._blocks) + 1):
            yield from self._block(number)

    def _block(self, number: int) -> list[Any]:
        if number == len(self._blocks):
            return self._tail
        opened = self._opened
        if opened[0] != number:
            opened = (number, pickle.loads(zlib.decompress(self._blocks[number])))
            self._opened = opened
        return opened[1]
