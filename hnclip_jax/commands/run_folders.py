"""Run folders that commands and tools look at afterwards."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from hnclip_jax import config, pretrained, types
from hnclip_jax.analysis import history
from hnclip_jax.evaluation import comparison
from hnclip_jax.training import folder


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder.

    settings: its config.json.
    lines: of metrics.jsonl; without the one that was being written when the run broke off.
    results: step, or None where the file does not say it, and result file.
    has_weights: whether the weights folder is there.
    """

    path: pathlib.Path
    settings: config.Config
    lines: tuple[dict[str, Any], ...]
    results: tuple[tuple[int | None, comparison.Measured], ...]
    has_weights: bool

    @property
    def last_step(self) -> int:
        """The last step of metrics.jsonl; 0 = none."""
        return max((line["step"] for line in self.lines), default=0)

    @property
    def per_epoch(self) -> int:
        """Steps of an epoch, as the evaluations or the end of the run tell; 0 = not known."""
        train, every = self.settings.train, self.settings.eval.every_epochs
        steps = [step for step, _ in self.results if step]
        # An evaluation at the very end falls on no multiple of epochs that the run never reaches.
        if every and steps and (not train.epochs or every <= train.epochs):
            return min(steps) // every
        return self.last_step // train.epochs if train.epochs and self.has_weights else 0

    @property
    def total(self) -> int:
        """Steps of the whole run; 0 = not known."""
        return self.settings.train.steps or self.settings.train.epochs * self.per_epoch

    def history(self, name: str = "") -> history.History:
        """Returns what figures read of it, under a name; empty = that of the folder."""
        return history.History(name or self.path.name, self.settings, self.lines, self.per_epoch)


@dataclasses.dataclass(frozen=True)
class Named:
    """A run folder, and what figures read of it."""

    run: Run
    history: history.History


def read(path: str) -> Run:
    """Returns what a run folder holds.

    Raises:
      types.UserError: if it is none, or one of its files cannot be read.
    """
    where = folder.RunFolder(path)
    try:
        settings = config.from_json(where.config.read_text("utf-8"))
        text = where.metrics.read_text("utf-8") if where.metrics.exists() else ""
    except (OSError, ValueError) as error:
        raise types.UserError(
            f"{path} is no run that can be read ({error}); give folders that `hnclip train` made"
        ) from error
    lines = tuple(line for line in map(_line, text.splitlines()) if line)
    measured = comparison.read(sorted(where.eval.glob("*.json")))
    results = tuple((one.protocol.get("step"), one) for one in measured)
    weights = (where.weights / pretrained.FILE_NAME).exists()
    return Run(where.path, settings, lines, results, weights)


def named(arguments: Sequence[str], example: str) -> list[Named]:
    """Returns the runs of words like runs/hn or runs/hn=LABEL.

    Raises:
      types.UserError: if there are none, one cannot be read, or one stands twice.
    """
    if not arguments:
        raise types.UserError(f"needs run folders; for example: {example}")
    words = [_split(word) for word in arguments]
    runs = [read(path) for path, _ in words]
    places = [os.path.realpath(one.path) for one in runs]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise types.UserError(f"{words[number][0]} stands twice; give every run once")
    names = [one.path.name for one in runs]
    return [
        Named(
            one,
            dataclasses.replace(
                one.history(path if names.count(one.path.name) > 1 else ""), label=label
            ),
        )
        for (path, label), one in zip(words, runs, strict=True)
    ]


def _split(word: str) -> tuple[str, str]:
    """Returns path and label; the path is the longest that is a folder, "=" in its name or not."""
    places = [place for place, sign in enumerate(word) if sign == "="]
    for place in [len(word), *reversed(places)]:
        if os.path.isdir(os.path.expanduser(word[:place])):
            return word[:place], word[place + 1 :]
    path, _, label = word.partition("=")
    return path, label


def _line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
        return line if isinstance(line, dict) and isinstance(line["step"], int) else None
    except (ValueError, KeyError):
        return None
