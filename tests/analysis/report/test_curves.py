"""Curves: all runs in one chart for each number that any of them has logged."""

from hnclip_jax import config
from hnclip_jax.analysis import history
from hnclip_jax.analysis.report import curves
from tests.analysis.report import reading


def _run(name, *lines):
    return history.History(name, config.Config(), lines)


def _figures(*runs):
    tree = reading.read(curves.render(runs))
    return {figure.one("h3").text: figure for figure in tree.all("figure")}


def test_runs_share_charts_and_keep_their_colours():
    first = _run("a", {"step": 10, "train/loss": 2.0}, {"step": 20, "train/loss": 1.0})
    second = _run("b", {"step": 10, "train/loss": 3.0, "train/scale": 14.0})
    found = _figures(first, second)
    assert list(found) == ["Loss", "Inverse temperature s"]
    assert found["Loss"].one("table").rows() == [
        ["step", "a", "b"],
        ["10", "2", "3"],
        ["20", "1", "-"],
    ]
    scale = found["Inverse temperature s"]
    assert scale.one("table").rows() == [["step", "b"], ["10", "14"]]
    # The second run is the second colour, though it is alone here.
    marks = [path.attributes["class"] for path in scale.one("svg", role="img").all("path")]
    assert "marker colour-1" in marks
    assert "marker colour-0" not in marks


def test_every_number_that_is_logged_has_its_chart():
    line = {"step": 5, **{key: 0.5 for key, _, _ in curves.CURVES}}
    found = _figures(_run("a", line))
    assert list(found) == [title for _, title, _ in curves.CURVES]


def test_text_for_what_is_no_number():
    found = _figures(
        _run("a", {"step": 1, "train/loss": "nan"}, {"step": 2, "train/loss": "inf"},
             {"step": 3, "train/loss": 4.0})
    )  # fmt: skip
    assert "Not finite, so not drawn: 2 of 3 values." in found["Loss"].text
    assert found["Loss"].one("table").rows()[1:] == [["1", "nan"], ["2", "inf"], ["3", "4"]]


def test_norms_are_drawn_on_a_logarithmic_axis():
    lines = [
        {"step": step, "gradients/norm_info_nce": value, "gradients/cosine": value}
        for step, value in ((5, 0.0), (10, 1e-9), (15, 1.0))
    ]
    found = _figures(_run("a", *lines))
    assert "Not finite or not above 0, so not drawn: 1 of 3" in found["Gradient norm, InfoNCE"].text
    assert "not drawn" not in found["Cosine of both gradients"].text


def test_nothing_logged_is_said():
    assert "has logged anything" in reading.read(curves.render([_run("a")])).text
