"""Which pictures and captions of one list are in another: what leaks from training into a test."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax.data.checks import hashes

Progress = Callable[[int, int], None]

RADIUS = 12
"""Bits by which the perceptual hashes of one picture may differ; 128 are compared."""

MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 4, 24
"""Grey levels by which thumbnails of one picture may differ, on average and anywhere.

A photograph as JPEG of quality 50, at half or twice its size, differs by less than 1 and 5, a
drawing of 64 x 64 pixels as JPEG of quality 75 by 2 and 14; drawings that differ in one detail,
by 2 to 7 on average, but by 30 to 250 where that is.
"""

SAME, ALIKE = "same", "alike"

_THUMBNAIL_BYTES = 3 * hashes.THUMBNAIL**2

_BLOCK = 128, 4096
"""Rows of the one and the other list that are compared at once: what fits into a core's cache."""


class Match(NamedTuple):
    """An item of A that is in B.

    a, b: positions.
    kind: SAME (equal pixels; equal text) or ALIKE (encoded anew; equal but for case and signs).
    """

    a: int
    b: int
    kind: str


def pictures(
    a: Sequence[hashes.Fingerprint],
    b: Sequence[hashes.Fingerprint],
    *,
    radius: int = RADIUS,
    progress: Progress | None = None,
) -> list[Match]:
    """Returns the pictures of A that are in B, each with the nearest one of B.

    Args:
      a, b: fingerprints; pictures that could not be decoded match nothing.
      radius: bits by which perceptual hashes may differ, before thumbnails decide.
      progress: called with (pictures of A done, pictures of A).
    """
    same = _firsts([print_.digest for print_ in b])
    found = {
        position: Match(position, same[print_.digest], SAME)
        for position, print_ in enumerate(a)
        if print_.digest in same
    }
    left = [position for position, print_ in enumerate(a) if print_.digest]
    left = [position for position in left if position not in found]
    gallery = [position for position, print_ in enumerate(b) if print_.digest]
    nearest = _alike([a[p] for p in left], [b[p] for p in gallery], radius, progress)
    for i, j in nearest.items():
        found[left[i]] = Match(left[i], gallery[j], ALIKE)
    return [found[position] for position in sorted(found)]


def captions(a: Sequence[str], b: Sequence[str]) -> list[Match]:
    """Returns the captions of A that are in B, each with the first one of B."""
    same, alike = _firsts(b), _firsts([normalised(text) for text in b])
    found = []
    for position, text in enumerate(a):
        if text in same:
            found.append(Match(position, same[text], SAME))
        elif (words := normalised(text)) in alike:
            found.append(Match(position, alike[words], ALIKE))
    return found


def normalised(text: str) -> str:
    """Returns the words of a text: without case, signs, and different ways to write a letter."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def _firsts(items: Sequence) -> dict:
    """Returns item -> its first position; what is empty is no item."""
    firsts: dict = {}
    for position, item in enumerate(items):
        if item:
            firsts.setdefault(item, position)
    return firsts


def _alike(
    a: list[hashes.Fingerprint],
    b: list[hashes.Fingerprint],
    radius: int,
    progress: Progress | None,
) -> dict[int, int]:
    """Returns position in `a` -> position of the most similar picture in `b`, if there is one."""
    thumbnails = [
        np.frombuffer(b"".join(p.thumbnail for p in side), np.uint8).reshape(-1, _THUMBNAIL_BYTES)
        for side in (a, b)
    ]
    best: dict[int, tuple[float, int]] = {}
    for rows, columns in _near(_words(a), _words(b), radius, progress):
        pairs = thumbnails[0][rows].astype(np.int16) - thumbnails[1][columns]
        difference = np.abs(pairs)
        mean = difference.mean(axis=1)
        good = (mean <= MEAN_DIFFERENCE) & (difference.max(axis=1) <= LARGEST_DIFFERENCE)
        for i, j, distance in zip(rows[good], columns[good], mean[good], strict=True):
            best[int(i)] = min(best.get(int(i), (np.inf, 0)), (float(distance), int(j)))
    return {i: j for i, (_, j) in best.items()}


def _words(side: list[hashes.Fingerprint]) -> np.ndarray:
    return np.frombuffer(b"".join(p.bits for p in side), np.uint64).reshape(-1, 2)


def _near(
    a: np.ndarray, b: np.ndarray, radius: int, progress: Progress | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields rows of `a` and of `b` that differ by at most `radius` bits, thousands at once."""
    for top in range(0, len(a), _BLOCK[0]):
        upper = a[top : top + _BLOCK[0]]
        for start in range(0, len(b), _BLOCK[1]):
            other = b[start : start + _BLOCK[1]]
            # Few pairs are near in the first half already; only those are looked at further.
            first = np.bitwise_count(upper[:, None, 0] ^ other[None, :, 0])
            rows, columns = np.nonzero(first <= radius)
            second = np.bitwise_count(upper[rows, 1] ^ other[columns, 1])
            near = first[rows, columns] + second <= radius
            rows, columns = rows[near] + top, columns[near] + start
            for at in range(0, len(rows), 4096):
                yield rows[at : at + 4096], columns[at : at + 4096]
        if progress:
            progress(min(top + _BLOCK[0], len(a)), len(a))
