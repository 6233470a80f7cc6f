"""A picture of how alike captions are, for lists and weights beside each other."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hnclip_jax import types
from hnclip_jax.analysis import geometry, geometry_series, page

if TYPE_CHECKING:
    from matplotlib import axes as axes_lib
    from matplotlib import figure

_COARSER = (1, 2, 4, 10, 20)
"""How many bins may be drawn as one; all of them divide geometry.BINS."""
_SEEN = 2000
"""A bin is too low to be seen if the highest one is so many times as high."""


def check(series: int) -> None:
    """Raises types.UserError if so many series do not fit into one picture."""
    if series > len(page.COLOURS):
        raise types.UserError(
            f"{series} lists by weights are too many for one picture, which has "
            f"{len(page.COLOURS)} colours; give fewer"
        )


def draw(series: Sequence[geometry_series.Series]) -> "figure.Figure":
    """Returns the picture: two histograms, shares by hardness, and the matrix of each batch.

    Args:
      series: at least one, and at most as many as there are colours.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    columns = 2 if len(series) == 1 else 3
    rows = math.ceil((3 + len(series)) / columns)
    drawn, grid = page.page(3.5 * columns, 3.2 * rows, rows, columns)
    pairs, hardest, shares, *rest = grid.flat
    _histograms((pairs, hardest), [one.geometry for one in series])
    _shares(shares, [one.geometry for one in series])
    _matrices(drawn, rest[: len(series)], series)
    for empty in rest[len(series) :]:
        empty.remove()
    names = [one.label for one in series]
    drawn.legend(pairs.patches, names, loc="outside upper left", ncols=columns, frameon=False)
    return drawn


def _histograms(both: Sequence["axes_lib.Axes"], measured: Sequence[geometry.Geometry]) -> None:
    """Draws the cosines of all pairs, and those of the hardest companions."""
    titles = ("all pairs of negatives", "hardest companion of each caption")
    counts = [[one.counts for one in measured], [one.hardest_counts for one in measured]]
    means = [[one.mean for one in measured], [one.hardest_mean for one in measured]]
    for axes, title, of_title, dotted in zip(both, titles, counts, means, strict=True):
        for colour, one, mean in zip(page.COLOURS, of_title, dotted, strict=False):
            edges, density = _coarsened(one)
            # A line of its own: filled steps have none by themselves.
            axes.stairs(
                density, edges, fill=True, facecolor=(colour, 0.2), edgecolor=colour, linewidth=1
            )
            axes.axvline(mean, color=colour, linestyle=":", linewidth=2)
        axes.set(xlabel="cosine (dotted: mean)", title=title, ylim=(0, None))
        axes.set_xlim(_limits(of_title))
        axes.set_ylabel("% per 0.01")


def _limits(counts: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the range in which some histogram is high enough to be seen, and a little more."""
    seen = [one * _SEEN >= one.max() for one in counts]
    filled = np.flatnonzero(np.any(seen, axis=0))
    low, high = geometry.EDGES[filled[0]], geometry.EDGES[filled[-1] + 1]
    space = max(0.03 * (high - low), 0.01)
    return low - space, high + space


def _coarsened(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the edges of bins wide enough for so many cosines, and per cent per 0.01 in each.

    At most 2 n^(1/3) bins, or 10, are filled; that is Rice's rule.
    """
    filled = np.flatnonzero(counts)
    most = max(2 * counts.sum() ** (1 / 3), 10)
    span = filled[-1] - filled[0] + 1
    step = next((step for step in _COARSER if span / step <= most), _COARSER[-1])
    share = counts.reshape(-1, step).sum(axis=1) / counts.sum()
    edges = geometry.EDGES[::step]
    return edges, 100 * share * 0.01 / (edges[1] - edges[0])


def _shares(axes: "axes_lib.Axes", measured: Sequence[geometry.Geometry]) -> None:
    """Draws the shares by hardness: full bars for hardest companions, pale ones for pairs."""
    places = np.arange(len(geometry.BUCKETS))
    width = 0.8 / (2 * len(measured))
    for at, one in enumerate(measured):
        for part, counts in enumerate((one.counts, one.hardest_counts)):
            axes.bar(
                places + width * (2 * at + part + 0.5) - 0.4,
                100 * geometry.hardness(counts),
                width,
                color=page.COLOURS[at],
                alpha=(0.35, 1)[part],
            )
    axes.set_xticks(places, geometry.BUCKETS, rotation=45, ha="right", rotation_mode="anchor")
    axes.set(yscale="log", title="by hardness (pale: all pairs)", ylabel="% (log; 0 is no bar)")
    axes.grid(visible=False, axis="x")


def _matrices(
    drawn: "figure.Figure",
    all_axes: Sequence["axes_lib.Axes"],
    series: Sequence[geometry_series.Series],
) -> None:
    """Draws the matrix of each batch, with one scale of colours for all of them."""
    every = np.concatenate([one.batch.cosines[one.batch.negatives] for one in series])
    low, high = (every.min(), every.max()) if len(every) else (0, 1)
    for at, (axes, one) in enumerate(zip(all_axes, series, strict=True)):
        shown = np.ma.masked_where(~one.batch.negatives, one.batch.cosines)
        image = axes.imshow(shown, vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
        axes.grid(visible=False)
        axes.set_facecolor("0.85")
        axes.set_xlabel("caption of the batch")
        colour = page.COLOURS[at] if len(series) > 1 else "black"
        axes.set_title(_title(one, len(series) > 1), fontsize="medium", color=colour)
        if one.batch.largest:
            for column, row in (one.batch.largest, one.batch.largest[::-1]):
                across, down = np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]]) / 2
                axes.plot(column + across, row + down, color=page.COLOURS[1], linewidth=2)
    drawn.colorbar(
        image,
        ax=list(all_axes),
        location="bottom",
        aspect=40,
        label="cosine (grey: no negatives)",
    )


def _title(one: geometry_series.Series, several: bool) -> str:
    size, value = f"G of a batch of {len(one.batch.rows)}", one.batch.value
    told = size if value is None else f"{size}: largest {value:.3f}"
    return f"{one.label}\n{told}" if several else told
