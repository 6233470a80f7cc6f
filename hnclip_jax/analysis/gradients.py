"""Gradients over a run, as it logged them: medians, bands, and what was zero or no number.

The two losses are plain InfoNCE and the global term as it is trained, on the same batch and with
the same parameters.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax import types
from hnclip_jax.analysis import curves
from hnclip_jax.analysis.history import History


class Panel(NamedTuple):
    """What stands in a panel.

    title: of its axis.
    keys: key -> name.
    log: whether the axis is logarithmic.
    limits: floor and ceiling of the axis; None = just outside the values.
    """

    title: str
    keys: dict[str, str]
    log: bool
    limits: tuple[float, float] | None = None


PANELS = (
    Panel(
        "gradient norm",
        {"gradients/norm_info_nce": "InfoNCE", "gradients/norm_global": "as trained"},
        log=True,
    ),
    Panel("ratio of the norms", {"gradients/ratio": "as trained / InfoNCE"}, log=True),
    Panel("cosine", {"gradients/cosine": "of both gradients"}, log=False, limits=(-1.12, 1.08)),
    Panel("solved pairs", {"gradients/solved": "under InfoNCE"}, log=False, limits=(-0.06, 1.04)),
)
KEYS = tuple(key for panel in PANELS for key in panel.keys)

WINDOW = 0.1
"""Share of a run's steps over which the running median is taken, if nothing else is said."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many values there are, and how many of them their axis cannot show."""

    measured: int
    zero: int
    infinite: int
    undefined: int

    def __str__(self) -> str:
        """Returns what cannot be shown, "" if nothing."""
        counts = dataclasses.asdict(self)
        measured = counts.pop("measured")
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return told and f"{told} of {measured:,}"


@dataclasses.dataclass(frozen=True)
class Series:
    """One key of one run.

    steps: [n] int64.
    values, median: [n] float64, as measured and the running median.
    bands: of the epochs; [] if their length is not known.
    counts: of what the axis cannot show.
    """

    steps: np.ndarray
    values: np.ndarray
    median: np.ndarray
    bands: list[curves.Band]
    counts: Counts


@dataclasses.dataclass(frozen=True)
class Measured:
    """A run and its series by key; window: of the running medians, in steps."""

    history: History
    series: dict[str, Series]
    window: int

    @property
    def label(self) -> str:
        """What to call it."""
        return self.history.label or self.history.name


class Layout(NamedTuple):
    """Where runs stand.

    rows, columns: titles; "" = none.
    places: row and column of each run.
    by_epoch: runs are of different length, so that epochs are what they share.
    """

    rows: list[str]
    columns: list[str]
    places: list[tuple[int, int]]
    by_epoch: bool


def measure(histories: Sequence[History], window: int = 0) -> list[Measured]:
    """Returns what is drawn of each run.

    Args:
      histories: the runs.
      window: of the running median, in steps; 0 = `WINDOW` of each run.

    Raises:
      types.UserError: if a run wrote no gradients.
    """
    for one in histories:
        for key in KEYS:
            if not one.series(key)[0].size:
                raise types.UserError(
                    f"{one.name} holds no {key}; train with --config.log.gradients_every=5"
                )
    return [_measured(one, window) for one in histories]


def side_by_side(histories: Sequence[History]) -> Layout:
    """Returns a column per run."""
    names = [one.label or one.name for one in histories]
    return Layout([""], names, [(0, column) for column in range(len(names))], by_epoch=False)


def grid(histories: Sequence[History]) -> Layout:
    """Returns a row per data set and a column per share of the data.

    Raises:
      types.UserError: if two runs stand in one place.
    """
    lists = list(dict.fromkeys(one.settings.data.train for one in histories))
    fractions = sorted({one.settings.data.fraction for one in histories})
    places: list[tuple[int, int]] = []
    for one in histories:
        data = one.settings.data
        place = lists.index(data.train), fractions.index(data.fraction)
        if place in places:
            raise types.UserError(
                f"{histories[places.index(place)].name} and {one.name} both trained on "
                f"{100 * data.fraction:g} % of {data.train}, which has one place in the grid; "
                "leave one out"
            )
        places.append(place)
    columns = [f"{100 * fraction:g} % of the data" for fraction in fractions]
    known = all(one.steps_per_epoch for one in histories)
    return Layout(_short(lists), columns, places, by_epoch=known)


def limits(panel: Panel, measured: Sequence[Measured]) -> tuple[float, float]:
    """Returns floor and ceiling of a panel's axis, which all runs share."""
    if panel.limits:
        return panel.limits
    return curves.log_limits(one.series[key].values for one in measured for key in panel.keys)


def _measured(one: History, window: int) -> Measured:
    window = window or max(round(WINDOW * one.series(KEYS[0])[0][-1]), 1)
    return Measured(one, {key: _series(one, key, window) for key in KEYS}, window)


def _series(one: History, key: str, window: int) -> Series:
    steps, values = one.series(key)
    log = next(panel.log for panel in PANELS if key in panel.keys)
    clamped = curves.clamp(values, 1.0, 1.0, log=log)
    odd = (clamped.zeros, clamped.infinite, clamped.undefined)
    return Series(
        steps,
        values,
        curves.running_median(steps, values, window),
        curves.bands(steps, values, one.steps_per_epoch),
        Counts(len(values), *(int(which.sum()) for which in odd)),
    )


def _short(paths: Sequence[str]) -> list[str]:
    """Returns the ends of the paths, at least two parts long, that tell them apart."""
    parts = [pathlib.PurePath(path).with_suffix("").parts for path in paths]
    for depth in range(2, max(map(len, parts)) + 1):
        short = ["/".join(one[-depth:]) for one in parts]
        if len({*short}) == len(paths):
            return short
    return list(paths)
