"""What stands for the processes of a run in test_kill_run.py, faults included."""

import json
import os
import signal

from hnclip_jax.training import folder
from tools import kill_compare

LAST, EVERY = 14, 3


class Player:
    """Stands for the processes of a run: it does one step whenever one looks at it.

    fault: what it does wrong.
    """

    fault = ""

    def __init__(self, words, count, logs, compiled):
        logs.mkdir(parents=True)
        where = next(word for word in words if word.startswith("--workdir="))
        self.run = folder.RunFolder(where.partition("=")[2])
        self.count, self.codes = count, None
        self.first = self.at = self.begin()
        self.saving, self.warming_up = None, 3
        if self.fault == "fails" and self.at:
            self.codes = [2] * count

    def begin(self):
        found = kill_compare.committed(self.run)
        if not self.run.path.exists():
            self.run.checkpoints.mkdir(parents=True)
            self.run.config.write_text(json.dumps({"train": {"save_every_steps": EVERY}}))
        for path in self.run.checkpoints.glob("*.orbax*"):
            path.rmdir()
        found = [] if self.fault == "forgets" else found
        at = found[-2 if self.fault == "older" and len(found) > 1 else -1] if found else 0
        if self.run.metrics.exists():
            lines = self.run.metrics.read_text().splitlines(keepends=True)
            keep = [n for n in lines if json.loads(n)["step"] <= at or self.fault == "doubled"]
            scratch = self.run.path / "scratch"
            scratch.write_text("".join(keep))
            os.replace(scratch, self.run.metrics)
        return at

    def running(self):
        if self.codes is None:
            self.step()
        return self.codes is None

    def step(self):
        self.warming_up -= 1
        if self.warming_up >= 0:
            return
        if self.saving:
            self.end_save()
        elif self.at == LAST:
            self.run.weights.mkdir()
            (self.run.weights / "model").write_text(str(self.value(LAST)))
            self.codes = [0] * self.count
        else:
            self.at += 1
            self.write({"train/loss": self.value(self.at), "time/step_s": os.times().elapsed})
            if self.at == LAST:
                self.write({"eval/ties": 0})
                self.run.eval.mkdir(exist_ok=True)
                self.run.eval_file(LAST).write_text("{}")
            late = (
                self.fault == "late" and self.run.path.name.startswith("run_") and self.at > EVERY
            )
            if (self.at % EVERY == 0 or self.at == LAST) and not late:
                self.saving = self.run.checkpoints / f"{self.at}.orbax-checkpoint-tmp"
                self.saving.mkdir(exist_ok=True)

    def end_save(self):
        where = self.run.checkpoints / str(self.at)
        if not where.exists():
            self.saving.rename(where)
            (where / "_CHECKPOINT_METADATA").write_text(str(self.value(self.at)))
        self.saving = None

    def value(self, step):
        return step + (1e-7 if self.fault == "bits" and self.first else 0)

    def write(self, values):
        with self.run.metrics.open("a") as file:
            file.write(json.dumps({"step": self.at, **values}) + "\n")

    def kill(self, victims):
        left = None if self.fault == "hangs" else 75
        self.codes = [-signal.SIGKILL if n in victims else left for n in range(self.count)]

    def wait(self, limit_s):
        while self.running():
            pass
        return self.codes

    def goes_on_after(self):
        return self.first or None

    def last_words(self):
        return "words"
