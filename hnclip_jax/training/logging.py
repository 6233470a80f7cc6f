"""What a run writes down and shows: JSON lines, progress, TensorBoard. Process 0 only."""

import contextlib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Mapping

import jax
import tqdm

from hnclip_jax import types
from hnclip_jax.training import folder

_SHOWN = (
    ("train/loss", "loss {:.4f}"),
    ("train/info_nce", "infonce {:.4f}"),
    ("train/boost_share", "boost {:z.0%}"),
    ("train/solved_plain", "solved {:.0%}"),
    ("train/scale", "s {:.1f}"),
    ("gradients/ratio", "gradient x{:.3g}"),
    ("time/pairs_per_s", "{:.0f} pairs/s"),
    ("eval/i2t_r@1", "I2T R@1 {:.1f}"),
    ("eval/t2i_r@1", "T2I R@1 {:.1f}"),
    ("eval/ties", "ties {:.0f}"),
)
"""What the console shows of a line of metrics.jsonl; the rest is for the file."""

_ON_BAR = ("train/loss", "train/boost_share", "eval/i2t_r@1", "eval/t2i_r@1")
"""What stands behind the progress bar, the latest of each."""


def say(text: str) -> None:
    """Prints a line for people, on the error stream: the output stream is for results.

    Nobody may be there to read it any more, a closed terminal say; that stops no run.
    """
    if jax.process_index() == 0:
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)


class JsonLines:
    """One JSON object per line: {"step": ..., "group/name": ...}."""

    def __init__(self, path: pathlib.Path, start_step: int) -> None:
        """Opens `path` to append; lines behind `start_step` (the run broke off) are dropped."""
        if path.exists():
            kept = [line for line in path.read_text().splitlines() if _step(line) <= start_step]
            scratch = path.with_suffix(".tmp")
            scratch.write_text("".join(line + "\n" for line in kept))
            os.replace(scratch, path)
        self._file = path.open("a")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line. Numbers that JSON does not have (nan, inf) are written as text."""
        plain = {
            name: value if math.isfinite(value) else str(value) for name, value in values.items()
        }
        try:
            self._file.write(json.dumps({"step": step, **plain}) + "\n")
            self._file.flush()
        except OSError as error:
            raise types.UserError(f"cannot write {self._file.name}: {error.strerror}") from error

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _step(line: str) -> float:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError):
        return math.inf  # The line that was being written when the run broke off.


class TensorBoard:
    """TensorBoard event files."""

    def __init__(self, folder: pathlib.Path, start_step: int) -> None:
        """Opens an event file in `folder`; points behind `start_step` of earlier files are hidden.

        Raises:
          types.UserError: if tensorboardX is not installed.
        """
        try:
            import tensorboardX
        except ImportError as error:
            raise types.UserError(
                "log.tensorboard needs tensorboardX: pip install 'hnclip_jax[tensorboard]'"
            ) from error
        self._writer = tensorboardX.SummaryWriter(str(folder), purge_step=start_step + 1)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each curve."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flushes the event file."""
        self._writer.close()


class Progress:
    """A progress bar on a terminal; elsewhere a plain line every so many seconds."""

    _EVERY_S = 20.0

    def __init__(self, what: str, unit: str) -> None:
        """Names what is done and what is counted; the bar appears at the first call."""
        self._what, self._unit = what, unit
        self._bar: tqdm.tqdm | None = None
        self._said = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Moves to `done` of `total`."""
        if self._bar is None:
            self._bar = _bar(self._what, self._unit, total)
        self._bar.update(done - self._bar.n)
        if self._bar.disable and (time.monotonic() - self._said > self._EVERY_S or done == total):
            say(f"{self._what}: {done:,} of {total:,} {self._unit}s")
            self._said = time.monotonic()

    def close(self) -> None:
        """Leaves the bar where it is."""
        if self._bar is not None:
            self._bar.close()


def _bar(what: str, unit: str, total: int, done: int = 0) -> tqdm.tqdm:
    hidden = not sys.stderr.isatty() or jax.process_index() != 0
    return tqdm.tqdm(
        desc=what, unit=unit, total=total, initial=done, disable=hidden, dynamic_ncols=True
    )


class Run:
    """All that a training run writes; on other processes than the first it swallows everything."""

    def __init__(
        self, run_folder: folder.RunFolder, start_step: int, total_steps: int, tensorboard: bool
    ) -> None:
        """Opens the files of the run folder, to go on after `start_step` of `total_steps`."""
        self._total = total_steps
        self._latest: dict[str, float] = {}
        self._bar = _bar("train", "step", total_steps, start_step)
        self._writers: list[JsonLines | TensorBoard] = []
        if jax.process_index() == 0:
            self._writers.append(JsonLines(run_folder.metrics, start_step))
            if tensorboard:
                self._writers.append(TensorBoard(run_folder.path, start_step))

    def close(self) -> None:
        """Closes the files and leaves the bar where it is."""
        self._bar.close()
        for writer in self._writers:
            writer.close()

    def advance(self, step: int) -> None:
        """Moves the progress bar to `step`."""
        self._bar.update(step - self._bar.n)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Writes `values`, named ``group/name``, and shows those that matter while one watches."""
        for writer in self._writers:
            writer.scalars(step, values)
        shown = _shown(values)
        if not shown:
            return
        line = f"step {step}/{self._total}  {shown}"
        if self._bar.disable:
            say(line)
            return
        self._latest |= {name: values[name] for name in _ON_BAR if name in values}
        self._bar.set_postfix_str(_shown(self._latest))
        self._bar.write(line, file=sys.stderr)


def _shown(values: Mapping[str, float]) -> str:
    if not any(name.startswith(("train/", "eval/")) for name in values):
        return ""
    return "  ".join(form.format(values[name]) for name, form in _SHOWN if name in values)
