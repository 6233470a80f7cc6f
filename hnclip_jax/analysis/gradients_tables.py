"""The numbers in a picture of gradients, as JSON, as rows and as text."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from hnclip_jax.analysis import curves, gradients


def to_json(measured: Sequence[gradients.Measured]) -> dict[str, Any]:
    """Returns every number in the picture as JSON values, nan and inf among them."""
    shown = {panel.title: gradients.limits(panel, measured) for panel in gradients.PANELS}
    return {
        "band": list(curves.BAND),
        "floors": {title: floor for title, (floor, _) in shown.items()},
        "ceilings": {title: ceiling for title, (_, ceiling) in shown.items()},
        "runs": [_run_json(one) for one in measured],
    }


def table(measured: Sequence[gradients.Measured]) -> list[dict[str, Any]]:
    """Returns a row per run, key and step."""
    return [
        {
            "label": one.label,
            "data": one.history.settings.data.train,
            "fraction": one.history.settings.data.fraction,
            "seed": one.history.settings.train.seed,
            "step": int(step),
            "epoch": float(one.history.epochs(step)),
            "metric": key,
            "value": float(value),
            "running_median": float(median),
        }
        for one in measured
        for key, series in one.series.items()
        for step, value, median in zip(series.steps, series.values, series.median, strict=True)
    ]


def summary(measured: Sequence[gradients.Measured]) -> str:
    """Returns the medians of each run as text, and what the picture cannot show."""
    lines = []
    for one in measured:
        lines.append(
            f"{one.label}: {len(one.series[gradients.KEYS[0]].steps):,} measurements, medians:"
        )
        for panel in gradients.PANELS:
            for key, name in panel.keys.items():
                series = one.series[key]
                told = str(series.counts)
                median = curves.quantile(series.values, 0.5)
                text = f"  {panel.title + ', ' + name:<42}{median:>11.4g}  {told}"
                lines.append(text.rstrip())
    return "\n".join(lines)


def _run_json(one: gradients.Measured) -> dict[str, Any]:
    return {
        "label": one.label,
        "data": one.history.settings.data.train,
        "fraction": one.history.settings.data.fraction,
        "seed": one.history.settings.train.seed,
        "steps_per_epoch": one.history.steps_per_epoch or None,
        "window_steps": one.window,
        "series": {
            key: {
                "counts": dataclasses.asdict(series.counts),
                "steps": series.steps,
                "values": series.values,
                "running_median": series.median,
                "bands": [band._asdict() for band in series.bands],
            }
            for key, series in one.series.items()
        },
    }
