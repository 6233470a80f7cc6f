"""Recall of runs over their epochs, or over the share of the data that they trained on."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax import types
from hnclip_jax.analysis import curves
from hnclip_jax.analysis import history as history_lib
from hnclip_jax.analysis.history import History

METRICS = ("r@1", "r@5", "r@10")
PANELS = {
    "average": "average of both directions",
    "t2i": "text to image",
    "i2t": "image to text",
}
"""Panel -> title."""
_DIRECTIONS = ("t2i", "i2t")

_FRACTION = "data.fraction"


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The evaluations of a run.

    steps: [n] int64.
    values: panel -> [n] float64, in percent.
    """

    history: History
    steps: np.ndarray
    values: dict[str, np.ndarray]

    @property
    def epochs(self) -> np.ndarray:
        """The steps in epochs, [n] float64; nan if the length of an epoch is not known."""
        return self.history.epochs(self.steps)

    @property
    def fraction(self) -> float:
        """Share of the training data that was used."""
        return self.history.settings.data.fraction


@dataclasses.dataclass(frozen=True)
class Curve:
    """The runs of a kind, and their mean.

    x: [n] float64, where the mean stands: epochs, steps, or shares of the data.
    runs: the evaluations that are drawn; over shares of the data, one of each run.
    panels: panel -> spread over the runs, [n].
    """

    label: str
    x: np.ndarray
    runs: tuple[Evaluated, ...]
    panels: dict[str, curves.Spread]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """What a picture shows.

    axis: "epoch", "step" or "fraction".
    metric: one of METRICS.
    """

    axis: str
    metric: str
    curves: tuple[Curve, ...]

    def x(self, run: Evaluated) -> np.ndarray:
        """Returns where a run's evaluations stand, [n] float64."""
        if self.axis == "fraction":
            return np.full(len(run.steps), run.fraction)
        return run.epochs if self.axis == "epoch" else run.steps.astype(np.float64)


class Reference(NamedTuple):
    """A number to compare with: panel -> percent; panels that are not known are left out."""

    label: str
    values: dict[str, float]


def over_epochs(histories: Sequence[History], metric: str) -> Drawn:
    """Returns every evaluation, over epochs, or over steps where an epoch's length is not known.

    The mean of a kind stands only where all of its runs were evaluated.

    Args:
      histories: the runs.
      metric: one of METRICS.

    Raises:
      types.UserError: if a run has no such evaluation, or two kinds one label.
    """
    _check(histories, metric)
    axis = "epoch" if all(one.steps_per_epoch for one in histories) else "step"
    kinds = history_lib.kinds(histories)
    found = []
    for label, group in kinds.items():
        runs = tuple(_evaluated(one, metric) for one in group)
        common = sorted(set.intersection(*({*run.steps.tolist()} for run in runs)))
        places = np.array(common, np.int64)
        x = group[0].epochs(places) if axis == "epoch" else places.astype(np.float64)
        rows = [np.searchsorted(run.steps, places) for run in runs]
        panels = {
            panel: _spread([run.values[panel][row] for run, row in zip(runs, rows, strict=True)])
            for panel in PANELS
        }
        found.append(Curve(label, x, runs, panels))
    return Drawn(axis, metric, tuple(found))


def over_fractions(histories: Sequence[History], metric: str, checkpoint: str) -> Drawn:
    """Returns one evaluation of each run, over the share of the data that it trained on.

    Args:
      histories: the runs; those of a kind may differ in the share.
      metric: one of METRICS.
      checkpoint: "last", or "best" for the evaluation with the highest average of this metric.

    Raises:
      types.UserError: if a run has no such evaluation, or two kinds one label.
    """
    _check(histories, metric)
    found = []
    for label, group in history_lib.kinds(histories, also_any=(_FRACTION,)).items():
        runs = tuple(_chosen(_evaluated(one, metric), checkpoint) for one in group)
        fractions = sorted({run.fraction for run in runs})
        panels = {
            panel: curves.spread(
                [
                    np.concatenate([run.values[panel] for run in runs if run.fraction == fraction])
                    for fraction in fractions
                ]
            )
            for panel in PANELS
        }
        found.append(Curve(label, np.array(fractions), runs, panels))
    return Drawn("fraction", metric, tuple(found))


def reference(label: str, metrics: Mapping[str, float], metric: str) -> Reference:
    """Returns a reference from numbers named as in result files, {"t2i_r@1": percent, ...}.

    Args:
      label: for the legend.
      metrics: the numbers.
      metric: one of METRICS.

    Raises:
      types.UserError: if neither direction is among them.
    """
    values = {
        way: metrics[f"{way}_{metric}"] for way in _DIRECTIONS if f"{way}_{metric}" in metrics
    }
    if not values:
        raise types.UserError(
            f"{label} has no {metric} of either direction; it has {types.at_most_ten([*metrics])}"
        )
    if len(values) == len(_DIRECTIONS):
        values = {"average": sum(values.values()) / len(values), **values}
    return Reference(label, values)


def _check(histories: Sequence[History], metric: str) -> None:
    for one in histories:
        if _evaluated(one, metric).steps.size:
            continue
        names = dict.fromkeys(name for line in one.lines for name in line if "_r@" in name)
        ks = dict.fromkeys(name.split("_")[-1] for name in names if name.startswith("eval/"))
        raise types.UserError(
            f"{one.name} was evaluated at {', '.join(ks)}, not at {metric}; give another --metric, "
            "or train with other --config.eval.ks"
            if ks
            else f"{one.name} holds no evaluation; train with --config.eval.data=LIST "
            "--config.eval.every_epochs=1"
        )


def _evaluated(one: History, metric: str) -> Evaluated:
    (steps, first), (others, second) = (one.series(f"eval/{way}_{metric}") for way in _DIRECTIONS)
    # Both directions are written in one line.
    steps, mine, yours = np.intersect1d(steps, others, return_indices=True)
    ways = dict(zip(_DIRECTIONS, (first[mine], second[yours]), strict=True))
    return Evaluated(one, steps, {"average": (first[mine] + second[yours]) / 2, **ways})


def _chosen(run: Evaluated, checkpoint: str) -> Evaluated:
    average = np.nan_to_num(run.values["average"], nan=-np.inf)
    place = int(np.argmax(average)) if checkpoint == "best" else len(run.steps) - 1
    values = {panel: value[[place]] for panel, value in run.values.items()}
    return Evaluated(run.history, run.steps[[place]], values)


def _spread(rows: Sequence[np.ndarray]) -> curves.Spread:
    return curves.spread(list(np.stack(rows, axis=1)))
