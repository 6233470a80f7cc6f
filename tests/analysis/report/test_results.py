"""Results: figures, intervals and differences as they stand in the tables."""

import pytest

from hnclip_jax.analysis.report import results
from tests.analysis.report import reading

GROUPS = {"Text to image": {"t2i_r@1": "R@1", "t2i_r@5": "R@5"}, "Other": {"ties": "Ties"}}


def _list(*rows, notes=()):
    return results.ListResults("docci <x>", "5,100 captions", GROUPS, rows, notes)


def _cell(figure):
    row = results.Result("a", "latest", {"t2i_r@1": figure})
    tree = reading.read(results.render([_list(row)]))
    return tree.one("tbody").all("td")[0]


def test_a_table_for_each_group_that_has_rows():
    rows = [
        results.Result(
            "plain", "latest", {"t2i_r@1": results.Figure(50.123), "ties": results.Figure(3, 0)}
        ),
        results.Result("HN-CLIP", "Table 1", {"t2i_r@5": results.Figure(97.1, 1)}, published=True),
    ]
    tree = reading.read(results.render([_list(*rows, notes=("Mind < this.",))]))
    assert tree.one("h3").text == "docci <x>"
    first, second = tree.all("table")
    assert first.one("caption").text == "Text to image, docci <x>"
    assert first.rows() == [
        ["Run or method", "R@1", "R@5"],
        ["plain latest", "50.12", "-"],
        ["HN-CLIP Table 1", "-", "97.1"],
    ]
    assert second.rows() == [["Run or method", "Ties"], ["plain latest", "3"]]
    assert first.one("tr", class_="published").text.startswith("HN-CLIP")
    assert tree.one("li").text == "Mind < this."
    assert [cell.attributes.get("data-value") for cell in first.all("td", class_="number")] == [
        "50.123", None, None, "97.1",
    ]  # fmt: skip


def test_intervals_and_differences():
    cell = _cell(results.Figure(51.5, interval=(49.25, 53.755), difference=1.5, mark="+"))
    assert cell.one("span", class_="interval").text == "49.25 to 53.76"
    assert cell.one("span", class_="difference better").text == " +1.50 better"
    assert cell.text == "51.5049.25 to 53.76 +1.50 better"


@pytest.mark.parametrize(
    ("mark", "kind", "text"),
    [
        ("-", "difference worse", " -2.00 worse"),
        ("~", "difference", " -2.00 may be chance"),
        ("", "difference", " -2.00"),
    ],
)
def test_what_a_difference_is_called(mark, kind, text):
    cell = _cell(results.Figure(48.0, difference=-2.0, mark=mark))
    assert cell.all("span")[0].attributes["class"] == kind
    assert cell.text == f"48.00{text}"


def test_a_difference_of_nothing_is_told():
    assert _cell(results.Figure(48.0, difference=0.0, mark="~")).text.endswith(
        "+0.00 may be chance"
    )


def test_doubtful_numbers_are_marked_for_all():
    cell = _cell(results.Figure(93.76, doubtful=True))
    assert cell.text == "93.76? doubtful"
    assert cell.one("span", class_="hidden").text == " doubtful"


def test_no_results_are_said():
    assert reading.read(results.render([])).text == "None of the runs has been evaluated yet."
