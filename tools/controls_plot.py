"""The picture of the controls: how each variant differs from the two references."""

from typing import TYPE_CHECKING, Any

from hnclip_jax.analysis import page
from tools import controls_results

if TYPE_CHECKING:
    from matplotlib import figure

_ROW_HEIGHT = 0.25


def draw(results: controls_results.Results) -> "figure.Figure":
    """Returns the picture: a row of panels per reference, a panel per metric, a line per variant.

    There has to be a reference.

    A seed is a stroke; the bar is the 95 % interval of their mean, a point that is filled where the
    interval excludes 0.
    """
    references = controls_results.references(results)
    height = 0.9 + _ROW_HEIGHT * len(controls_results.others(results, references[0]))
    drawn, axes = page.page(
        10,
        0.4 + height * len(references),
        len(references),
        len(controls_results.METRICS),
        squeeze=False,
        sharey="row",
        sharex="row",
    )
    drawn.suptitle(
        "Differences paired by seed: strokes are seeds, points their means with 95 % intervals, "
        "filled where these exclude 0",
        fontsize="medium",
    )
    for panels, reference in zip(axes, references, strict=True):
        others = controls_results.others(results, reference)
        for axis, (metric, title) in zip(panels, controls_results.METRICS.items(), strict=True):
            _panel(axis, results, others, reference, metric)
            axis.set_xlabel(f"{title} less {controls_results.label(reference)}")
        panels[0].set_yticks(range(len(others)), [controls_results.label(name) for name in others])
        panels[0].set_ylim(len(others) - 0.5, -0.5)
    return drawn


def _panel(
    axis: Any, results: controls_results.Results, names: list[str], reference: str, metric: str
) -> None:
    axis.axvline(0, color=page.GREY, linewidth=1)
    for place, name in enumerate(names):
        found = controls_results.difference(results, name, reference, metric)
        if found is None:
            continue
        each = list(found.each.values())
        axis.plot(each, [place] * len(each), "|", color=page.COLOURS[1], zorder=3)
        # nan where there is one seed: then there is no bar to draw.
        axis.plot([found.low, found.high], [place, place], color=page.COLOURS[0], linewidth=1.5)
        filled = page.COLOURS[0] if found.excludes_zero else "white"
        axis.plot(
            [found.mean], [place], "o", color=page.COLOURS[0], markerfacecolor=filled, markersize=6
        )
