"""pictures.jsonl of a packed list: a header, then a line per record, so that it reads as the list.

It is the last file of a packed set to be written, and it knows the size of all the others.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hnclip_jax import types

FORMAT = 1
_NAME = "pictures.jsonl"


def is_there(folder: str | os.PathLike) -> bool:
    """Returns whether a folder has an index."""
    return os.path.isfile(os.path.join(folder, _NAME))


def write(folder: str, header: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes the index.

    Args:
      folder: of the set.
      header: JSON values; among them `shards`, a list of name, records and bytes, and `records`,
        how many rows there are.
      rows: JSON values, one object per record.
    """
    with open(os.path.join(folder, _NAME), "w", encoding="utf-8") as file:
        for line in itertools.chain([{"format": FORMAT, **header}], rows):
            file.write(json.dumps(line) + "\n")


def read(folder: str) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Returns the header, and the rows one after the other.

    Raises:
      types.UserError: if a file of the set is missing, cut off or of another format; of the index
        itself, this comes up as its rows are read.
    """
    path = os.path.join(folder, _NAME)
    try:
        with open(path, encoding="utf-8") as file:
            header = json.loads(file.readline())
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}")
        sizes = {os.path.join(folder, name): size for name, _, size in header["shards"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _broken(path, error) from error
    for shard, size in sizes.items():
        there = os.path.getsize(shard) if os.path.isfile(shard) else 0
        if there != size:
            raise _broken(shard, f"{there} of {size} bytes are there")
    return header, _rows(path, header["records"])


def _rows(path: str, count: int) -> Iterator[dict[str, Any]]:
    there = 0
    with open(path, encoding="utf-8") as file:
        file.readline()
        for line in file:
            try:
                yield json.loads(line)
            except ValueError as error:
                raise _broken(path, error) from error
            there += 1
    if there != count:
        raise _broken(path, f"{there} of {count} records are there")


def _broken(path: str, reason: object) -> types.UserError:
    return types.UserError(
        f"{path} is no whole part of a packed list of format {FORMAT} ({reason}); copy it once "
        "more, or pack the list again"
    )
