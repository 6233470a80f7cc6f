"""The runs of the controls, one after the other, each in a process of its own."""

import collections
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from hnclip_jax.commands import run_folders
from hnclip_jax.training import folder, logging
from tools import controls_variants

Start = Callable[[controls_variants.Job], str]
"""Trains one run; returns "" if it is complete then, else what went wrong."""

_CONFIG = pathlib.Path(__file__).absolute().with_name("controls_config.py")


def work(jobs: Sequence[controls_variants.Job], start: Start | None = None) -> dict[str, str]:
    """Does all runs that are not complete; returns name -> what went wrong, {} = nothing.

    One that fails keeps none of the others from running, but those that start from its weights.

    Args:
      jobs: in the order in which they are done.
      start: trains one; None = `train`.
    """
    todo = [job for job in jobs if not complete(job)]
    logging.say(f"controls: {len(jobs) - len(todo)} of {len(jobs)} runs are complete")
    failed: dict[pathlib.Path | None, str] = {}
    said: dict[str, str] = {}
    spent: list[float] = []
    for number, job in enumerate(todo, 1):
        left = f"; {_told(spent, len(todo) - number + 1)} left" if spent else ""
        logging.say(f"run {number} of {len(todo)}: {job.name}{left}; log in {log(job)}")
        began = time.monotonic()
        if job.needs in failed:
            problem = f"the run it starts from failed: {job.needs}"
        else:
            problem = (start or train)(job)
        if problem:
            failed[job.path] = said[job.name] = problem
            logging.say(f"  failed: {problem}")
        else:
            spent.append(time.monotonic() - began)
    return said


def complete(job: controls_variants.Job) -> bool:
    """Returns whether a run has all its steps, its weights and its last evaluation."""
    if not folder.RunFolder(job.path).config.exists():
        return False
    run = run_folders.read(str(job.path))
    steps = [step for step, _ in run.results]
    return run.has_weights and run.total > 0 and run.last_step == run.total and run.total in steps


def train(job: controls_variants.Job) -> str:
    """Runs `hnclip train` until it ends, or until this program is told to."""
    run = folder.RunFolder(job.path)
    run.claim(job.settings)
    words = [f"--config={_CONFIG}:{run.config}", f"--workdir={run.path}"]
    command = [sys.executable, "-m", "hnclip_jax.cli", "train", *words]
    with log(job).open("ab") as file:
        # Ctrl-C reaches this process alone, which then tells the other one, once.
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return "" if code == 0 else f"exit code {code}: {_last_line(log(job))}"


def log(job: controls_variants.Job) -> pathlib.Path:
    """Returns the file of what a run says."""
    return job.path.with_name(f"{job.path.name}.log")


def _last_line(path: pathlib.Path) -> str:
    lines = collections.deque(path.read_text("utf-8", "replace").split("\n"), maxlen=20)
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _told(spent: Sequence[float], runs: int) -> str:
    minutes = runs * sum(spent) / len(spent) / 60
    return f"about {minutes:.0f} min" if minutes >= 1 else "under a minute"
