"""Which rows of a list are meant, and by which id each is known."""

import collections
import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from hnclip_jax import types
from hnclip_jax.data.formats import fields

_DIGEST = 16


def splits(path: str, rows: Sequence[fields.Row], split: str) -> frozenset[str] | None:
    """Returns the splits whose rows are meant; None: all rows.

    Args:
      path: for messages.
      rows: of the list.
      split: as the user names it, several joined by "+"; "" for none.

    Raises:
      types.UserError: if the list has several and none is named, or it lacks the one that is named.
    """
    counts = collections.Counter(row.split for row in rows)
    found = ", ".join(f"{name or '(none)'} {counts[name]:,}" for name in counts)
    if not split:
        if len(counts) > 1:
            raise types.UserError(f"{path} has several splits ({found}); name the one to read")
        return None
    wanted = split.split("+")
    for name in wanted:
        if name not in counts or not name:
            if not any(counts):
                raise types.UserError(f"{path} names no splits, so it has no {name!r}; name none")
            raise types.UserError(
                f"{types.unknown_name('split', name, filter(None, counts))} ({path} has {found})"
            )
    return frozenset(wanted)


def digest(text: str) -> bytes:
    """Returns 16 bytes that stand for a text: equal texts, equal bytes."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


class Digests:
    """Digests of very many texts, 16 bytes each."""

    def __init__(self) -> None:
        """Begins with none."""
        self._bytes = bytearray()

    def add(self, text: str) -> None:
        """Adds that of a text."""
        self._bytes += digest(text)

    def different(self) -> int:
        """Returns how many different ones there are."""
        return len(np.unique(self.array()))

    def array(self) -> np.ndarray:
        """Returns them as an [n] array that can be sorted."""
        return np.frombuffer(bytes(self._bytes), f"S{_DIGEST}")


def renamed(digests: np.ndarray, id_of: Callable[[int], str]) -> dict[int, str]:
    """Returns new ids, by position, for ids that stand earlier: "a", "a#2", "a#3".

    Args:
      digests: [n], of the ids.
      id_of: position -> id; only called for what repeats.
    """
    known, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    new: dict[int, str] = {}
    last: dict[str, int] = {}
    taken: set[str] = set()
    for position in np.flatnonzero(counts[inverse] > 1).tolist():
        name = id_of(position)
        number = last.get(name, 0) + 1
        if number > 1:
            while _among(known, f"{name}#{number}") or f"{name}#{number}" in taken:
                number += 1
            new[position] = f"{name}#{number}"
            taken.add(new[position])
        last[name] = number
    return new


def clash(paths: np.ndarray, names: np.ndarray) -> tuple[int, int] | None:
    """Returns two positions whose paths are equal while their names differ; None if none do.

    Args:
      paths: [n] digests.
      names: [n] digests.
    """
    order = np.argsort(paths, kind="stable")
    paths, names = paths[order], names[order]
    wrong = np.flatnonzero((paths[1:] == paths[:-1]) & (names[1:] != names[:-1]))
    if not wrong.size:
        return None
    pairs = np.stack([order[wrong], order[wrong + 1]], axis=1)
    first, second = min(pairs.tolist(), key=lambda pair: pair[1])
    return first, second


def _among(known: np.ndarray, text: str) -> bool:
    wanted = np.array([digest(text)], known.dtype)
    place = np.searchsorted(known, wanted)[0]
    return bool(place < len(known) and known[place] == wanted[0])
