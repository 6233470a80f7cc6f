"""Run folders that commands and tools look at afterwards."""

import dataclasses
import json
import pathlib
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
        if every and steps:
            return min(steps) // every
        return self.last_step // train.epochs if train.epochs and self.has_weights else 0

    @property
    def total(self) -> int:
        """Steps of the whole run; 0 = not known."""
        return self.settings.train.steps or self.settings.train.epochs * self.per_epoch

    def history(self, name: str = "") -> history.History:
        """Returns what figures read of it, under a name; empty = that of the folder."""
        return history.History(name or self.path.name, self.settings, self.lines, self.per_epoch)


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


def _line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
        return line if isinstance(line, dict) and isinstance(line["step"], int) else None
    except (ValueError, KeyError):
        return None
