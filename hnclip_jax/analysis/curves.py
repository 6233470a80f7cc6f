"""Numbers that curves are drawn from: running medians, bands, spreads, and what no axis can show.

Nothing here interpolates beyond what was measured, and nothing is left out without being counted.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

BAND = (0.1, 0.9)
"""Shares of the values that lie below a band's lower and upper edge."""

_APART = 0.06
"""How far the lines for what an axis cannot show lie beyond its values, as a share of the axis."""


class Band(NamedTuple):
    """Where the values of an epoch lie.

    epoch: its number, from 1.
    first, last: it begins behind step `first` and ends with step `last`.
    low, median, high: quantiles; nan if no value of it is a number.
    count: values that are numbers.
    """

    epoch: int
    first: int
    last: int
    low: float
    median: float
    high: float
    count: int


class Spread(NamedTuple):
    """Runs that differ in their seed, at n places.

    count: [n] int64, runs.
    mean, low, high: [n] float64, over the runs; low and high are the smallest and the largest.
    deviation: [n] float64, standard deviation with n - 1; nan below three runs.
    """

    count: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    deviation: np.ndarray


class Clamped(NamedTuple):
    """Values as an axis can show them.

    drawn: [n] float64, finite.
    zeros, infinite, undefined: [n] bool, what was moved: zeros and nan to the floor, infinity to
      the ceiling (below zero: to the floor).
    """

    drawn: np.ndarray
    zeros: np.ndarray
    infinite: np.ndarray
    undefined: np.ndarray


def quantile(values: np.ndarray, share: float) -> float:
    """Returns the quantile of numbers, linear between neighbours; nan if there are none.

    Unlike numpy's it knows infinity: between a number and infinity lies infinity.

    Args:
      values: [n]; nan is left out.
      share: of the values below, 0 to 1.
    """
    ordered = np.sort(values[~np.isnan(values)])
    if not ordered.size:
        return math.nan
    place = share * (ordered.size - 1)
    below = int(place)
    rest = place - below
    if not rest:
        return float(ordered[below])
    return float((1 - rest) * ordered[below] + rest * ordered[below + 1])


def running_median(steps: np.ndarray, values: np.ndarray, window: int) -> np.ndarray:
    """Returns the median of the values at most half a window away in steps.

    Args:
      steps: [n] int, rising.
      values: [n]; nan is left out.
      window: in steps.

    Returns:
      [n] float64; nan where all values around are nan.
    """
    first = np.searchsorted(steps, steps - window / 2, side="left")
    last = np.searchsorted(steps, steps + window / 2, side="right")
    medians = [quantile(values[a:b], 0.5) for a, b in zip(first, last, strict=True)]
    return np.array(medians, np.float64)


def bands(steps: np.ndarray, values: np.ndarray, per_epoch: int) -> list[Band]:
    """Returns the quantiles `BAND` and the median of every epoch in which something was measured.

    Args:
      steps: [n] int, from 1; step `per_epoch` is the last of the first epoch.
      values: [n]; nan is left out.
      per_epoch: steps of an epoch; 0 = not known, and there are no bands.
    """
    if not per_epoch:
        return []
    epochs = -(-steps // per_epoch)
    found = []
    for epoch in np.unique(epochs).tolist():
        inside = values[epochs == epoch]
        low, median, high = (quantile(inside, share) for share in (BAND[0], 0.5, BAND[1]))
        count = int(np.sum(~np.isnan(inside)))
        last = epoch * per_epoch
        found.append(Band(epoch, last - per_epoch, last, low, median, high, count))
    return found


def spread(columns: Sequence[np.ndarray]) -> Spread:
    """Returns mean and spread at every place.

    Args:
      columns: per place the values of its runs, [runs] float64, at least one.
    """
    return Spread(
        np.array([len(column) for column in columns], np.int64),
        np.array([np.mean(column) for column in columns], np.float64),
        np.array([np.min(column) for column in columns], np.float64),
        np.array([np.max(column) for column in columns], np.float64),
        np.array([_deviation(column) for column in columns], np.float64),
    )


def log_limits(series: Iterable[np.ndarray]) -> tuple[float, float]:
    """Returns floor and ceiling of a logarithmic axis: just outside all positive finite values.

    Args:
      series: arrays [n] that share the axis.

    Returns:
      (0.1, 10) if there are no such values.
    """
    joined = np.concatenate([np.ravel(one) for one in series])
    shown = joined[(joined > 0) & np.isfinite(joined)]
    if not shown.size:
        return 0.1, 10.0
    low, high = float(np.min(shown)), float(np.max(shown))
    apart = max((high / low) ** _APART, 1.5)
    return low / apart, high * apart


def clamp(values: np.ndarray, floor: float, ceiling: float, *, log: bool) -> Clamped:
    """Moves what an axis cannot show to its floor and its ceiling.

    Args:
      values: [n].
      floor, ceiling: see `log_limits`.
      log: the axis is logarithmic, so that zeros (and what is below) cannot be shown.
    """
    undefined, infinite = np.isnan(values), np.isinf(values)
    zeros = (values <= 0) & ~infinite if log else np.zeros(np.shape(values), bool)
    drawn = np.where(zeros | undefined, floor, np.where(infinite & (values > 0), ceiling, values))
    drawn = np.where(np.isneginf(values), floor, drawn)
    return Clamped(drawn, zeros, infinite, undefined)


def _deviation(column: np.ndarray) -> float:
    return float(np.std(column, ddof=1)) if len(column) >= 3 else math.nan
