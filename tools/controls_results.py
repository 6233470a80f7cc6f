"""What the controls came to: recall, and paired differences with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax import types
from hnclip_jax.commands import run_folders
from hnclip_jax.evaluation import comparison
from tools.controls_variants import BOOSTED, PLAIN, VARIANTS, Job

METRICS = {"t2i": "T2I R@1", "i2t": "I2T R@1", "mean": "mean R@1"}
"""Name -> title; the third is the mean of the two, per run."""
REFERENCES = (PLAIN, BOOSTED)
ENDS = {
    "train/g_mean": ("G mean", "{:.3f}"),
    "train/g_hardest": ("G hardest", "{:.3f}"),
    "train/solved_plain": ("solved", "{:.0%}"),
    "train/scale": ("s", "{:.1f}"),
}
"""What is told of a run's end: key of metrics.jsonl -> title and form."""
_LAST = 5
"""So many of the last log lines are averaged for it: one batch is noisy."""
_LEVEL = 0.95


class Ended(NamedTuple):
    """A complete run: {"t2i", "i2t", "mean": percent}, and the means of `ENDS`."""

    recall: dict[str, float]
    ends: dict[str, float]


class Difference(NamedTuple):
    """A variant less a reference, over the seeds that both have.

    each: seed -> difference.
    low, high: 95 % interval of the mean, by Student's t; nan with a single seed.
    """

    each: dict[int, float]
    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Returns whether the interval does."""
        return self.low > 0 or self.high < 0


Results = Mapping[str, Mapping[int, Ended]]
"""Variant -> seed -> run."""


def read(jobs: Sequence[Job]) -> Results:
    """Returns what complete runs came to, variants in the order of the jobs.

    Raises:
      types.UserError: if their results are not of one test list and protocol.
    """
    found: dict[str, dict[int, Ended]] = {}
    first = None
    for job in jobs:
        run = run_folders.read(str(job.path))
        measured = run.results[-1][1]
        first = first or (job, measured)
        wrong = [one for one in comparison.mismatches(first[1], measured) if one.decisive]
        if wrong:
            raise types.UserError(
                f"{first[0].name} and {job.name} were not measured alike ({wrong[0]}); give them "
                "the same test list in another --out"
            )
        recall = {way: float(measured.metrics[f"{way}_r@1"]) for way in ("t2i", "i2t")}
        recall["mean"] = (recall["t2i"] + recall["i2t"]) / 2
        history = run.history()
        ends = {key: history.series(key)[1][-_LAST:] for key in ENDS}
        means = {
            key: float(values.mean()) if values.size else math.nan for key, values in ends.items()
        }
        found.setdefault(job.variant, {})[job.seed] = Ended(recall, means)
    return found


def difference(results: Results, name: str, reference: str, metric: str) -> Difference | None:
    """Returns how a variant differs from a reference; None if they share no seed."""
    ours, theirs = results.get(name, {}), results.get(reference, {})
    each = {
        seed: ours[seed].recall[metric] - theirs[seed].recall[metric]
        for seed in ours
        if seed in theirs
    }
    if not each:
        return None
    values = np.array(list(each.values()))
    half = math.nan
    if len(values) > 1:
        half = t_quantile(len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    mean = float(values.mean())
    return Difference(each, mean, mean - half, mean + half)


def t_quantile(freedom: int) -> float:
    """Returns t with P(|T| < t) = 0.95 for Student's distribution with whole degrees of freedom."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < _LEVEL else (low, middle)
    return middle


def _within(t: float, freedom: int) -> float:
    """Returns P(|T| < t).

    References:
      Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= power / (power + 1) * math.cos(angle) ** 2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def others(results: Results, reference: str) -> list[str]:
    """Returns the variants that are held against a reference; what they start from is none."""
    return [name for name in results if name in VARIANTS and name != reference]


def references(results: Results) -> list[str]:
    """Returns those of `REFERENCES` that there is something to hold against."""
    return [name for name in REFERENCES if name in results and others(results, name)]


def label(name: str) -> str:
    """Returns what a variant, or the runs that all start from, is called."""
    return VARIANTS[name].label if name in VARIANTS else "start of all"
