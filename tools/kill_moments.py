"""Moments at which a run is killed: drawn at random, waited for, and told apart afterwards."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from hnclip_jax.training import folder
from tools import kill_compare

AIMS = {"start-up": 0.2, "steps": 0.3, "save": 0.4, "end": 0.1}
"""What a kill aims at, and how often."""

PLACES = ("start-up", "steps", "evaluation", "save", "deletion", "end")
"""Where it hits: before the first step of a start; between steps; in an evaluation; while a
checkpoint is written, or an older one deleted; after the last step."""

_POLL_S = 0.001


class Moment(NamedTuple):
    """A moment of a start.

    aim: what it waits for.
    event: from 0 to 1; which of the steps, or of the saves, that lie ahead.
    delay: from 0 to 1; how long after that, as a share of how long such a thing takes.
    """

    aim: str
    event: float
    delay: float


class Watch:
    """A run folder, looked at from the moment on in which a process was started."""

    def __init__(self, run: folder.RunFolder) -> None:
        """Remembers what is there now."""
        self._run = run
        self._began = time.monotonic()
        self._seen = self._saves()
        self._stale = self._inode()
        self.first = max(kill_compare.committed(run), default=0)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def logged(self) -> int:
        """Returns the last step that this start has logged; 0 = none yet."""
        # A start writes the file anew, without the lines behind the checkpoint that it begins with.
        if self._inode() == self._stale:
            return 0
        last = kill_compare.last_logged(self._run)
        return last if last > self.first else 0

    def saves(self) -> int:
        """Returns how many saves this start has begun."""
        self._seen |= self._saves()
        return len({step for step in self._seen if step > self.first})

    def _inode(self) -> int:
        try:
            return self._run.metrics.stat().st_ino
        except FileNotFoundError:
            return 0

    def _saves(self) -> set[int]:
        names = (path.name.partition(".")[0] for path in self._run.checkpoints.glob("*"))
        return {int(name) for name in names if name.isdigit()}


def draw(rng: np.random.Generator) -> Moment:
    """Returns a random moment."""
    aim = str(rng.choice(list(AIMS), p=list(AIMS.values())))
    return Moment(aim, float(rng.random()), float(rng.random()))


def victims(rng: np.random.Generator, count: int) -> list[int]:
    """Returns which of `count` processes are killed: any one of them, or all."""
    chosen = int(rng.integers(count + 1))
    return list(range(count)) if chosen == count else [chosen]


def wait_for(
    moment: Moment,
    watch: Watch,
    lengths: Mapping[str, float],
    ahead: tuple[int, int],
    running: Callable[[], bool],
) -> bool:
    """Returns True at the moment, or False if the run ended before.

    Args:
      moment: which.
      watch: of the run folder.
      lengths: seconds that a thing takes, for every aim.
      ahead: the last step, and how many saves lie ahead of this start.
      running: whether the run is.
    """
    last, saves = ahead
    step = watch.first + 1 + int(moment.event * (last - watch.first))
    events = {
        "start-up": lambda: True,
        "steps": lambda: watch.logged() >= step,
        "save": lambda: watch.saves() > int(moment.event * saves),
        "end": lambda: watch.logged() == last,
    }
    while running():
        if events[moment.aim]():
            time.sleep(moment.delay * lengths[moment.aim])
            return running()
        time.sleep(_POLL_S)
    return False


def place(run: folder.RunFolder, logged: int, complete: bool, last: int, due: bool) -> str:
    """Returns where a kill has hit, by what it left.

    Args:
      run: the folder.
      logged: the last step that the killed start had logged; 0 = none.
      complete: the start had no steps to do.
      last: the last step of the run.
      due: the evaluation of step `logged` was due and is not there.
    """
    if kind := kill_compare.broken_off(run):
        return kind
    if due:
        return "evaluation"
    if logged == last or complete:
        return "end"
    return "steps" if logged else "start-up"
