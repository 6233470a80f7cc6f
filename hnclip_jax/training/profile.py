"""A profile of some steps of a run, for TensorBoard's profiler or ui.perfetto.dev."""

import contextlib
import pathlib
import re
from collections.abc import Iterator

import jax

from hnclip_jax import types


def parse(text: str) -> range:
    """Returns the steps that "10:13" names, the last one included; none for "".

    Raises:
      types.UserError: if it is no such range.
    """
    if not text:
        return range(0)
    found = re.fullmatch(r"(\d+):(\d+)", text)
    steps = range(int(found[1]), int(found[2]) + 1) if found else range(0)
    if not steps or not steps[0]:
        raise types.UserError(
            f"log.profile_steps is {text!r}, but must be two steps, say '10:13'; steps count from 1"
        )
    return steps


class Profile:
    """Records the steps it is told to; only process 0 does."""

    def __init__(self, steps: range, folder: pathlib.Path) -> None:
        """Remembers both; nothing is made before the first of the steps."""
        self._steps, self._folder = steps if jax.process_index() == 0 else range(0), folder
        self._running = False

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Names what happens inside as step `number` in the profile, if it is in it."""
        if number not in self._steps:
            yield
            return
        if not self._running:
            jax.profiler.start_trace(self._folder)
            self._running = True
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            yield

    def after(self, number: int, wait_for: types.Array) -> None:
        """Ends the profile if `number` was the last of the steps; waits for its result first."""
        if self._running and number == self._steps[-1]:
            jax.block_until_ready(wait_for)
            self.close()

    def close(self) -> None:
        """Ends a profile that still runs, and writes it."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
