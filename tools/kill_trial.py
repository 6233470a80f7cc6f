"""Runs of one number of processes: unbroken, then killed and started again, and compared."""

import collections
import dataclasses
import json
import pathlib
import shutil
import signal
import time

import numpy as np

from hnclip_jax import types
from hnclip_jax.training import folder
from tools import kill_compare, kill_hosts, kill_moments

_COMPLETE_S = 900
"""So long may a run take that nobody kills."""


@dataclasses.dataclass
class Tally:
    """What has been seen.

    places: how many kills hit where.
    lost: steps that each kill cost.
    left_s, left_codes: of processes that were not killed: when and how they ended.
    runs: how many were compared at their end.
    missed: moments that never came, or came after the run's end.
    wrong: a line for everything that was not as it should be.
    """

    places: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    lost: list[int] = dataclasses.field(default_factory=list)
    left_s: list[float] = dataclasses.field(default_factory=list)
    left_codes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    runs: int = 0
    missed: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)

    @property
    def kills(self) -> int:
        """How many there were."""
        return sum(self.places.values())


class Trial:
    """Runs of one number of processes."""

    def __init__(self, words: list[str], count: int, out: pathlib.Path, limit_s: float) -> None:
        """Makes two unbroken runs, to compare with, to see that they are alike, and to time them.

        Args:
          words: the command line behind `hnclip`, without --workdir.
          count: of processes.
          out: folder for all of this.
          limit_s: so long may processes take to end when another one is gone.

        Raises:
          types.UserError: if an unbroken run fails.
        """
        self._words, self._count, self._out, self._limit_s = words, count, out, limit_s
        self.tally = Tally()
        self._unbroken = folder.RunFolder(out / "unbroken")
        # All checkpoints stay, to be compared with those of runs that are killed.
        self._timed(self._unbroken, "--config.train.keep_checkpoints=10000")
        found = kill_compare.lines(self._unbroken)
        self._last = found[-1]["step"]
        self._evaluated = {line["step"] for line in found if "train/loss" not in line}
        train = json.loads(self._unbroken.config.read_text())["train"]
        self._save_every = train["save_every_steps"] or self._last
        again = folder.RunFolder(out / "again")
        self._lengths = self._timed(again)
        self._compare_ends(again)

    def run(self, kills: int, rng: np.random.Generator) -> None:
        """Makes a run, killed so many times at most, and compares what it comes to."""
        self.tally.runs += 1
        run = folder.RunFolder(self._out / f"run_{self.tally.runs}")
        if all(self._killed(run, rng) for _ in range(kills)):
            watch = kill_moments.Watch(run)
            self._ended(run, self._start(run), watch)
        if self._compare_ends(run):
            shutil.rmtree(run.path)

    def _start(self, run: folder.RunFolder, *more: str) -> kill_hosts.Hosts:
        logs = self._out / "logs" / run.path.name
        number = len(list(logs.glob("*"))) + 1
        return kill_hosts.Hosts(
            [*self._words, f"--workdir={run.path}", *more],
            self._count,
            logs / f"start_{number}",
            self._out.parent / "compiled",
        )

    def _timed(self, run: folder.RunFolder, *more: str) -> dict[str, float]:
        """Makes a run that nobody kills; returns how long things take, in seconds."""
        watch, hosts = kill_moments.Watch(run), self._start(run, *more)
        times: dict[int, float] = {}
        while hosts.running() and watch.seconds < _COMPLETE_S:
            if step := watch.logged():
                times.setdefault(step, watch.seconds)
            time.sleep(0.01)
        total, codes = watch.seconds, hosts.wait(self._limit_s)
        if codes != [0] * self._count:
            raise types.UserError(
                f"a run that nobody killed ended with {codes}: {hosts.last_words()}; see "
                f"{self._out / 'logs'}"
            )
        first, last = min(times), max(times)
        step_s = (times[last] - times[first]) / max(last - first, 1)
        saves = json.loads(run.config.read_text())["train"]["save_every_steps"] or last
        return {
            "start-up": times[first],
            "steps": step_s,
            "save": saves * step_s,
            "end": total - times[last],
        }

    def _killed(self, run: folder.RunFolder, rng: np.random.Generator) -> bool:
        """Starts the run and kills it; returns False if it was complete before."""
        moment, victims = kill_moments.draw(rng), kill_moments.victims(rng, self._count)
        watch, hosts = kill_moments.Watch(run), self._start(run)
        saves = -(-self._last // self._save_every) - watch.first // self._save_every
        ahead = (self._last, saves)
        if not kill_moments.wait_for(moment, watch, self._lengths, ahead, hosts.running):
            self.tally.missed += 1
            self._ended(run, hosts, watch)
            return False
        hosts.kill(victims)
        began = time.monotonic()
        codes = hosts.wait(self._limit_s)
        self._look_at_left(run, hosts, codes, victims, time.monotonic() - began)
        if all(codes[index] != -signal.SIGKILL for index in victims):
            self.tally.missed += 1
            return True
        self._look_at_start(run, hosts, watch)
        self._look_at_remains(run, watch, moment, victims)
        return True

    def _look_at_left(self, run, hosts, codes, victims, seconds) -> None:
        """Looks at the processes that were not killed."""
        for index in set(range(self._count)) - set(victims):
            self.tally.left_codes[codes[index]] += 1
            self.tally.left_s.append(seconds)
            if codes[index] is None:
                self._wrong(run, f"process {index} still ran {seconds:.0f} s after the kill")

    def _look_at_start(self, run, hosts, watch) -> None:
        """Checks that a start went on from the checkpoint that was there."""
        said, logged = hosts.goes_on_after(), watch.logged()
        if said is None and logged and watch.first:
            self._wrong(run, f"began anew beside the checkpoint of step {watch.first}")
        if said is not None and said != watch.first:
            self._wrong(run, f"went on after step {said}, not {watch.first}")

    def _look_at_remains(self, run, watch, moment, victims) -> None:
        """Says where the kill hit; checks what it has left."""
        logged, kept = watch.logged(), max(kill_compare.committed(run), default=0)
        due = logged in self._evaluated and not run.eval_file(logged).exists()
        place = kill_moments.place(run, logged, watch.first == self._last, self._last, due)
        reached = max(logged, watch.first)
        self.tally.places[place] += 1
        self.tally.lost.append(reached - kept)
        who = f"process {', '.join(map(str, victims))}" if self._count > 1 else "killed"
        print(
            f"{run.path.name}: {who} at {place} (aim: {moment.aim}), step {reached}; kept: {kept}",
            flush=True,
        )
        # A save begins once the one before is complete.
        if kept < watch.first or reached - kept > 2 * self._save_every:
            self._wrong(run, f"after step {reached} the last checkpoint is of step {kept}")
        if kept:
            found, expected = (kill_compare.arrays(one, kept) for one in (run, self._unbroken))
            if names := kill_compare.differing(found, expected):
                self._wrong(run, f"checkpoint {kept}: {', '.join(names[:3])}, {len(names)} arrays")

    def _ended(self, run, hosts, watch) -> None:
        """Waits for a start that nobody kills."""
        codes = hosts.wait(_COMPLETE_S)
        if codes != [0] * self._count:
            self._wrong(run, f"ended with {codes}: {hosts.last_words()}")
        self._look_at_start(run, hosts, watch)

    def _compare_ends(self, run: folder.RunFolder) -> bool:
        wrong = kill_compare.ends(run, self._unbroken)
        for text in wrong:
            self._wrong(run, text)
        return not wrong

    def _wrong(self, run: folder.RunFolder, text: str) -> None:
        self.tally.wrong.append(f"{run.path}: {text}")
        print(f"WRONG: {self.tally.wrong[-1]}", flush=True)
