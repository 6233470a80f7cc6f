"""The section of geometry: how alike captions are before and after training, and the boost."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hnclip_jax.analysis import boost, geometry
from hnclip_jax.analysis.report import charts, markup, tables

_BINS = 200
"""Bins that are drawn; they divide geometry.BINS."""


class Measured(NamedTuple):
    """name: of the weights; geometry: of the list's captions by them; boost: what it would be."""

    name: str
    geometry: geometry.Geometry
    boost: boost.Boost


def render(found: Sequence[Measured], notes: Sequence[str]) -> markup.Html:
    """Returns the section's body: a table, and both distributions.

    Args:
      found: before and after; at least one.
      notes: sentences on what is missing, or how it was done.
    """
    return markup.join(
        [
            *(markup.tag("p", note) for note in notes),
            markup.tag("p", _SAID.format(gamma=found[0].boost.gamma)),
            tables.table(
                "Cosines of captions of different pairs", _COLUMNS, list(map(_row, found))
            ),
            markup.tag(
                "div",
                _distribution("All pairs, density", found, "counts"),
                _distribution("Hardest companion of each, density", found, "hardest_counts"),
                class_="charts",
            ),
        ]
    )


_SAID = (
    "Hardest: of each caption, the nearest one of another pair. Boost: what s times gamma "
    "({gamma:g}) times the cosine adds to the logits of negatives, on average (constant) and from "
    "one to another (adaptive, a standard deviation). Solved: pairs whose InfoNCE is below 1e-3, "
    "in batches of the run's size."
)

_COLUMNS = [
    tables.Column("Weights"),
    tables.Column("Mean", True),
    tables.Column("Standard deviation", True),
    tables.Column("Hardest, mean", True),
    tables.Column(f"Hardest {geometry.HARDNESS[-2]:g} or more, percent", True),
    tables.Column("s", True),
    tables.Column("Boost, constant (logits)", True),
    tables.Column("Boost, adaptive (logits)", True),
    tables.Column("Solved, percent", True),
]


def _row(one: Measured) -> tables.Row:
    seen, held = one.geometry, one.boost
    near = float(geometry.hardness(seen.hardest_counts)[-2:].sum())
    solved = held.solved.plain if held.solved else math.nan
    return tables.Row(
        (
            one.name,
            tables.number(seen.mean, 4),
            tables.number(seen.std, 4),
            tables.number(seen.hardest_mean, 4),
            tables.number(100 * near, 1),
            tables.number(held.scale, 1),
            tables.number(held.constant),
            tables.number(held.adaptive),
            tables.number(100 * solved, 1),
        )
    )


def _distribution(title: str, found: Sequence[Measured], field: str) -> markup.Html:
    """Returns a chart of histograms, as densities over the middles of their bins."""
    lines = []
    for place, one in enumerate(found):
        middles, density = density_of(getattr(one.geometry, field))
        lines.append(charts.Line(one.name, middles, density, place))
    return charts.chart(title, "cosine", lines, last=False)


def density_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the middles of `_BINS` bins and the density there, without empty ends.

    Args:
      counts: [geometry.BINS] int, a histogram of cosines.

    Returns:
      ([n] float64, [n] float64); the densities times the width of a bin sum up to 1.
    """
    joined = counts.reshape(_BINS, -1).sum(axis=1)
    edges = geometry.EDGES[:: geometry.BINS // _BINS]
    middles, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
    there = np.flatnonzero(joined)
    # One empty bin on each side, so that a line comes down to zero.
    kept = slice(max(there[0] - 1, 0), there[-1] + 2)
    return middles[kept], joined[kept] / (joined.sum() * width)
