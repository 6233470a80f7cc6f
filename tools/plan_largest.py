"""The largest size that fits a limit, found with few tries."""

from collections.abc import Callable

_ENOUGH = 0.97


def largest(
    need: Callable[[int], float | None], start: int, grain: int, limit: float, tries: int = 6
) -> int:
    """Returns the largest multiple of `grain` that was tried and needs at most `limit`; 0 = none.

    Memory grows about linearly with the batch, so the line through the two nearest sizes that are
    known says where to look next. It stops when a size takes 97 % of the limit, or when one that is
    larger by a sixteenth, or by `grain`, is known not to fit.

    Args:
      need: size -> what it needs; None = too much to tell.
      start: the first size to try, a multiple of `grain`.
      grain: sizes are multiples of this.
      limit: of what is needed.
      tries: sizes to try at most, `start` included.
    """
    fitting: dict[int, float] = {}
    too_large: int | None = None
    size = start
    for _ in range(tries):
        needed = need(size)
        if needed is not None and needed <= limit:
            fitting[size] = needed
        else:
            too_large = size
        size = _next(fitting, too_large, grain, limit)
        if not size:
            break
    return max(fitting, default=0)


def _next(fitting: dict[int, float], too_large: int | None, grain: int, limit: float) -> int:
    """Returns the next size to try; 0 = it is not worth another try."""
    best = max(fitting, default=0)
    if best and fitting[best] >= _ENOUGH * limit:
        return 0
    if too_large is not None and too_large - best <= max(grain, best // 16):
        return 0
    guess = 2 * best
    if len(fitting) > 1:
        low, high = sorted(fitting)[-2:]
        slope = (fitting[high] - fitting[low]) / (high - low)
        guess = high + (limit - fitting[high]) / slope if slope > 0 else 4 * best
    if too_large is None:
        guess = min(guess, 4 * best)
    elif len(fitting) < 2 or guess >= too_large:
        guess = (best + too_large) / 2
    return max(int(guess) // grain * grain, best + grain)
