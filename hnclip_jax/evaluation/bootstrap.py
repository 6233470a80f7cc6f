"""Percentile intervals by bootstrap: how far a result moves when other queries had been drawn."""

from collections.abc import Iterator

import numpy as np

from hnclip_jax import types
from hnclip_jax.evaluation import retrieval, ties

LEVEL = 0.95
_COUNTS_AT_ONCE = 4_000_000


def intervals(
    measured: retrieval.Measured, ks: tuple[int, ...], samples: int, seed: int
) -> dict[str, list[float]]:
    """Returns {"t2i_r@1": [low, high], ...} of every metric but "ties", in the metric's unit.

    As many queries as there are get drawn from them, with repetition, `samples` times; 2.5 % of the
    values lie below `low` and 2.5 % above `high`. The gallery stays as it is.

    Args:
      measured: what the gallery gave.
      ks: the K of recall.
      samples: how many times, at least 2.
      seed: of the drawing; the same seed gives the same intervals.

    Raises:
      types.UserError: for fewer samples, or a seed below 0.
    """
    if samples < 2 or seed < 0:
        raise types.UserError(
            f"bootstrap of {samples} samples with seed {seed}; needed are 2 samples or more, and a "
            "seed from 0"
        )
    found: dict[str, list[float]] = {}
    for number, (name, ranks) in enumerate(measured.ranks.items()):
        shares = measured.shares(name, ks)
        columns = np.stack([*shares.values()], axis=1)
        means = [100 * mean for mean in _means(columns, samples, _generator(seed, number, 0))]
        medians = _medians(ties.places(ranks), samples, _generator(seed, number, 1))
        for key, values in zip((*shares, "median_rank"), (*means, medians), strict=True):
            found[f"{name}_{key}"] = _ends(values)
    return found


def _generator(seed: int, *which: int) -> np.random.Generator:
    return np.random.default_rng((seed, *which))


def _ends(values: np.ndarray) -> list[float]:
    return [float(end) for end in np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])]


def _means(columns: np.ndarray, samples: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Returns the means of every column in every sample; rows are drawn whole."""
    rows, count = np.unique(columns, axis=0, return_counts=True)
    parts = [drawn @ rows / len(columns) for drawn in _draws(count, samples, rng)]
    return list(np.concatenate(parts).T)


def _medians(values: np.ndarray, samples: int, rng: np.random.Generator) -> np.ndarray:
    values, count = np.unique(values, return_counts=True)
    total = int(count.sum())
    middle = ((total - 1) // 2, total // 2)
    parts = []
    for drawn in _draws(count, samples, rng):
        below = np.cumsum(drawn, axis=1)
        # The value at place p, from 0, is the first one with more than p values up to it.
        ends = [values[np.argmax(below > place, axis=1)] for place in middle]
        parts.append(np.mean(ends, axis=0))
    return np.concatenate(parts)


def _draws(count: np.ndarray, samples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yields [n, kinds] int64, how often each kind of query was drawn in each of n samples.

    Queries with equal values need not be told apart, so that few numbers do for many queries.
    """
    total = int(count.sum())
    at_once = max(_COUNTS_AT_ONCE // len(count), 1)
    for first in range(0, samples, at_once):
        size = min(at_once, samples - first)
        yield rng.multinomial(total, count / total, size=size)
