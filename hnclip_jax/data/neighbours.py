"""The nearest captions of other pictures, by words: the same numbers on every machine."""

from collections.abc import Callable, Sequence

import numpy as np

from hnclip_jax.data.checks import nearest

Progress = Callable[[int, int], None]

_BLOCK = 256
_WIDTH = 512
_NORM = 4000
"""Length of a projected caption. Its entries are whole numbers, and sums of products stay below
2^24, so float32 holds them exactly: no machine and no number of threads finds other neighbours."""
_UNIT = 2**15
"""Length of a caption's vector of words, whole numbers as well."""
_LOOKED_AT = 2
"""So many candidates are compared word by word for each neighbour that is kept."""
_OUT = -np.inf


def find(
    captions: Sequence[str],
    pair_ids: np.ndarray,
    count: int,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns for each caption the nearest ones of other pictures, and their cosines.

    Vectors of words, weighted as in `nearest.by_words`, are projected on random signs, which tells
    candidates; these are ordered by the true cosine. What shares half of its weight is found;
    captions that are nobody's near-duplicates may get others than their true nearest. Of equals the
    first one behind the caption counts as nearer, and the list goes round. Time grows with the
    square of n, memory with n.

    Args:
      captions: n texts.
      pair_ids: [n] int; equal ids are no neighbours of each other.
      count: neighbours wanted.
      progress: called with (captions done, n).

    Returns:
      Rows [n, count] int32, the nearest first, -1 where there are no more; and their cosines
      [n, count] float32, -inf where there is no row.
    """
    texts = _Words(captions)
    projected = texts.projected()
    rows = np.full((len(captions), count), -1, np.int32)
    cosines = np.full((len(captions), count), _OUT, np.float32)
    wanted = min(_LOOKED_AT * count, len(captions))
    for low in range(0, len(captions) if wanted else 0, _BLOCK):
        block = slice(low, low + _BLOCK)
        scores = projected[block] @ projected.T
        scores[pair_ids[block, None] == pair_ids] = _OUT
        least = np.partition(scores, -wanted, axis=1)[:, -wanted]
        for row, (scored, at_least) in enumerate(zip(scores, least, strict=True), low):
            candidates = np.flatnonzero((scored >= at_least) & (scored > _OUT))
            candidates = _best(row, candidates, scored[candidates], len(captions))[:wanted]
            exact = texts.products(row, candidates)
            found = _best(row, candidates, exact, len(captions))[:count]
            rows[row, : len(found)] = found
            cosines[row, : len(found)] = np.sort(exact)[::-1][: len(found)] / _UNIT**2
        if progress:
            progress(min(low + _BLOCK, len(captions)), len(captions))
    return rows, cosines


def _best(row: int, columns: np.ndarray, scores: np.ndarray, total: int) -> np.ndarray:
    """Returns the columns, the best first; of equals the next one behind the row."""
    return columns[np.lexsort(((columns - row) % total, -scores))]


class _Words:
    """A sparse matrix of whole numbers, a row per caption: [n, words]."""

    def __init__(self, captions: Sequence[str]) -> None:
        self._starts, self._words, weights = nearest.word_weights(captions)
        self._weights = np.rint(weights.astype(np.float64) * _UNIT)
        self._dense = np.zeros(int(self._words.max(initial=-1)) + 1)

    def projected(self) -> np.ndarray:
        """Returns [n, _WIDTH] float32, whole numbers; an empty caption is all zeros."""
        captions = len(self._starts) - 1
        signs = np.random.default_rng(0).integers(0, 2, (len(self._dense), _WIDTH), np.int8) * 2 - 1
        made = np.empty((captions, _WIDTH), np.float32)
        for low in range(0, captions, _BLOCK):
            places, lengths = self._places(np.arange(low, min(low + _BLOCK, captions)))
            used, columns = np.unique(self._words[places], return_inverse=True)
            block = np.zeros((len(lengths), len(used)), np.float32)
            block[np.repeat(np.arange(len(lengths)), lengths), columns] = self._weights[places]
            sums = (block @ signs[used].astype(np.float32)).astype(np.float64)
            norms = np.sqrt((sums**2).sum(axis=1, keepdims=True))
            made[low : low + _BLOCK] = np.rint(sums * (_NORM / np.maximum(norms, 1)))
        return made

    def products(self, row: int, others: np.ndarray) -> np.ndarray:
        """Returns the products of a caption with others, [others] float64, whole numbers."""
        inside = slice(self._starts[row], self._starts[row + 1])
        self._dense[self._words[inside]] = self._weights[inside]
        places, lengths = self._places(others)
        each = self._dense[self._words[places]] * self._weights[places]
        self._dense[self._words[inside]] = 0
        return np.bincount(np.repeat(np.arange(len(others)), lengths), each, len(others))

    def _places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns where captions have their words, one after the other, and how many each has."""
        lengths = self._starts[rows + 1] - self._starts[rows]
        before = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(self._starts[rows] - before, lengths), lengths
