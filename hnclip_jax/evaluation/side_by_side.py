"""The tables of `hnclip compare`: results, published rows and what does not match, as text."""

import dataclasses
from collections.abc import Sequence

from hnclip_jax.data import benchmarks
from hnclip_jax.evaluation import comparison, published

_TITLES = {"median_rank": "median", "mean_rank": "mean"}
"""Column titles of metrics whose name is longer than a number."""


@dataclasses.dataclass(frozen=True)
class Table:
    """title: the direction; rows: label and cells, as wide as the header; None = a rule."""

    title: str
    header: list[str]
    rows: list[list[str] | None]


def report(
    measured: Sequence[comparison.Measured], *, with_published: bool = False, markdown: bool = False
) -> str:
    """Returns the results side by side.

    Args:
      measured: result files; every later one is compared with the first.
      with_published: add the published rows of the benchmarks that the files name.
      markdown: pipes and headings, else columns for a terminal.
    """
    names = list(dict.fromkeys(one.benchmark for one in measured if one.benchmark))
    quoted = {name: _rows(name) for name in names} if with_published else {}
    sources = _numbered(quoted)
    render = _markdown if markdown else _plain
    blocks = [_list(_lists(measured), markdown)]
    blocks += [render(table) for table in _tables(measured, quoted, sources)]
    for heading, lines in (
        ("Protocols", _protocols(measured)),
        ("Marks", _legend(measured, quoted)),
        ("Published", _published(quoted, sources, with_published)),
    ):
        if lines:
            blocks.append(f"{'## ' if markdown else ''}{heading}\n" + _list(lines, markdown))
    return "\n\n".join(blocks)


def _lists(measured: Sequence[comparison.Measured]) -> list[str]:
    """Returns a line per result: what it was measured on."""
    lines = []
    for one in measured:
        held = one.protocol
        what = one.benchmark or held.get("list") or held.get("data") or "a list not recorded"
        counts = [
            f"{held[name]:,} {name}"
            for name in ("captions", "pictures")
            if isinstance(held.get(name), int)
        ]
        lines.append(f"{one.label}: {', '.join([str(what), *counts])}")
    return lines


def _tables(measured, quoted, sources) -> list[Table]:
    metrics = list(dict.fromkeys(name for one in measured for name in one.metrics))
    groups = {title: f"{key}_" for key, title in comparison.DIRECTIONS.items()}
    tables = []
    for title, prefix in {**groups, "other": ""}.items():
        names = [name for name in metrics if prefix and name.startswith(prefix)]
        if not prefix:
            names = [name for name in metrics if not name.startswith(tuple(groups.values()))]
        if names:
            rows = [[one.label, *_cells(measured[0], one, names)] for one in measured]
            rows += _quoted_rows(quoted, sources, names)
            header = [_title(name.removeprefix(prefix)) for name in names]
            tables.append(Table(title, [title, *header], rows))
    return tables


def _cells(first: comparison.Measured, one: comparison.Measured, names: list[str]) -> list[str]:
    cells = []
    for name in names:
        value = one.metrics.get(name)
        mark = "" if one is first else comparison.verdict(first, one, name)
        shown = "-" if value is None else str(value) if isinstance(value, int) else f"{value:.2f}"
        cells.append(shown + (mark or " "))
    return cells


def _quoted_rows(quoted, sources, names: list[str]) -> list[list[str] | None]:
    rows = []
    for benchmark, found in quoted.items():
        shown = [row for row in found if {*row.metrics} & {*names}]
        if shown:
            rows += [None, [f"published on {benchmark}:", *([""] * len(names))]]
        for row in shown:
            trained = row.trained_on or "zero-shot"
            label = f"{row.method} ({row.backbone}; {trained}) [{sources[row.source]}]"
            cells = []
            for name in names:
                value = row.metrics.get(name)
                mark = "?" if name in row.doubtful else " "
                # Blanks keep the points below each other.
                shown = "" if value is None else f"{value:.{row.decimals}f}{mark}"
                cells.append(shown + " " * (bool(shown) * (2 - row.decimals)))
            rows.append([label, *cells])
    return rows


def _rows(benchmark: str) -> tuple[published.Row, ...]:
    """Returns the published rows; () for a benchmark that only a later version knows."""
    return published.rows(benchmark) if benchmark in benchmarks.REGISTRY else ()


def _numbered(quoted) -> dict[str, int]:
    found = dict.fromkeys(row.source for rows in quoted.values() for row in rows)
    return {source: number for number, source in enumerate(found, 1)}


def _protocols(measured: Sequence[comparison.Measured]) -> list[str]:
    first, lines = measured[0], []
    for one in measured[1:]:
        found = comparison.mismatches(first, one)
        decisive = [str(mismatch) for mismatch in found if mismatch.decisive]
        other = [str(mismatch) for mismatch in found if not mismatch.decisive]
        if decisive:
            lines.append(
                f"{one.label} cannot be compared with {first.label}: {'; '.join(decisive)}"
            )
        if other:
            lines.append(f"{one.label} differs from {first.label} in {'; '.join(other)}")
    return lines


def _legend(measured: Sequence[comparison.Measured], quoted) -> list[str]:
    lines = []
    if len(measured) > 1:
        lines.append(
            f"against {measured[0].label}: + better, - worse, ~ within the 95 % interval of the "
            "difference, so it may be chance"
        )
        told = [one.label for one in measured if one.intervals]
        rest = [one.label for one in measured if not one.intervals]
        by_count = f"binomial, from the number of queries, for {', '.join(rest)}" if rest else ""
        by_file = f"the file's own for {', '.join(told)}" if told else ""
        lines.append(f"intervals: {'; '.join(filter(None, (by_file, by_count)))}")
    if any(row.doubtful for rows in quoted.values() for row in rows):
        lines.append("?: does not fit this benchmark's number of queries, or may be another one")
    return lines


def _published(quoted, sources: dict[str, int], asked: bool) -> list[str]:
    if not asked:
        return []
    if not quoted:
        return [
            "no rows: none of the files names a benchmark (`hnclip data benchmarks` lists them)"
        ]
    lines = [f"no rows for {name}" for name, rows in quoted.items() if not rows]
    lines += [f"[{number}] {source}" for source, number in sources.items()]
    notes: dict[str, dict[str, list[int]]] = {}
    for row in (row for rows in quoted.values() for row in rows):
        for note in row.notes:
            places = notes.setdefault(note, {}).setdefault(row.method, [])
            if sources[row.source] not in places:
                places.append(sources[row.source])
    for note, methods in notes.items():
        named = [f"{method} {places}" for method, places in methods.items()]
        lines.append(f"{note}: {', '.join(named)}")
    return lines


def _title(name: str) -> str:
    return _TITLES.get(name, name.replace("r@", "R@").replace("map@", "mAP@"))


def _list(lines: list[str], markdown: bool) -> str:
    return "\n".join(f"{'- ' if markdown else ''}{line}" for line in lines)


def _plain(table: Table) -> str:
    rows = [row for row in table.rows if row]
    widths = [max(map(len, column)) for column in zip(table.header, *rows, strict=True)]

    def line(row: list[str]) -> str:
        # The titles leave room for the mark that stands behind a number.
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()

    header = [table.header[0], *(f"{cell} " for cell in table.header[1:])]
    widths = [max(width, len(cell)) for width, cell in zip(widths, header, strict=True)]
    rule = "-" * (sum(widths) + 2 * len(widths) - 2)
    return "\n".join([line(header), *(line(row) if row else rule for row in table.rows)])


def _markdown(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cell.strip().replace('|', chr(92) + '|') for cell in cells)} |"

    rule = ["---", *["---:"] * (len(table.header) - 1)]
    rows = [line(row) for row in table.rows if row]
    return "\n".join([f"## {table.title}\n", line(table.header), line(rule), *rows])
