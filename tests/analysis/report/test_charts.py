"""Charts: what is drawn stands where the numbers say, and all of it is told in words and rows."""

import math

import numpy as np
import pytest

from hnclip_jax.analysis.report import charts
from tests.analysis.report import reading


def _line(label, x, y, style=0):
    return charts.Line(label, np.array(x), np.array(y, float), style)


def _read(*lines, **options):
    return reading.read(charts.chart("Loss", "step", lines, **options))


def _picture(made):
    return made.one("svg", role="img")


def _paths(made, kind="line"):
    """Returns the points of all lines, [(x, y), ...] each."""
    found = []
    for path in _picture(made).all("path"):
        if path.attributes.get("class", "").startswith(kind):
            pairs = path.attributes["d"].removeprefix("M").split("L")
            found.append([tuple(map(float, pair.split())) for pair in pairs])
    return found


def _axis(made, anchor):
    """Returns {number: place} of the ticks: anchor "middle" is across, "end" is up."""
    across = anchor == "middle"
    return {
        float(node.text.replace(",", "").replace("k", "e3")): float(node.attributes["x"])
        if across
        else float(node.attributes["y"]) - 4
        for node in _picture(made).all("text", text_anchor=anchor)
        if node.text != "step"
    }


def _interpolated(ticks, values, log=False):
    """Returns places of values by the two ends of an axis."""
    low, high = min(ticks), max(ticks)
    shape = np.log if log else np.asarray
    share = (shape(values) - shape(low)) / (shape(high) - shape(low))
    return ticks[low] + share * (ticks[high] - ticks[low])


@pytest.mark.parametrize(
    ("y", "log"),
    [([0, 3, 10, 4], False), ([-0.02, 0.013, 0.5, 0.3], False), ([1e-6, 0.4, 20, 3], True)],
)
def test_points_stand_where_the_axes_say(y, log):
    x = [10, 50, 100, 120]
    made = _read(_line("a", x, y), log=log)
    (points,) = _paths(made)
    across, up = zip(*points, strict=True)
    assert across == pytest.approx(_interpolated(_axis(made, "middle"), np.array(x)), abs=0.15)
    assert up == pytest.approx(_interpolated(_axis(made, "end"), np.array(y), log), abs=0.15)
    assert all(46 <= at <= 340 for at in across)
    assert all(10 <= at <= 188 for at in up)


def test_lines_share_the_axes():
    made = _read(_line("a", [0, 10], [0, 1]), _line("b", [0, 100], [5, 9], 1))
    first, second = _paths(made)
    up = _axis(made, "end")
    assert [y for _, y in first] == pytest.approx(_interpolated(up, np.array([0, 1])), abs=0.15)
    assert [y for _, y in second] == pytest.approx(_interpolated(up, np.array([5, 9])), abs=0.15)
    assert first[1][0] < second[1][0]


def test_what_cannot_be_drawn_is_a_gap_and_counted():
    y = [1, 2, math.nan, 3, math.inf, 4, 5]
    made = _read(_line("a", range(7), y))
    assert [len(path) for path in _paths(made)] == [2, 1, 2]
    assert "Not finite, so not drawn: 2 of 7 values." in made.one("figcaption").text
    made = _read(_line("a", range(5), [0, 1, 10, -1, 100]), log=True)
    assert [len(path) for path in _paths(made)] == [2, 1]
    assert "Not finite or not above 0, so not drawn: 2 of 5 values." in made.text
    assert "not drawn" not in _read(_line("a", [1], [2])).text


@pytest.mark.parametrize("y", [[math.nan, math.nan], [math.inf, -math.inf]])
def test_a_line_without_values_says_so(y):
    made = _read(_line("a", [1, 2], y))
    assert not _paths(made)
    assert "a: no values" in _picture(made).attributes["aria-label"]
    assert made.one("ul", class_="legend").text.split() == ["a", "no", "values"]


def test_one_point_is_a_marker():
    made = _read(_line("a", [30], [0.5]))
    marks = [p for p in _picture(made).all("path") if "marker" in p.attributes.get("class", "")]
    assert len(marks) == 1
    assert "a: 0.5 at 30" in _picture(made).attributes["aria-label"]


def test_few_points_have_markers_and_many_have_none():
    for count, expected in ((30, 30), (31, 0)):
        made = _picture(_read(_line("a", range(count), range(count))))
        marks = [p for p in made.all("path") if "marker" in p.attributes.get("class", "")]
        assert len(marks) == expected


def test_a_line_in_words():
    told = charts.describe(_line("hn", [10, 20, 30, 40, 50], [2, 5, 1, math.nan, 3]))
    assert told == ("hn: 4 points from 10 to 50, first 2, last 3, lowest 1 at 30, highest 5 at 20")


def test_long_lines_keep_their_extremes():
    rng = np.random.default_rng(0)
    x, y = np.arange(10_000), rng.normal(size=10_000)
    y[1234], y[7777] = 50, -50
    thin_x, thin_y = charts.thin(x, y)
    assert len(thin_x) <= 402
    assert (np.diff(thin_x) > 0).all()
    assert {50, -50} <= {*thin_y.tolist()}
    assert (thin_x[0], thin_x[-1]) == (0, 9999)
    np.testing.assert_array_equal(y[thin_x], thin_y)
    kept = {*thin_x.tolist()}
    for low in range(0, 10_000, 50):
        part = y[low : low + 50]
        assert {low + int(part.argmin()), low + int(part.argmax())} <= kept
    assert charts.thin(x[:400], y[:400])[0] is not None
    np.testing.assert_array_equal(charts.thin(x[:400], y[:400])[0], x[:400])


def test_lines_are_told_apart_without_colour():
    styles = [_read(_line("a", [1, 2], [1, 2], style)) for style in range(4 * charts.STYLES)]
    seen = set()
    for made in styles:
        line = next(p for p in _picture(made).all("path") if p.attributes["class"][:4] == "line")
        mark = next(p for p in _picture(made).all("path") if p.attributes["class"][:6] == "marker")
        look = (
            line.attributes["class"],
            line.attributes.get("stroke-dasharray"),
            mark.attributes["d"],
        )
        assert look not in seen
        assert len(seen) >= 4 or look[1] not in {other[1] for other in seen}
        seen.add(look)
        sample = made.one("svg", class_="sample").all("path")
        assert (sample[0].attributes["class"], sample[1].attributes["d"]) == (look[0], look[2])


def test_the_numbers_are_there_to_unfold():
    made = _read(_line("a", [10, 20], [1 / 3, 2]), _line("<b>", [20, 30], [math.nan, 7]))
    details = made.one("details")
    assert details.one("summary").text == "Numbers of Loss"
    assert details.one("table").rows() == [
        ["step", "a", "<b>"],
        ["10", "0.33333", "-"],
        ["20", "2", "nan"],
        ["30", "-", "7"],
    ]
    assert details.one("caption").text == "Loss"


def test_many_numbers_are_a_sample_with_the_last_one():
    made = _read(_line("a", range(1, 252), range(1, 252))).one("details")
    rows = made.one("table").rows()[1:]
    assert [int(row[0]) for row in rows] == list(range(2, 252, 3))
    assert int(rows[-1][0]) == 251
    assert made.one("caption").text == "Loss, one in 3 of 251 steps"
    made = _read(_line("a", range(100), range(100))).one("details")
    assert len(made.one("table").rows()) == 101


def test_the_legend_tells_the_last_value():
    made = _read(_line("a", [1, 2], [5, 7]), _line("b", [1, 2, 3], [5, 8, math.nan], 1))
    entries = made.one("ul", class_="legend").all("li")
    assert [entry.text.split() for entry in entries] == [["a", "7"], ["b", "8"]]
    made = _read(_line("a", [1, 2], [5, 7]), last=False)
    assert made.one("ul", class_="legend").text.split() == ["a"]
