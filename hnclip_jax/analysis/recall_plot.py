"""A picture of recall: a line per kind of runs, with the spread of its seeds."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hnclip_jax.analysis import page, recall

if TYPE_CHECKING:
    from matplotlib import axes as axes_lib
    from matplotlib import figure

_AXES = {"epoch": "epoch", "step": "step", "fraction": "share of the training data"}
_STYLES = ("-", "--", "-.")
_DOTTED = (":", (0, (1, 3)), (0, (4, 2, 1, 2)))
_LEGEND_WIDTH = 140
"""Characters that stand beside each other in the legend."""


def draw(
    drawn: recall.Drawn, references: Sequence[recall.Reference] = (), title: str = ""
) -> "figure.Figure":
    """Returns the picture: a panel for the average and one per direction.

    Thick lines are means, bands reach from the lowest to the highest run, thin lines are the runs.

    Args:
      drawn: the curves.
      references: dotted lines.
      title: above the panels.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    entries = _entries(drawn, references)
    columns = _columns([label for label, _ in entries])
    lines = sum(label.count("\n") + 1 for label, _ in entries) / columns
    made, axes = page.page(11, 3.6 + 0.2 * lines, 1, len(recall.PANELS), sharex=True, sharey=True)
    for (panel, name), below in zip(recall.PANELS.items(), axes, strict=True):
        for number, curve in enumerate(drawn.curves):
            _curve(below, drawn, curve, panel, _look(number))
        for number, one in enumerate(references):
            if panel in one.values:
                below.axhline(one.values[panel], **_reference_look(number))
        below.set(title=name, xlabel=_AXES[drawn.axis])
    _ticks(axes[0], drawn)
    axes[0].set_ylabel(f"recall@{drawn.metric.removeprefix('r@')}, percent")
    made.suptitle(title, fontsize=9)
    _legend(made, entries, columns)
    return made


def _curve(
    axes: "axes_lib.Axes",
    drawn: recall.Drawn,
    curve: recall.Curve,
    panel: str,
    look: dict[str, Any],
) -> None:
    spread, colour = curve.panels[panel], look["color"]
    axes.plot(curve.x, spread.mean, linewidth=1.8, markersize=4, **look)
    if len(curve.runs) == 1:
        return
    axes.fill_between(curve.x, spread.low, spread.high, color=colour, alpha=0.18, linewidth=0)
    for run in curve.runs:
        x, values = drawn.x(run), run.values[panel]
        if drawn.axis == "fraction" or len(x) == 1:
            axes.plot(x, values, "_", color=colour, markersize=7, alpha=0.8)
        else:
            axes.plot(x, values, color=colour, linewidth=0.7, alpha=0.5)


def _look(number: int) -> dict[str, Any]:
    """Returns colour, marker and line of a curve; the first 21 differ."""
    place = number % len(page.COLOURS)
    style = _STYLES[number // len(page.COLOURS) % len(_STYLES)]
    return {"color": page.COLOURS[place], "marker": page.MARKERS[place], "linestyle": style}


def _reference_look(number: int) -> dict[str, Any]:
    return {"color": "0.25", "linewidth": 1.3, "linestyle": _DOTTED[number % len(_DOTTED)]}


def _ticks(axes: "axes_lib.Axes", drawn: recall.Drawn) -> None:
    if drawn.axis == "fraction":
        fractions = sorted({x for curve in drawn.curves for x in curve.x.tolist()})
        axes.set_xscale("log", base=2)
        axes.set_xticks(fractions, [f"{100 * one:g} %" for one in fractions])
        axes.set_xlim(fractions[0] / 1.2, fractions[-1] * 1.2)
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)


def _entries(
    drawn: recall.Drawn, references: Sequence[recall.Reference]
) -> list[tuple[str, dict[str, Any]]]:
    """Returns the lines of the legend: label, and what it stands for."""
    looks = [(_named(curve), _look(number)) for number, curve in enumerate(drawn.curves)]
    looks += [(one.label, _reference_look(number)) for number, one in enumerate(references)]
    return [(textwrap.fill(label, _LEGEND_WIDTH), look) for label, look in looks]


def _columns(labels: Sequence[str]) -> int:
    widest = max(len(line) for label in labels for line in label.splitlines())
    return min(max(_LEGEND_WIDTH // (widest + 6), 1), len(labels), 4)


def _legend(
    made: "figure.Figure", entries: Sequence[tuple[str, dict[str, Any]]], columns: int
) -> None:
    from matplotlib import lines

    # Outside, so that it covers no data however many lines there are.
    made.legend(
        handles=[lines.Line2D([], [], label=label, **look) for label, look in entries],
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
    )


def _named(curve: recall.Curve) -> str:
    if len(curve.runs) == 1:
        return curve.label
    counts = np.unique(curve.panels["average"].count)
    if not counts.size:
        return f"{curve.label} (no mean: its {len(curve.runs)} runs share no evaluated step)"
    shown = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{curve.label} (n = {shown}, lowest to highest)" if counts[-1] > 1 else curve.label
