"""Where the time of a run goes: seconds per step, and parts of them, since the last log line."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

PARTS = ("data/wait_s", "time/log_s", "time/save_s")
"""Parts that every run's step time has: waiting for a batch, writing a log line, starting to save.
"""


class Clock:
    """Means per step since the last log line."""

    def __init__(self, step: int, pairs_per_step: int) -> None:
        """Starts to count after `step` steps."""
        self._pairs = pairs_per_step
        self.restart(step)

    @contextlib.contextmanager
    def spent(self, part: str) -> Iterator[None]:
        """Counts what happens inside as `part` of the step time."""
        began = time.perf_counter()
        yield
        self._parts[part] += time.perf_counter() - began

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves what happens inside out of the step time."""
        began = time.perf_counter()
        yield
        self._out += time.perf_counter() - began

    def restart(self, step: int) -> None:
        """Forgets what was before: the first step is mostly compilation."""
        self._step, self._since, self._out = int(step), time.perf_counter(), 0.0
        self._parts: dict[str, float] = defaultdict(float)

    def rates(self, step: int) -> dict[str, float]:
        """Returns the means per step since the last call, in seconds, and pairs per second."""
        steps = step - self._step
        if not steps:
            return {}
        seconds = (time.perf_counter() - self._since - self._out) / steps
        rates = {"time/step_s": seconds, "time/pairs_per_s": self._pairs / seconds}
        rates |= {part: self._parts[part] / steps for part in dict.fromkeys((*PARTS, *self._parts))}
        self.restart(step)
        return rates
