"""Tables: headers, buttons, and what they are sorted by."""

import math

from hnclip_jax.analysis.report import markup, tables
from tests.analysis.report import reading

COLUMNS = [tables.Column("Name"), tables.Column("R@1", True)]


def _read(rows, **options):
    return reading.read(tables.table("Recall & more", COLUMNS, rows, **options))


def test_a_table_says_what_it_is():
    made = _read([tables.Row(("a", tables.number(2.5))), tables.Row(("<b>", 7), "published")])
    region = made.one(role="region")
    assert region.attributes["aria-label"] == "Recall & more"
    assert region.attributes["tabindex"] == "0"
    assert made.one("caption").text == "Recall & more"
    assert [node.text for node in made.all("th", scope="col")] == ["Name", "R@1"]
    assert [node.text for node in made.all("th", scope="row")] == ["a", "<b>"]
    assert made.one("table").rows() == [["Name", "R@1"], ["a", "2.50"], ["<b>", "7"]]
    assert made.one("tr", class_="published").text == "<b>7"


def test_titles_are_buttons_where_there_is_something_to_sort():
    rows = [tables.Row(("a", 1)), tables.Row(("b", 2))]
    buttons = _read(rows).all("button", type="button")
    assert [button.text for button in buttons] == ["Name", "R@1"]
    assert not _read(rows[:1]).all("button")
    assert not _read(rows, sortable=False).all("button")


def test_numbers_are_sorted_by_their_value():
    numbers = [1234.5678, 0.1 + 0.2, None, math.nan, -math.inf]
    made = _read([tables.Row(("x", tables.number(value, 1))) for value in numbers])
    cells = made.all("td", class_="number")
    assert [cell.text for cell in cells] == ["1234.6", "0.3", "-", "nan", "-inf"]
    values = [cell.attributes.get("data-value") for cell in cells]
    assert [float(value) for value in values[:2]] == numbers[:2]
    assert values[2:] == [None] * 3


def test_a_cell_may_hold_markup():
    cell = tables.Cell(markup.tag("b", "7 < 8"), 7)
    made = _read([tables.Row(("a", cell))])
    assert made.one("b").text == "7 < 8"
    assert made.one("td").attributes["data-value"] == "7.0"
