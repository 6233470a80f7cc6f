"""What a run wrote down, as the figures about runs read it."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hnclip_jax import config

_TOLD_ELSEWHERE = ("train.seed", "log.", "parallel.", "eval.", "data.workers", "data.scenes_dir")
"""Settings that runs of one kind may differ in; see `kinds`."""


@dataclasses.dataclass(frozen=True)
class History:
    """A run: its settings, its lines of metrics.jsonl in the order of the steps.

    name: what to call it; the last part of its folder's path, or what the user says.
    settings: the whole configuration.
    lines: JSON objects, {"step": ..., "group/name": number}; nan and inf are text there.
    steps_per_epoch: 0 = not known.
    """

    name: str
    settings: config.Config
    lines: tuple[dict[str, Any], ...]
    steps_per_epoch: int = 0

    def series(self, key: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the steps [n] int64 and the values [n] float64 of a key, where it was written."""
        found = [(line["step"], float(line[key])) for line in self.lines if key in line]
        steps, values = zip(*found, strict=True) if found else ((), ())
        return np.array(steps, np.int64), np.array(values, np.float64)

    def epochs(self, steps: np.ndarray) -> np.ndarray:
        """Returns steps in epochs, [n] float64; nan if the length of an epoch is not known."""
        return steps / (self.steps_per_epoch or math.nan)


def kinds(histories: Sequence[History]) -> dict[str, list[History]]:
    """Returns label -> the runs that differ in nothing that matters but their seed.

    A label names the settings in which the kinds differ: "loss.gamma=0.5". Where that is none, or
    the runs are of one kind, it is the first run's name.
    """
    groups: list[list[History]] = []
    for one in histories:
        home = next((group for group in groups if not _differs(group[0], one)), None)
        if home is None:
            groups.append([one])
        else:
            home.append(one)
    telling = dict.fromkeys(
        name for group in groups[1:] for name in _differs(groups[0][0], group[0])
    )
    labels = [_label(group[0], telling) or group[0].name for group in groups]
    return dict(zip(labels, groups, strict=True))


def _differs(a: History, b: History) -> list[str]:
    found = config.differences(a.settings, b.settings)
    return [name for name in found if not name.startswith(_TOLD_ELSEWHERE)]


def _label(one: History, telling: dict[str, None]) -> str:
    def value(name: str) -> Any:
        group, field = name.split(".")
        return getattr(getattr(one.settings, group), field)

    return ", ".join(f"{name}={value(name)}" for name in telling)
