"""What a run wrote down, as the figures about runs read it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hnclip_jax import config, types

_ANY = (
    "train.seed", "log.", "parallel.", "eval.", "data.workers", "data.scenes_dir",
    "data.image_root", "model.remat", "model.scan_layers", "loss.block_rows",
    "train.save_every_steps", "train.keep_checkpoints", "train.save_timeout_s",
    "train.skip_nonfinite_steps", "train.best_metric",
)  # fmt: skip
"""Settings, or beginnings of them, that runs of one kind may differ in; see `kinds`."""


@dataclasses.dataclass(frozen=True)
class History:
    """A run: its settings, its lines of metrics.jsonl in the order of the steps.

    name: what to call it; the last part of its folder's path, or what the user says.
    settings: the whole configuration.
    lines: JSON objects, {"step": ..., "group/name": number}; nan and inf are text there.
    steps_per_epoch: 0 = not known.
    label: what the user calls runs of its kind; empty = their settings tell.
    """

    name: str
    settings: config.Config
    lines: tuple[dict[str, Any], ...]
    steps_per_epoch: int = 0
    label: str = ""

    def series(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps [n] int64 and the values [n] float64 of a key, where it was written.

        The steps rise. Of a step that was written twice, the later line counts.

        Raises:
          types.UserError: if a value is no number, nor "nan" or "inf".
        """
        found = {line["step"]: self._number(line, key) for line in self.lines if key in line}
        steps = np.array(sorted(found), np.int64)
        return steps, np.array([found[step] for step in steps.tolist()], np.float64)

    def epochs(self, steps: np.ndarray) -> np.ndarray:
        """Returns steps in epochs, [n] float64; nan if the length of an epoch is not known."""
        return steps / (self.steps_per_epoch or math.nan)

    def _number(self, line: dict[str, Any], key: str) -> float:
        try:
            return float(line[key])
        except (TypeError, ValueError):
            raise types.UserError(
                f"{self.name}: {key} of step {line['step']} is {line[key]!r} in metrics.jsonl, but "
                "must be a number; remove that line"
            ) from None


def kinds(histories: Sequence[History], also_any: tuple[str, ...] = ()) -> dict[str, list[History]]:
    """Returns label -> the runs that differ in nothing that matters but their seed.

    A label is the user's, or names the settings in which the kinds differ: "loss.gamma=0.5". Where
    that is none, or the runs are of one kind, it is the first run's name.

    Args:
      histories: the runs; those that the user calls differently are of different kinds.
      also_any: settings, or beginnings of them, in which runs of a kind may differ as well.

    Raises:
      types.UserError: if two kinds have one label.
    """
    free = (*_ANY, *also_any)
    groups: list[list[History]] = []
    for one in histories:
        homes = (g for g in groups if g[0].label == one.label and not _differs(g[0], one, free))
        home = next(homes, None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    telling = dict.fromkeys(
        name for group in groups[1:] for name in _differs(groups[0][0], group[0], free)
    )
    labelled: dict[str, list[History]] = {}
    for group in groups:
        label = group[0].label or _told(group[0], telling) or group[0].name
        if label in labelled:
            raise _one_label(label, labelled[label][0], group[0], free)
        labelled[label] = group
    return labelled


def _differs(a: History, b: History, free: tuple[str, ...]) -> list[str]:
    found = config.differences(a.settings, b.settings)
    return [name for name in found if not name.startswith(free)]


def _one_label(label: str, a: History, b: History, free: tuple[str, ...]) -> types.UserError:
    found = config.differences(a.settings, b.settings)
    shown = [f"{name} ({found[name][0]!r}, {found[name][1]!r})" for name in _differs(a, b, free)]
    return types.UserError(
        f"{a.name} and {b.name} are both called {label!r}, but differ in "
        f"{types.at_most_ten(shown) or 'their labels'}; give each kind its own label: RUN=LABEL"
    )


def _told(one: History, telling: dict[str, None]) -> str:
    def value(name: str) -> Any:
        group, field = name.split(".")
        return getattr(getattr(one.settings, group), field)

    return ", ".join(f"{name}={value(name)}" for name in telling)
