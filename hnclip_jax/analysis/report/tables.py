"""Tables as HTML: with a caption, headers for rows and columns, and buttons that sort them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from hnclip_jax.analysis.report import markup


@dataclasses.dataclass(frozen=True)
class Column:
    """title: of the column; numbers: whether its cells are, so that they stand below each other."""

    title: str
    numbers: bool = False


@dataclasses.dataclass(frozen=True)
class Cell:
    """content: what is shown, text or markup; value: what it is sorted by, None = its text."""

    content: Any
    value: float | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """cells: the first one names the row; kind: a class for the style, "" = none."""

    cells: tuple[Any, ...]
    kind: str = ""


def table(
    caption: str, columns: Sequence[Column], rows: Sequence[Row], *, sortable: bool = True
) -> markup.Html:
    """Returns a table that scrolls by itself where it is wider than the page.

    Args:
      caption: what it is, in a few words.
      columns: at least one.
      rows: as many cells each; a cell is a `Cell` or a plain value. What has no number in a column
        of numbers stays below whichever way it is sorted.
      sortable: whether the titles are buttons; a table of one row has none.
    """
    sortable = sortable and len(rows) > 1
    header = markup.tag("tr", *(_title(column, sortable) for column in columns))
    inside = markup.tag(
        "table",
        markup.tag("caption", caption),
        markup.tag("thead", header),
        markup.tag("tbody", *(_row(row, columns) for row in rows)),
    )
    return markup.tag(
        "div", inside, class_="scroll", role="region", aria_label=caption, tabindex="0"
    )


def number(value: float | None, decimals: int = 2) -> Cell:
    """Returns a cell for a number; "-" where there is none."""
    if value is None or not math.isfinite(value):
        return Cell("-" if value is None else str(value))
    return Cell(f"{value:.{decimals}f}", value)


def _title(column: Column, sortable: bool) -> markup.Html:
    shown = markup.escape(column.title)
    if sortable:
        arrow = markup.tag("span", class_="arrow", aria_hidden="true")
        shown = markup.tag("button", shown, arrow, type="button")
    return markup.tag("th", shown, scope="col", class_="number" if column.numbers else None)


def _row(row: Row, columns: Sequence[Column]) -> markup.Html:
    cells = []
    for place, (cell, column) in enumerate(zip(row.cells, columns, strict=True)):
        cell = cell if isinstance(cell, Cell) else Cell(cell)
        value = None if cell.value is None else repr(float(cell.value))
        kind = "number" if column.numbers else None
        name, scope = ("td", None) if place else ("th", "row")
        cells.append(markup.tag(name, cell.content, scope=scope, class_=kind, data_value=value))
    return markup.tag("tr", *cells, class_=row.kind or None)
