"""A picture of gradients over a run: their norms, ratio and cosine, and the share of solved pairs.

Points are single measurements, lines running medians, bands the middle 80 % of an epoch. What an
axis cannot show is marked at its edge and counted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hnclip_jax.analysis import curves, gradients, page
from hnclip_jax.analysis.history import History

if TYPE_CHECKING:
    from matplotlib import axes as axes_lib
    from matplotlib import figure

_COLOURS = dict(zip(gradients.KEYS, page.COLOURS, strict=False))
_BELOW, _ABOVE = 0.16, 0.04
"""How far a panel reaches below its floor, where the counts stand, and above its ceiling."""


def draw(measured: Sequence[gradients.Measured], layout: gradients.Layout) -> "figure.Figure":
    """Returns the picture: `gradients.PANELS` below each other, for every row and column.

    Args:
      measured: the runs.
      layout: where they stand.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    rows, columns, panels = len(layout.rows), len(layout.columns), len(gradients.PANELS)
    drawn, axes = page.page(
        8 if columns == 1 else 1 + 3.2 * columns,
        1 + 1.5 * panels * rows,
        panels * rows,
        columns,
        squeeze=False,
        sharex="all" if layout.by_epoch else "col",
        sharey="row",
    )
    blocks = axes.reshape(rows, panels, columns)
    limits = [gradients.limits(panel, measured) for panel in gradients.PANELS]
    for place, one in zip(layout.places, measured, strict=True):
        block = blocks[place[0], :, place[1]]
        for panel, limit, below in zip(gradients.PANELS, limits, block, strict=True):
            _panel(below, panel, limit, one, layout.by_epoch)
        if one.history.steps_per_epoch and not layout.by_epoch:
            _second_axis(block[0], one.history.steps_per_epoch)
    _titles(blocks, layout)
    _legend(drawn, measured)
    return drawn


def _panel(
    axes: "axes_lib.Axes",
    panel: gradients.Panel,
    limit: tuple[float, float],
    one: gradients.Measured,
    by_epoch: bool,
) -> None:
    floor, ceiling = limit
    if panel.log:
        axes.set_yscale("log")
        range_ = ceiling / floor
        axes.set_ylim(floor / range_**_BELOW, ceiling * range_**_ABOVE)
    else:
        range_ = ceiling - floor
        axes.set_ylim(floor - _BELOW * range_, ceiling + _ABOVE * range_)
    for key in panel.keys:
        series, colour = one.series[key], _COLOURS[key]
        x = one.history.epochs(series.steps) if by_epoch else series.steps
        clamped = curves.clamp(series.values, floor, ceiling, log=panel.log)
        odd = clamped.zeros | clamped.undefined | clamped.infinite
        axes.plot(x[~odd], clamped.drawn[~odd], ".", color=colour, markersize=2, alpha=0.35)
        axes.plot(x[odd], clamped.drawn[odd], "x", color=colour, markersize=4, alpha=0.6)
        _bands(axes, series.bands, limit, colour, panel.log, one.history if by_epoch else None)
        median = curves.clamp(series.median, floor, ceiling, log=panel.log)
        shown = np.where(median.undefined, np.nan, median.drawn)
        axes.plot(x, shown, color=colour, linewidth=1.4)
    _tell(axes, panel, floor, one)


def _bands(
    axes: "axes_lib.Axes",
    bands: Sequence[curves.Band],
    limit: tuple[float, float],
    colour: str,
    log: bool,
    history: History | None,
) -> None:
    known = [band for band in bands if band.count]
    # The gaps keep epochs apart, so that every band is flat.
    edges = np.array([[band.first, band.last, np.nan] for band in known]).reshape(-1)
    low, high = (
        np.repeat(curves.clamp(np.array(ends, np.float64), *limit, log=log).drawn, 3)
        for ends in ([band.low for band in known], [band.high for band in known])
    )
    x = edges if history is None else history.epochs(edges)
    axes.fill_between(x, low, high, where=~np.isnan(x), color=colour, alpha=0.2, linewidth=0)


def _tell(
    axes: "axes_lib.Axes", panel: gradients.Panel, floor: float, one: gradients.Measured
) -> None:
    """Writes below the floor what the panel cannot show."""
    several = len(panel.keys) > 1
    parts = [
        (f"{name}: " if several else "") + str(one.series[key].counts)
        for key, name in panel.keys.items()
        if str(one.series[key].counts)
    ]
    axes.text(0.01, 0.015, "; ".join(parts), transform=axes.transAxes, fontsize=6.5, color="0.2")
    counts = [one.series[key].counts for key in panel.keys]
    if any(count.zero or count.undefined for count in counts):
        axes.axhline(floor, color=page.GREY, linewidth=0.8, linestyle=":")


def _second_axis(axes: "axes_lib.Axes", per_epoch: int) -> None:
    both = (lambda steps: steps / per_epoch, lambda epochs: epochs * per_epoch)
    above = axes.secondary_xaxis("top", functions=both)
    above.set_xlabel("epoch", fontsize=9)
    above.tick_params(labelsize=8)
    above.xaxis.get_major_locator().set_params(integer=True)


def _titles(blocks: np.ndarray, layout: gradients.Layout) -> None:
    for row, title in enumerate(layout.rows):
        for panel, axes in zip(gradients.PANELS, blocks[row, :, 0], strict=True):
            axes.set_ylabel(panel.title)
        if title:
            blocks[row, 0, 0].set_ylabel(f"{title}\n\n{gradients.PANELS[0].title}")
    for column, title in enumerate(layout.columns):
        blocks[0, 0, column].set_title(title, fontsize=9)
        blocks[-1, -1, column].set_xlabel("epoch" if layout.by_epoch else "step")
        for row in range(len(layout.rows)):
            if (row, column) not in layout.places:
                for axes in blocks[row, :, column]:
                    axes.text(0.5, 0.5, "no run", transform=axes.transAxes, color=page.GREY)


def _legend(drawn: "figure.Figure", measured: Sequence[gradients.Measured]) -> None:
    from matplotlib import lines, patches

    windows = sorted({one.window for one in measured})
    over = " to ".join(f"{window:,}" for window in dict.fromkeys((windows[0], windows[-1])))

    norms = gradients.PANELS[0].keys
    handles = [lines.Line2D([], [], color=_COLOURS[key], label=norms[key]) for key in norms]
    handles.append(lines.Line2D([], [], color="0.3", label=f"median over {over} steps"))
    if any(one.history.steps_per_epoch for one in measured):
        handles.append(patches.Patch(color="0.3", alpha=0.2, label="10-90 % of an epoch"))
    if any(str(series.counts) for one in measured for series in one.series.values()):
        beyond = {"marker": "x", "linestyle": "", "markersize": 4, "color": "0.3"}
        handles.append(lines.Line2D([], [], label="beyond the axis, counted", **beyond))
    # In two lines where the page is narrow.
    columns = 5 if drawn.get_figwidth() > 7 else 3
    drawn.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False
    )
