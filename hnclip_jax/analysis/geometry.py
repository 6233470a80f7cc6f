"""How alike the captions of a list are: all pairs of them, and each one's hardest companion."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax import types

Progress = Callable[[int, int], None]

BINS = 400
EDGES = np.linspace(-1, 1, BINS + 1)
"""Of the histograms; bin k holds EDGES[k] <= cosine < EDGES[k + 1], and the last one also 1."""

HARDNESS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Where a bucket of hardness ends and the next begins; all of them are among EDGES."""
BUCKETS = (
    f"below {HARDNESS[0]:g}",
    *(f"{low:g} to {high:g}" for low, high in itertools.pairwise(HARDNESS)),
    f"{HARDNESS[-1]:g} or more",
)

_ROWS = 2048
_COUNTED = 1 << 16
"""Cosines that are sorted into bins at once: few enough to stay in a core's own cache."""
_MOST_WORKERS = 8
_UNIT = 1e-3
"""How far from 1 the norm of a row may be; bfloat16 would be off by more than float32."""


class Geometry(NamedTuple):
    """How alike captions are. Pairs are unordered, and those with equal ids are no negatives.

    captions: how many.
    pairs: pairs of captions that are negatives of each other.
    left_out: the other pairs.
    mean, std: of the cosines of `pairs`, in float64; std is that of the population.
    counts: [BINS] int64, how many of these cosines are in each bin.
    hardest: [captions] float32, the largest cosine of each caption with a negative.
    """

    captions: int
    pairs: int
    left_out: int
    mean: float
    std: float
    counts: np.ndarray
    hardest: np.ndarray

    @property
    def hardest_mean(self) -> float:
        """The mean of `hardest`."""
        return float(np.mean(self.hardest, dtype=np.float64))

    @property
    def hardest_counts(self) -> np.ndarray:
        """How many of `hardest` are in each bin, [BINS] int64."""
        return _folded(_count(self.hardest))

    def text(self) -> str:
        """Returns the figures and the shares by hardness, for a terminal."""
        pairs, hardest = hardness(self.counts), hardness(self.hardest_counts)
        near = hardest[-2:].sum()
        return "\n".join(
            [
                f"{self.captions:,} captions, {self.pairs:,} pairs of negatives ({self.left_out:,} "
                f"pairs of one picture or text left out): mean cosine {self.mean:.4f}, standard "
                f"deviation {self.std:.4f}.",
                "The hardest companion of a caption has a cosine of "
                f"{self.hardest_mean:.4f} on average; {near:.1%} of the captions have one of "
                f"{HARDNESS[-2]:g} or more.",
                f"{'cosine':<14}{'all pairs':>14}{'hardest companions':>22}",
                *(
                    f"{name:<14}{part:>14.5%}{hard:>22.2%}"
                    for name, part, hard in zip(BUCKETS, pairs, hardest, strict=True)
                ),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON values; of `hardest` the mean and the histogram."""
        return {
            "captions": self.captions,
            "pairs": self.pairs,
            "pairs_left_out": self.left_out,
            "mean": self.mean,
            "std": self.std,
            "hardest_mean": self.hardest_mean,
            "share_of_pairs": dict(zip(BUCKETS, hardness(self.counts), strict=True)),
            "share_of_hardest": dict(zip(BUCKETS, hardness(self.hardest_counts), strict=True)),
            "counts": self.counts.tolist(),
            "hardest_counts": self.hardest_counts.tolist(),
        }


def measure(text: np.ndarray, pair_ids: np.ndarray, progress: Progress | None = None) -> Geometry:
    """Returns how alike captions are, from [_ROWS, _ROWS] cosines at a time, on all cores.

    The histograms are made from float32 products, so a cosine within 1e-6 of an edge may be on
    either side. Mean and standard deviation are those of the exact products.

    Args:
      text: [T, D] float32, unit norm.
      pair_ids: [T] int; captions with equal ids are no negatives of each other.
      progress: called with (pairs compared, all pairs).

    Raises:
      types.UserError: if a row is no unit vector, or no two captions are negatives.
    """
    _check(text, pair_ids)
    text = np.ascontiguousarray(text, np.float32)
    captions = len(text)
    left_out = sum(len(group) * (len(group) - 1) // 2 for group in _groups(pair_ids))
    pairs = captions * (captions - 1) // 2 - left_out
    mean, std = _moments(text, pair_ids, pairs)
    counts, hardest = _compare(text, pair_ids, progress)
    return Geometry(captions, pairs, left_out, mean, std, counts, hardest)


def hardness(counts: np.ndarray) -> np.ndarray:
    """Returns [BUCKETS] float64: which share of what a histogram [BINS] holds is in each bucket."""
    starts = np.searchsorted(EDGES, [-1, *(edge - 1e-9 for edge in HARDNESS)])
    return np.add.reduceat(counts, starts) / counts.sum()


def _check(text: np.ndarray, pair_ids: np.ndarray) -> None:
    off = np.abs(np.linalg.norm(text, axis=1) - 1)
    # Written so that nan is found, too.
    wrong = np.flatnonzero(~(off <= _UNIT))
    if len(wrong):
        raise types.UserError(
            f"{len(wrong):,} of {len(text):,} embeddings of captions are no unit vectors, the "
            f"first that of caption {wrong[0]}: its norm is "
            f"{np.linalg.norm(text[wrong[0]]):g}; look whether the weights are sound"
        )
    if len(np.unique(pair_ids)) < 2:
        raise types.UserError(
            f"{len(text)} captions, but no two of different pictures and texts: there is nothing "
            "to compare; give a longer list"
        )


def _groups(pair_ids: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the positions of the captions that share an id, for each id that several have."""
    order = np.argsort(pair_ids, kind="stable")
    ends = np.flatnonzero(np.diff(pair_ids[order])) + 1
    return (group for group in np.split(order, ends) if len(group) > 1)


def _moments(text: np.ndarray, pair_ids: np.ndarray, pairs: int) -> tuple[float, float]:
    """Returns mean and standard deviation of the cosines of all negatives."""
    sums = _sums(text) - sum(_sums(text[group]) for group in _groups(pair_ids))
    mean, square = sums / pairs
    return float(mean), float(np.sqrt(max(square - mean**2, 0.0)))


def _sums(rows: np.ndarray) -> np.ndarray:
    """Returns [2] float64: sums of the products of all pairs of rows, and of their squares.

    No pair is looked at: the sum of all products is the squared norm of the sum of the rows, and
    X X^T and X^T X have the same Frobenius norm.
    """
    count, width = rows.shape
    whole, norms, gram = np.zeros(width), np.empty(count), 0.0
    for low in range(0, count, _ROWS):
        part = rows[low : low + _ROWS].astype(np.float64)
        whole += part.sum(axis=0)
        norms[low : low + _ROWS] = np.einsum("td,td->t", part, part)
        # Few rows, those of one picture say, are one part; their own products are then fewer.
        gram = gram + (part.T @ part if count > min(width, _ROWS) else part @ part.T)
    every = np.array([whole @ whole, np.sum(np.square(gram))])
    return (every - [norms.sum(), norms @ norms]) / 2


def _compare(
    text: np.ndarray, ids: np.ndarray, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the histogram of the cosines of all negatives, and each caption's largest one."""
    counts = np.zeros(BINS + 1, np.int64)
    hardest = np.full(len(text), -np.inf, np.float32)
    parts = [slice(low, min(low + _ROWS, len(text))) for low in range(0, len(text), _ROWS)]
    blocks = [(rows, columns) for at, rows in enumerate(parts) for columns in parts[at:]]
    done, total = 0, len(text) * (len(text) - 1) // 2
    with (
        futures.ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_WORKERS)) as pool,
        # Closed first, so that whoever is interrupted does not wait for all the blocks.
        contextlib.closing(pool.map(lambda block: _block(text, ids, *block), blocks)) as found,
    ):
        for (rows, columns), (seen, of_rows, of_columns) in zip(blocks, found, strict=True):
            counts += seen
            np.maximum(hardest[rows], of_rows, out=hardest[rows])
            np.maximum(hardest[columns], of_columns, out=hardest[columns])
            height, width = len(of_rows), len(of_columns)
            done += height * (height - 1) // 2 if rows == columns else height * width
            if progress:
                progress(done, total)
    return _folded(counts), hardest


def _block(
    text: np.ndarray, ids: np.ndarray, rows: slice, columns: slice
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the histogram of some rows against some columns, and the largest cosine of each."""
    cosines = text[rows] @ text[columns].T
    counted = cosines.ravel()
    if np.isin(ids[rows], ids[columns]).any():
        negatives = ids[rows, None] != ids[columns]
        counted = cosines[np.triu(negatives) if rows == columns else negatives]
        cosines = np.where(negatives, cosines, -np.inf)
    return _count(counted), cosines.max(axis=1), cosines.max(axis=0)


def _count(cosines: np.ndarray) -> np.ndarray:
    """Returns [BINS + 1] int64, how many cosines [n] are in each bin; the last one is for 1."""
    counts = np.zeros(BINS + 1, np.int64)
    for low in range(0, len(cosines), _COUNTED):
        # Rounded towards 0, so what is a little below -1 is in the first bin.
        bins = (cosines[low : low + _COUNTED] * (BINS / 2) + BINS / 2).astype(np.int32)
        counts += np.bincount(bins, minlength=BINS + 1)
    return counts


def _folded(counts: np.ndarray) -> np.ndarray:
    """Returns [BINS] with the 1s, counted for themselves, in the last bin."""
    return np.append(counts[:-2], counts[-2] + counts[-1])
