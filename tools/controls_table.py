"""The tables of the controls: rows of numbers, and Markdown."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.controls_results import (
    ENDS,
    METRICS,
    Difference,
    Results,
    difference,
    label,
    others,
    references,
)
from tools.controls_variants import PAIRS


def rows(results: Results) -> list[dict[str, Any]]:
    """Returns the numbers, a row for each variant and metric."""
    made = []
    for name, runs in results.items():
        for metric in METRICS:
            values = np.array([run.recall[metric] for run in runs.values()])
            row = {"variant": name, "metric": metric, "seeds": len(runs), "mean": values.mean()}
            row |= {"lowest": values.min(), "highest": values.max()}
            for reference in references(results):
                against = difference(results, name, reference, metric)
                if against and name in others(results, reference):
                    row |= {
                        f"less_{reference}": against.mean,
                        f"less_{reference}_low": against.low,
                        f"less_{reference}_high": against.high,
                        f"less_{reference}_seeds": len(against.each),
                    }
            made.append(row)
    return made


def markdown(results: Results) -> str:
    """Returns the tables, and what in them is more than chance."""
    parts = [_recall_table(results)]
    parts += [_difference_table(results, reference) for reference in references(results)]
    parts += [_pairs_table(results)]
    parts += [_verdict(results, reference) for reference in references(results)]
    parts.append(
        "Differences are paired by seed, which gives the weights to begin with and the order of "
        "the data (grouped batches have an order of their own). Intervals are 95 %, Student's t "
        "over the seeds; of twenty such intervals one excludes 0 by chance."
    )
    return "\n\n".join(filter(None, parts))


def _recall_table(results: Results) -> str:
    titles = ["seeds", *METRICS.values(), *(title for title, _ in ENDS.values())]
    lines = []
    for name, runs in results.items():
        cells = [f"{len(runs)}"]
        for metric in METRICS:
            values = [run.recall[metric] for run in runs.values()]
            cells.append(f"{np.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        for key, (_, form) in ENDS.items():
            value = np.mean([run.ends[key] for run in runs.values()])
            cells.append(form.format(value) if math.isfinite(value) else "-")
        lines.append((label(name), cells))
    return _table("", titles, lines)


def _difference_table(results: Results, reference: str) -> str:
    lines = []
    for name in others(results, reference):
        found = [difference(results, name, reference, metric) for metric in METRICS]
        if all(found):
            lines.append((label(name), [f"{len(found[0].each)}", *map(_cell, found)]))
    return _table(f"less {label(reference)}", ["seeds", *METRICS.values()], lines)


def _pairs_table(results: Results) -> str:
    """Returns what the boost adds under one condition and another; "" if there is but one."""
    lines = []
    for boosted, plain in PAIRS.items():
        found = [difference(results, boosted, plain, metric) for metric in METRICS]
        if all(found):
            title = f"{label(boosted)} less {label(plain)}"
            lines.append((title, [f"{len(found[0].each)}", *map(_cell, found)]))
    titles = ["seeds", *METRICS.values()]
    return _table("the boost, all else equal", titles, lines) if len(lines) > 1 else ""


def _cell(found: Difference) -> str:
    if math.isnan(found.low):
        return f"{found.mean:+.1f}"
    text = f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    return f"**{text}**" if found.excludes_zero else text


def _table(corner: str, titles: Sequence[str], lines: Sequence[tuple[str, list[str]]]) -> str:
    head = [f"| {' | '.join([corner, *titles])} |", "|" + "---|" * (len(titles) + 1)]
    return "\n".join([*head, *(f"| {' | '.join([first, *cells])} |" for first, cells in lines)])


def _verdict(results: Results, reference: str) -> str:
    found: dict[bool, list[str]] = {True: [], False: []}
    for name in others(results, reference):
        for rises, names in found.items():
            metrics = [
                title.removesuffix(" R@1")
                for metric, title in METRICS.items()
                if (one := difference(results, name, reference, metric))
                and one.excludes_zero
                and (one.mean > 0) == rises
            ]
            if metrics:
                names.append(f"{label(name)} ({', '.join(metrics)})")
    return (
        f"R@1 above that of {label(reference)}: {'; '.join(found[True]) or 'none'}.\n"
        f"R@1 below that of {label(reference)}: {'; '.join(found[False]) or 'none'}."
    )
