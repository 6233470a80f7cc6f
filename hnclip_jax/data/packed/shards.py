"""Pictures inside of ArrayRecord shards: what names one there, how it is read, how it is written.

A record is a tf.train.Example, as tensorflow-datasets writes them. Reading needs neither that nor
TensorFlow.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from array_record.python import array_record_module

from hnclip_jax import types
from hnclip_jax.data.packed import examples

IMAGE = "image"
"""The feature that holds the picture."""

_TOGETHER = 32
_SHARD_BYTES = 2**29


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A picture file that is a record of a shard; small and picklable.

    shard: path of the shard.
    row: number of the record in it, from 0.
    name: of the picture, for messages.
    """

    shard: str
    row: int
    name: str

    def read(self) -> bytes:
        """Returns the bytes of the picture file."""
        return bytes(_image(self.shard, self.row))

    def __str__(self) -> str:
        """Returns what messages call it."""
        return f"{self.name} in {os.path.dirname(self.shard)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Cropped:
    """A picture that was resized and cropped before it became a record of a shard.

    size: pixels of its side; the rest is as in `Encoded`.
    """

    shard: str
    row: int
    name: str
    size: int

    def pixels(self, size: int) -> np.ndarray:
        """Returns [size, size, 3] uint8.

        Raises:
          types.UserError: if the picture was cropped to another size.
        """
        if size != self.size:
            raise types.UserError(
                f"the pictures of {os.path.dirname(self.shard)} are cropped to {self.size} pixels, "
                f"but {size} are needed: pack the list with --size={size}, or without --size"
            )
        pixels = np.frombuffer(_image(self.shard, self.row), np.uint8)
        return pixels.reshape(size, size, 3).copy()

    def __str__(self) -> str:
        """Returns what messages call it."""
        return f"{self.name} in {os.path.dirname(self.shard)}"


def read(shard: str, rows: Sequence[int]) -> Iterator[dict[str, memoryview]]:
    """Yields the features of some examples of a shard, in the order of `rows`."""
    for start in range(0, len(rows), _TOGETHER):
        yield from _features(shard, rows[start : start + _TOGETHER])


class Writer:
    """Writes records into numbered shards of a folder, one after the other."""

    def __init__(self, folder: str, name: str, ends: Sequence[int] = ()) -> None:
        """Prepares `name`-00000-of-0000N, ... in `folder`.

        Args:
          folder: where to write.
          name: what the names of all shards begin with.
          ends: after how many records in all a shard ends; none = whenever it has half a gigabyte.
        """
        self._folder, self._name, self._ends = folder, name, ends
        self._shard: Any = None
        self._drafts: list[str] = []
        self._lengths: list[int] = []
        self._filled = 0

    def write(self, record: bytes) -> None:
        """Adds a record.

        Raises:
          OSError: if it cannot be written.
        """
        with _os_errors():
            if self._shard is None:
                self._begin_shard()
            self._shard.write(record)
            self._lengths[-1] += 1
            self._filled += len(record)
            full = sum(self._lengths) in self._ends if self._ends else self._filled >= _SHARD_BYTES
            if full:
                self._end_shard()

    def close(self) -> list[tuple[str, int, int]]:
        """Names the shards for good; returns name, records and bytes of each.

        Raises:
          OSError: if they cannot be written.
        """
        with _os_errors():
            self._end_shard()
        done = []
        for index, (draft, length) in enumerate(zip(self._drafts, self._lengths, strict=True)):
            name = f"{self._name}-{index:05d}-of-{len(self._drafts):05d}"
            shard = os.path.join(self._folder, name)
            os.rename(draft, shard)
            done.append((name, length, os.path.getsize(shard)))
        return done

    def _begin_shard(self) -> None:
        self._drafts.append(os.path.join(self._folder, f"draft-{len(self._drafts)}"))
        self._lengths.append(0)
        self._filled = 0
        # One record per group, for quick access to any; no compression, which pictures resist.
        options = "group_size:1,uncompressed"
        self._shard = array_record_module.ArrayRecordWriter(self._drafts[-1], options)

    def _end_shard(self) -> None:
        if self._shard is not None:
            self._shard.close()
            self._shard = None


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    # A full disk comes out of the C++ code as a RuntimeError.
    try:
        yield
    except RuntimeError as error:
        raise OSError(" ".join(str(error).split())) from error


def _image(shard: str, row: int) -> memoryview:
    return examples.views(_features(shard, [row])[0][IMAGE])[0]


def _features(shard: str, rows: Sequence[int]) -> list[dict[str, memoryview]]:
    try:
        return [examples.features(record) for record in _reader(shard).read(rows)]
    # The reader answers what it cannot read with whatever its C++ code throws.
    except Exception as error:
        raise types.UserError(
            f"cannot read row {rows[0]} of {shard}: {' '.join(str(error).split())}"
        ) from error


@functools.lru_cache(maxsize=256)
def _reader(shard: str) -> Any:
    """Returns the reader of a shard, which a process opens once; threads may share it."""
    # Rows are read in any order: reading ahead would only read what nobody asked for.
    return array_record_module.ArrayRecordReader(
        shard, options="readahead_buffer_size:0", file_reader_buffer_size=2**15
    )
