"""From numbers to places on a chart: round ticks on linear and logarithmic axes, and their text."""

import dataclasses
import math

import numpy as np

_ALIKE = 1e-6
"""Values that differ by less, relatively, are rounding of one number."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`, drawn from place `start` to place `end`.

    log: whether equal distances are equal ratios; `low` is above 0 then.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Returns the places [n] float64 of values [n]."""
        return self.start + (self.end - self.start) * self._share(np.asarray(values, np.float64))

    def _share(self, values: np.ndarray) -> np.ndarray:
        if self.log:
            return np.log(values / self.low) / math.log(self.high / self.low)
        return (values - self.low) / (self.high - self.low)


def fit(values: np.ndarray, start: float, end: float, log: bool = False) -> Scale:
    """Returns a scale that holds all values, with ends that are round numbers.

    Args:
      values: [n] finite, n may be 0; above 0 on a logarithmic axis.
      start, end: places of its ends.
      log: whether it is logarithmic.
    """
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if log and len(values):
        exponents = math.floor(math.log10(low)), math.ceil(math.log10(high))
        if exponents[0] == exponents[1]:
            exponents = exponents[0] - 1, exponents[1] + 1
        return Scale(10.0 ** exponents[0], 10.0 ** exponents[1], start, end, True)
    if high - low <= _ALIKE * max(abs(low), abs(high)):
        low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
    step = _step(high - low)
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step, start, end)


def ticks(scale: Scale) -> np.ndarray:
    """Returns [n] round values on a scale, about five."""
    if scale.log:
        low, high = round(math.log10(scale.low)), round(math.log10(scale.high))
        return 10.0 ** np.arange(low, high + 1, -(-(high - low) // 5))
    step = _step(scale.high - scale.low)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return np.arange(first, last + 1) * step


def text(value: float) -> str:
    """Returns a number in few characters: "0.25", "1,200", "15k", "3e-05"."""
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e7):
        return f"{value:.3g}"
    if size >= 1e4:
        return f"{value / 1000:,.4g}k"
    if size >= 1e3:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _step(width: float) -> float:
    """Returns the round number, 1, 2 or 5 times a power of ten, that divides a width in 4 to 8."""
    power = 10.0 ** math.floor(math.log10(width / 4))
    # The logarithm of a power of ten may be a little above it.
    return next(power * times for times in (5, 2, 1) if power * times <= width / 4 * (1 + 1e-9))
