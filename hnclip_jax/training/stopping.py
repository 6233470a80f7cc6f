"""Being asked to stop: Ctrl-C, SIGTERM, preemption; processes leave after the same step."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import jax
from jax.experimental import multihost_utils

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib


class Interrupted(types.UserError):
    """The run was stopped by hand (Ctrl-C); what it had is saved."""

    exit_code = types.STOPPED


class Preempted(types.TryAgain):
    """The machine is needed back (SIGTERM); what the run had is saved."""


class Asked:
    """Whether the run was asked to stop."""

    def __init__(self) -> None:
        """Nobody has, yet."""
        self._numbers: set[int] = set()

    def note(self, number: int) -> None:
        """Takes down signal `number`."""
        self._numbers.add(number)

    def error(self, step: int, agrees: bool) -> type[types.UserError] | None:
        """Returns with what to leave after `step`; None = go on. All processes get one answer.

        SIGTERM to any process reaches the others by JAX's preemption service, which also finds the
        step that all of them can still stop after. Ctrl-C waits for a step that `agrees`.

        Args:
          step: steps done; every process must ask after every step.
          agrees: the processes wait for each other after this step anyway.
        """
        several = jax.process_count() > 1
        if several and multihost_utils.reached_preemption_sync_point(step):
            return Preempted
        if signal.SIGTERM in self._numbers:
            return Preempted
        stopped = signal.SIGINT in self._numbers
        if several:
            stopped = agrees and mesh_lib.any_process(stopped)
        return Interrupted if stopped else None


@contextlib.contextmanager
def asked() -> Iterator[Asked]:
    """Yields what Ctrl-C and SIGTERM are noted in; a second one of a kind stops at once.

    With several processes SIGTERM is left to JAX, which listens from the start of the processes on.
    """
    notes = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield notes
        return

    def ask(number: int, frame: Any) -> None:
        del frame
        notes.note(number)
        signal.signal(number, before[number])

    numbers = [signal.SIGINT] if jax.process_count() > 1 else [signal.SIGINT, signal.SIGTERM]
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield notes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
