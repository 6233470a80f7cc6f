"""The paper's tables, cell by cell: the command of each, and what runs made of it.

    python -m tools.paper list --table=2
    python -m tools.paper collect runs/paper/* --out=paper.json

`list` prints every cell with its place, its published numbers (R@1, R@5, R@10; "not read" where
none are known) and its command; `collect` finds by its settings which cell a run folder is, and
puts its recall beside the published one. `python tools/paper.py` is the same. docs/paper.md.
"""

import csv
import io
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from absl import flags

# As a file, Python would look for modules beside it only.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from hnclip_jax import types
from hnclip_jax.commands import run_folders
from hnclip_jax.evaluation import comparison, protocol
from tools import paper_cells, paper_runs, program

_FLAGS = {
    "list": ("table", "format", "weights", "workdir"),
    "collect": ("out", "checkpoint"),
}
"""Action -> its flags."""

_NUMBERS = ("mean", "low", "high", "deviation", "published", "doubtful", "difference", "verdict")


def main(argv: Sequence[str]) -> None:
    """Runs one command line.

    Raises:
      types.UserError: for a mistake in it, or in what it names.
    """
    values = flags.FlagValues()
    _define_flags(values)
    try:
        action, *paths = values(list(argv))[1:] or [""]
    except flags.Error as error:
        raise types.UserError(" ".join(str(error).split())) from error
    if action not in _FLAGS:
        raise types.unknown_name("action", action, _FLAGS)
    foreign = [
        name
        for name in (name for other in _FLAGS.values() for name in other)
        if values[name].present and name not in _FLAGS[action]
    ]
    if foreign:
        raise types.UserError(f"--{foreign[0]} does not go with {action}")
    if action == "list":
        print(_list(values, paths))
    else:
        print(_collect(values, paths))


def _define_flags(values: flags.FlagValues) -> None:
    for name, default, what in (
        ("table", "", f"one of {', '.join(paper_cells.TABLES)}; empty = all"),
        ("weights", "longclip-L.pt", "what the commands start from: Long-CLIP-L's weights"),
        ("workdir", "runs/paper", "folder of the commands' runs"),
        ("out", "", "file to write as well: .json or .csv"),
    ):
        flags.DEFINE_string(name, default, what, flag_values=values)
    flags.DEFINE_enum("format", "table", ("table", "csv"), "for people or not", flag_values=values)
    flags.DEFINE_enum(
        "checkpoint",
        "last",
        ("last", "best"),
        "which evaluation of a run counts; best = of the highest mean R@1 on the test set itself, "
        "which is how the paper seems to have chosen",
        flag_values=values,
    )


def _list(values: flags.FlagValues, arguments: list[str]) -> str:
    if arguments:
        raise types.UserError(f"list does not understand {arguments[0]!r}; flags begin with --")
    if values.table and values.table not in paper_cells.TABLES:
        raise types.unknown_name("table", values.table, paper_cells.TABLES)
    cells = paper_cells.of_table(values.table)

    def command(cell: paper_cells.Cell) -> str:
        return cell.command(values.weights, values.workdir)

    return _as_csv(cells, command) if values.format == "csv" else _as_text(cells, command)


def _as_text(cells: Iterable[paper_cells.Cell], command: Callable) -> str:
    blocks, notes = [], {}
    for cell in cells:
        lines = [f"{cell.id}: {cell.benchmark}, {cell.place()}"]
        for way, title in comparison.DIRECTIONS.items():
            numbers = (cell.published(m) for m in paper_cells.METRICS if m.startswith(way))
            lines.append(f"    {title}  {' / '.join(numbers)}")
        if cell.replica:
            shown = ", ".join(f"{name} {value}" for name, value in cell.replica.metrics.items())
            lines.append(f"    second seed    {shown}")
        blocks.append("\n".join([*lines, f"    {command(cell)}"]))
        for note in cell.notes:
            notes.setdefault(note, []).append(cell.id)
    closing = [f"{note}: {types.at_most_ten(names)}" for note, names in notes.items()]
    return "\n\n".join([*blocks, "\n".join(["R@1 / R@5 / R@10 in percent.", *closing])])


def _as_csv(cells: Iterable[paper_cells.Cell], command: Callable) -> str:
    header = ("id", "tables", "benchmark", *paper_cells.METRICS, "source", "notes", "command")
    lines = [
        (
            cell.id,
            " ".join(cell.tables),
            cell.benchmark,
            *map(cell.published, paper_cells.METRICS),
            cell.row.source if cell.row else paper_cells.NOT_READ,
            "; ".join(cell.notes),
            command(cell),
        )
        for cell in cells
    ]
    return _csv([header, *lines])


def _collect(values: flags.FlagValues, paths: list[str]) -> str:
    if not paths:
        raise types.UserError("collect needs run folders, say runs/paper/*")
    out = pathlib.Path(values.out).expanduser()
    if values.out and out.suffix not in (".json", ".csv"):
        raise types.UserError(f"--out={values.out} ends neither in .json nor in .csv")
    runs = [run_folders.read(path) for path in paths]
    found, remarks = paper_runs.collect(runs, values.checkpoint)
    rows = paper_runs.rows(found)
    if out.suffix == ".json":
        content = {"checkpoint": values.checkpoint, "cells": rows, "not_counted": remarks}
        protocol.write_json(out, content)
    elif values.out:
        program.write(out, _flat(rows))
    return _results(rows, remarks, values.checkpoint)


def _results(rows: list[dict[str, Any]], remarks: list[str], checkpoint: str) -> str:
    shown = [name for name in paper_cells.METRICS if any(name in row["metrics"] for row in rows)]
    titles = [name.replace("_r@", " R@").upper() for name in shown]
    lines = [["cell", "seeds", *titles]]
    notes = []
    for row in rows:
        cells = [_cell(row["metrics"].get(metric)) for metric in shown]
        lines.append([row["id"], " ".join(map(str, row["seeds"])), *cells])
        if row["differs"]:
            notes.append(f"{row['id']}: in what the paper leaves open, {row['differs']}")
        if len({*row["seeds"]}) < len(row["seeds"]):
            notes.append(f"{row['id']}: a seed stands twice, so the spread is too small")
    blocks = [_columns(lines)] if rows else ["no run is a cell of the paper"]
    if rows:
        notes += [
            "mean of the runs (lowest to highest) / published number, their difference: + better, "
            "- worse, ~ within the 95 % interval of chance, by the number of queries",
            f"{checkpoint} evaluation of each run; the paper's is the best by the test set itself",
        ]
        blocks.append("\n".join(notes))
    if remarks:
        blocks.append("\n".join(["Not counted", *remarks]))
    return "\n\n".join(blocks)


def _cell(numbers: dict[str, Any] | None) -> str:
    if numbers is None:
        return "-"
    text = f"{numbers['mean']:.2f}"
    if "deviation" in numbers:
        text += f" ({numbers['low']:.2f} to {numbers['high']:.2f})"
    if "published" not in numbers:
        return f"{text} / {paper_cells.NOT_READ}"
    doubt = "?" if numbers["doubtful"] else ""
    published = f"{numbers['published']:.2f}{doubt}"
    return f"{text} / {published}, {numbers['difference']:+.2f}{numbers['verdict']}"


def _flat(rows: list[dict[str, Any]]) -> str:
    """Returns a line per cell and metric as CSV."""
    header = ("id", "tables", "benchmark", "differs", "seeds", "runs", "steps", "metric", *_NUMBERS)
    lines = []
    for row in rows:
        shown = [
            " ".join(map(str, row[name])) if isinstance(row[name], list) else row[name]
            for name in header[:7]
        ]
        for metric, numbers in row["metrics"].items():
            lines.append([*shown, metric, *(numbers.get(name, "") for name in _NUMBERS)])
    return _csv([header, *lines])


def _csv(lines: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().rstrip("\n")


def _columns(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    program.run("paper", main)
