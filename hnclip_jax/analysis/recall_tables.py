"""The numbers in a picture of recall, as JSON, as rows and as text."""

from collections.abc import Sequence
from typing import Any

from hnclip_jax.analysis import curves, recall


def to_json(drawn: recall.Drawn, references: Sequence[recall.Reference]) -> dict[str, Any]:
    """Returns every number in the picture as JSON values, nan among them."""
    return {
        "axis": drawn.axis,
        "metric": drawn.metric,
        "unit": "percent",
        "curves": [_curve_json(drawn, curve) for curve in drawn.curves],
        "references": [{"label": one.label, **one.values} for one in references],
    }


def table(drawn: recall.Drawn) -> list[dict[str, Any]]:
    """Returns a row per run, evaluation and panel."""
    return [
        {
            "label": curve.label,
            "run": run.history.name,
            "seed": run.history.settings.train.seed,
            "fraction": run.fraction,
            "step": int(run.steps[place]),
            "epoch": float(run.epochs[place]),
            "metric": f"{panel}_{drawn.metric}",
            "value": float(run.values[panel][place]),
        }
        for curve in drawn.curves
        for run in curve.runs
        for place in range(len(run.steps))
        for panel in recall.PANELS
    ]


def summary(drawn: recall.Drawn, references: Sequence[recall.Reference]) -> str:
    """Returns the last numbers of each curve, or all over shares of the data, as text."""
    lines = [f"{drawn.metric.upper()} in percent, mean over the runs (lowest to highest)"]
    for curve in drawn.curves:
        places = range(len(curve.x)) if drawn.axis == "fraction" else range(len(curve.x))[-1:]
        for place in places:
            shown = [f"{panel} {_number(curve.panels[panel], place)}" for panel in recall.PANELS]
            count = curve.panels["average"].count[place]
            where = (
                f"{100 * curve.x[place]:g} % of the data"
                if drawn.axis == "fraction"
                else f"{drawn.axis} {curve.x[place]:g}"
            )
            lines.append(f"{curve.label}, {where}, n = {count}: {', '.join(shown)}")
        if not len(curve.x):
            lines.append(f"{curve.label}: its {len(curve.runs)} runs share no evaluated step")
    for one in references:
        shown = [f"{panel} {value:.2f}" for panel, value in one.values.items()]
        lines.append(f"{one.label}: {', '.join(shown)}")
    return "\n".join(lines)


def _number(spread: curves.Spread, place: int) -> str:
    text = f"{spread.mean[place]:.2f}"
    if spread.count[place] > 1:
        text += f" ({spread.low[place]:.2f} to {spread.high[place]:.2f})"
    return text


def _curve_json(drawn: recall.Drawn, curve: recall.Curve) -> dict[str, Any]:
    return {
        "label": curve.label,
        "x": curve.x,
        "n": curve.panels["average"].count,
        **{
            panel: {name: value for name, value in spread._asdict().items() if name != "count"}
            for panel, spread in curve.panels.items()
        },
        "runs": [
            {
                "run": run.history.name,
                "seed": run.history.settings.train.seed,
                "fraction": run.fraction,
                "steps": run.steps,
                "x": drawn.x(run),
                **run.values,
            }
            for run in curve.runs
        ],
    }
