"""The section of results: recall of every run by list, with intervals and published rows."""

import dataclasses
from collections.abc import Sequence

from hnclip_jax.analysis.report import markup, tables

BETTER, WORSE, CHANCE = "+", "-", "~"
"""What a difference is called: the last is within the interval, so it may be chance."""

_MARKS = {
    BETTER: ("better", "better"),
    WORSE: ("worse", "worse"),
    CHANCE: ("", "may be chance"),
}
"""Mark -> class and word."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number of a table.

    value: in the metric's unit.
    decimals: how many are shown.
    interval: 95 %, (low, high); None = not known.
    difference: to the first run; None = it is that one, or they cannot be compared.
    mark: what the difference is called; "" = no word can be given.
    doubtful: whether the source's number cannot be right.
    """

    value: float
    decimals: int = 2
    interval: tuple[float, float] | None = None
    difference: float | None = None
    mark: str = ""
    doubtful: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    """A row: a run's evaluation, or what a paper reports.

    name: the run or the method.
    what: which evaluation, or which paper.
    figures: name of the metric -> number.
    published: whether a paper reports it.
    """

    name: str
    what: str
    figures: dict[str, Figure]
    published: bool = False


@dataclasses.dataclass(frozen=True)
class ListResults:
    """All results on one list.

    title: what it is.
    summary: a sentence: how many captions and pictures.
    groups: title of a table -> metric -> title of its column.
    rows: runs first, in their order.
    notes: sentences on what to know before comparing.
    """

    title: str
    summary: str
    groups: dict[str, dict[str, str]]
    rows: tuple[Result, ...]
    notes: tuple[str, ...]


def render(found: Sequence[ListResults]) -> markup.Html:
    """Returns the section's body: per list a heading, its tables, and its notes."""
    if not found:
        return markup.tag("p", "None of the runs has been evaluated yet.")
    return markup.join(map(_list, found))


def _list(one: ListResults) -> markup.Html:
    made = [
        _table(one, title, names)
        for title, names in one.groups.items()
        if any(row.figures.keys() & names.keys() for row in one.rows)
    ]
    return markup.join(
        [
            markup.tag("h3", one.title),
            markup.tag("p", one.summary, class_="quiet"),
            *made,
            markup.tag("ul", *(markup.tag("li", note) for note in one.notes))
            if one.notes
            else None,
        ]
    )


def _table(one: ListResults, title: str, names: dict[str, str]) -> markup.Html:
    columns = [tables.Column("Run or method")]
    columns += [tables.Column(shown, True) for shown in names.values()]
    rows = [
        tables.Row(
            (_name(row), *(_cell(row.figures.get(name)) for name in names)),
            "published" if row.published else "",
        )
        for row in one.rows
        if row.figures.keys() & names.keys()
    ]
    return tables.table(f"{title}, {one.title}", columns, rows)


def _name(row: Result) -> markup.Html:
    return markup.join([row.name, " ", markup.tag("span", row.what, class_="which")])


def _cell(figure: Figure | None) -> tables.Cell:
    if figure is None:
        return tables.number(None)
    parts = [f"{figure.value:.{figure.decimals}f}"]
    if figure.doubtful:
        parts += ["?", markup.hidden(" doubtful")]
    if figure.interval:
        low, high = (f"{end:.{figure.decimals}f}" for end in figure.interval)
        parts.append(markup.tag("span", f"{low} to {high}", class_="interval"))
    if figure.difference is not None:
        parts.append(_difference(figure))
    return tables.Cell(markup.join(parts), figure.value)


def _difference(figure: Figure) -> markup.Html:
    kind, word = _MARKS.get(figure.mark, ("", ""))
    return markup.tag(
        "span",
        f" {figure.difference:+.{figure.decimals}f}",
        f" {word}" if word else None,
        class_=f"difference {kind}".strip(),
    )
