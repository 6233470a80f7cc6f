"""The captions of a list, whether or not its pictures are there."""

import os
from typing import NamedTuple

from hnclip_jax import types
from hnclip_jax.data import lists, pack, selection
from hnclip_jax.data.checks import texts
from hnclip_jax.data.formats import rows as rows_lib
from hnclip_jax.data.formats import textfile


class Captions(NamedTuple):
    """What a list says, in words.

    records: rows with a caption that can be used; pictures as the list names them.
    left_out: captions that cannot be used.
    """

    records: list[lists.Record]
    left_out: int


def read(
    path: str | os.PathLike, *, split: str = "", progress: textfile.Progress | None = None
) -> Captions:
    """Returns the captions of a list in any format that `lists.read` takes; looks for no picture.

    Args:
      path: of the list.
      split: rows of which split, as `lists.read` takes it.
      progress: called with bytes read and bytes in all.

    Raises:
      types.UserError: if the list cannot be read, or has no caption that can be used.
    """
    path = os.path.abspath(path)
    if pack.is_packed(path):
        return Captions(list(pack.read(path).records), 0)
    rows = rows_lib.read(path, progress=progress).rows
    wanted = selection.splits(path, rows, split)
    records, left_out = [], 0
    for index, row in enumerate(rows):
        if wanted is None or row.split in wanted:
            usable = tuple(text.strip() for text in row.captions if not texts.fault(text))
            left_out += max(len(row.captions), 1) - len(usable)
            if usable:
                records.append(lists.Record(index, row.image, usable))
    if not records:
        raise types.UserError(f"{path}: no row has a caption that can be used")
    return Captions(records, left_out)
