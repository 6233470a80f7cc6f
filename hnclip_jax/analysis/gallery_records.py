"""The records of a list as galleries need them: by their ids, and as pixels."""

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from hnclip_jax import types
from hnclip_jax.data import images, lists

SIDE = 224
"""Pixels of a picture, where it is not stored in a size of its own."""


def positions(records: Sequence[lists.Record], ids: Sequence[str]) -> dict[str, int]:
    """Returns id -> position of the records that have these ids, in the order of the ids.

    Raises:
      types.UserError: for an id that no record has, or one that is given twice.
    """
    found = {record.id: position for position, record in enumerate(records)}
    for name in ids:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {types.at_most_ten(found)}"
            raise types.UserError(f"no picture of the list has the id {name!r}; {hint}")
    if len({*ids}) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise types.UserError(f"id {twice!r} is given twice; name each picture once")
    return {name: found[name] for name in ids}


class Pictures:
    """The pictures of a list: the centre square, as the model sees it."""

    def __init__(
        self,
        records: Sequence[lists.Record],
        options: images.Options,
        say: Callable[[str], None],
    ) -> None:
        """Takes the records, how files become pixels, and what is told of those that are broken."""
        self._records, self._options, self._say = records, options, say
        self._loaded: dict[int, np.ndarray | None] = {}

    def __call__(self, position: int) -> np.ndarray | None:
        """Returns [side, side, 3] uint8 of a record; None if it is broken, which is told once."""
        if position not in self._loaded:
            self._loaded[position] = self._load(self._records[position].image)
        return self._loaded[position]

    def _load(self, reference: images.Reference) -> np.ndarray | None:
        try:
            side = getattr(reference, "size", SIDE)
            return images.load_image(reference, side, self._options)
        except types.UserError as error:
            self._say(f"{error}; an empty box stands for it")
            return None
