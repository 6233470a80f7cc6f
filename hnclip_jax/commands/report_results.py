"""What `hnclip report` shows of result files: a table's rows for each list, with published ones."""

import pathlib
from collections.abc import Sequence

from hnclip_jax.analysis.report import results
from hnclip_jax.commands import report_chosen, report_notes, run_folders
from hnclip_jax.data import benchmarks
from hnclip_jax.evaluation import comparison, published

_TITLES = {"median_rank": "Median rank", "mean_rank": "Mean rank"}


def by_list(runs: Sequence[run_folders.Run], names: Sequence[str]) -> list[results.ListResults]:
    """Returns the results of all runs, by the list that they were measured on.

    Args:
      runs: with the result files of their eval/ folders.
      names: of the runs.
    """
    return [_list(chosen) for chosen in report_chosen.by_list(runs, names)]


def _list(chosen: Sequence[report_chosen.Chosen]) -> results.ListResults:
    first = chosen[0].measured
    metrics = list(dict.fromkeys(metric for one in chosen for metric in one.measured.metrics))
    # A file of a later version may name a benchmark that this one does not know.
    known = published.rows(first.benchmark) if first.benchmark in benchmarks.REGISTRY else ()
    quoted = [row for row in known if row.metrics.keys() & {*metrics}]
    return results.ListResults(
        title=_title(first),
        summary=_summary(first),
        groups=_groups(metrics),
        rows=(*(_row(chosen, one) for one in chosen), *(_quoted(row, quoted) for row in quoted)),
        notes=tuple(report_notes.notes(chosen, quoted)),
    )


def _place(measured: comparison.Measured) -> str:
    return str(measured.protocol.get("list") or measured.protocol.get("data") or "")


def _title(first: comparison.Measured) -> str:
    end = "/".join(pathlib.PurePath(_place(first)).parts[-2:])
    return first.benchmark or end or "A list that is not recorded"


def _summary(first: comparison.Measured) -> str:
    held = first.protocol
    counts = [
        f"{held[name]:,} {name}"
        for name in ("captions", "pictures")
        if isinstance(held.get(name), int)
    ]
    return ", ".join(filter(None, [*counts, _place(first)]))


def _groups(metrics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns title of a table -> metric -> title of its column."""
    groups: dict[str, dict[str, str]] = {}
    for metric in metrics:
        direction, _, rest = metric.partition("_")
        title = comparison.DIRECTIONS.get(direction, "")
        column = rest if title else metric
        shown = _TITLES.get(column, column.replace("map@", "mAP@").replace("r@", "R@"))
        groups.setdefault(title.capitalize() or "Other metrics", {})[metric] = shown
    return groups


def _row(chosen: Sequence[report_chosen.Chosen], one: report_chosen.Chosen) -> results.Result:
    first = report_chosen.reference(chosen, one)
    figures = {metric: _figure(first, one.measured, metric) for metric in one.measured.metrics}
    return results.Result(one.name, one.what, figures)


def _figure(first: comparison.Measured, one: comparison.Measured, metric: str) -> results.Figure:
    value = one.metrics[metric]
    difference, mark = None, ""
    comparable = not any(found.decisive for found in comparison.mismatches(first, one))
    if one is not first and metric in first.metrics and comparable:
        difference = value - first.metrics[metric]
        mark = comparison.verdict(first, one, metric)
    decimals = 0 if isinstance(value, int) else 2
    interval = comparison.interval(one, metric)
    return results.Figure(value, decimals, interval, difference, mark)


def _quoted(row: published.Row, quoted: Sequence[published.Row]) -> results.Result:
    figures = {
        metric: results.Figure(value, row.decimals, doubtful=metric in row.doubtful)
        for metric, value in row.metrics.items()
    }
    source = report_notes.sources(quoted).index(row.source) + 1
    what = f"{row.backbone}; {row.trained_on or 'zero-shot'} [{source}]"
    return results.Result(row.method, what, figures, published=True)
