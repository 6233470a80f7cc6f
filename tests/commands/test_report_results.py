"""Rows that `hnclip report` makes of result files: which, against what, and what is said below."""

import dataclasses

import pytest

from hnclip_jax import config
from hnclip_jax.commands import report_results, run_folders
from hnclip_jax.evaluation import comparison, published

DOCCI = {"benchmark": "docci_goal", "list": "lists/docci.json", "list_sha256": "a" * 64}
COUNTS = {"pictures": 5100, "captions": 5100}


def _measured(recall, label="x", intervals=None, **protocol):
    metrics = {"t2i_r@1": recall, "i2t_r@1": recall - 10, "t2i_median_rank": 2.0, "ties": 0}
    return comparison.Measured(label, metrics, {**DOCCI, **COUNTS, **protocol}, intervals or {})


def _run(*results, best_metric=""):
    settings = config.Config()
    train = dataclasses.replace(settings.train, best_metric=best_metric)
    settings = dataclasses.replace(settings, train=train)
    return run_folders.Run("path", settings, (), results, False)


def _one(*runs):
    (found,) = report_results.by_list(runs, [f"run {n}" for n in range(len(runs))])
    return found


def _own(found):
    return [row for row in found.rows if not row.published]


def test_the_latest_and_the_best():
    run = _run((100, _measured(50.0)), (300, _measured(55.0)), (200, _measured(70.0)))
    rows = _own(_one(run))
    assert [row.what for row in rows] == ["latest, step 300", "best, step 200"]
    assert [row.figures["t2i_r@1"].value for row in rows] == [55.0, 70.0]
    # The best is chosen on the list itself.
    assert any("the mean of both R@1 on this very list" in note for note in _one(run).notes)


def test_the_best_is_by_the_metric_of_the_run():
    low = _measured(50.0)
    low.metrics["i2t_r@1"] = 90.0
    run = _run((1, low), (2, _measured(80.0)), best_metric="eval/t2i_r@1")
    assert [row.what for row in _own(_one(run))] == ["latest, step 2"]
    run = _run((1, low), (2, _measured(80.0)), best_metric="eval/i2t_r@1")
    assert [row.what for row in _own(_one(run))] == ["latest, step 2", "best, step 1"]
    assert any("chosen by i2t_r@1" in note for note in _one(run).notes)


def test_a_file_without_a_step_came_after_the_run():
    run = _run((900, _measured(60.0)), (None, _measured(50.0, "by_hand")))
    assert [row.what for row in _own(_one(run))] == ["latest, by_hand", "best, step 900"]


def test_latest_is_held_against_latest_and_best_against_best():
    first = _run((1, _measured(70.0)), (2, _measured(60.0)))
    second = _run((1, _measured(71.0)), (2, _measured(64.0)))
    differences = [row.figures["t2i_r@1"].difference for row in _own(_one(first, second))]
    assert differences == [None, None, pytest.approx(4.0), pytest.approx(1.0)]
    # Where the first has no other best, its latest is that.
    first = _run((1, _measured(60.0)))
    differences = [row.figures["t2i_r@1"].difference for row in _own(_one(first, second))]
    assert differences == [None, pytest.approx(4.0), pytest.approx(11.0)]


@pytest.mark.parametrize(("recall", "mark"), [(60.5, "~"), (64.0, "+"), (56.0, "-"), (60.0, "~")])
def test_differences_have_the_marks_of_compare(recall, mark):
    found = _own(_one(_run((1, _measured(60.0))), _run((1, _measured(recall)))))
    figure = found[1].figures["t2i_r@1"]
    assert (figure.difference, figure.mark) == (pytest.approx(recall - 60), mark)
    # At either end, the recall is 1.96 standard errors of that end away.
    for end in figure.interval:
        away = 1.96 * (end * (100 - end) / 5100) ** 0.5
        assert abs(recall - end) == pytest.approx(away)
    assert found[1].figures["t2i_median_rank"].interval is None
    assert found[1].figures["ties"].decimals == 0


def test_intervals_of_the_file_count():
    found = _one(_run((1, _measured(60.0, intervals={"t2i_r@1": (50.0, 70.0)}))))
    assert _own(found)[0].figures["t2i_r@1"].interval == (50.0, 70.0)
    assert found.notes[0] == (
        "Intervals are of 95 %, from the bootstrap of the result file for run 0, else binomial, "
        "from the number of queries."
    )


def test_what_cannot_be_compared_has_no_difference():
    found = _one(_run((1, _measured(60.0))), _run((1, _measured(70.0, captions=100))))
    figure = _own(found)[1].figures["t2i_r@1"]
    assert (figure.difference, figure.mark) == (None, "")
    assert "run 1, latest, step 1, cannot be compared: captions 5100 and 100." in found.notes
    found = _one(_run((1, _measured(60.0))), _run((1, _measured(70.0, context_length=77))))
    assert not any("differs" in note for note in found.notes)
    first = _run((1, _measured(60.0, context_length=248)))
    found = _one(first, _run((1, _measured(70.0, context_length=77))))
    assert "run 1, latest, step 1, differs in context_length 248 and 77." in found.notes


def test_published_rows_of_the_benchmark():
    found = _one(_run((1, _measured(60.0))))
    quoted = [row for row in found.rows if row.published]
    rows = published.rows("docci_goal")
    assert [row.name for row in quoted] == [row.method for row in rows]
    for shown, row in zip(quoted, rows, strict=True):
        assert {name: figure.value for name, figure in shown.figures.items()} == row.metrics
        doubtful = {name for name, figure in shown.figures.items() if figure.doubtful}
        assert doubtful == {*row.doubtful} & row.metrics.keys()
        number = int(shown.what.rsplit("[", 1)[1].rstrip("]"))
        assert f"[{number}] {row.source}" in found.notes
        assert shown.what.startswith(f"{row.backbone}; {row.trained_on or 'zero-shot'} [")
        for note in row.notes:
            assert any(said.endswith(f"{note}.") and row.method in said for said in found.notes)
    assert any(figure.doubtful for row in quoted for figure in row.figures.values())
    assert any(note.startswith("?: ") for note in found.notes)


def test_a_list_that_is_no_benchmark():
    other = _measured(60.0, benchmark=None, list="/data/sets/own.json")
    found = _one(_run((1, other)))
    assert found.title == "sets/own.json"
    assert found.summary == "5,100 captions, 5,100 pictures, /data/sets/own.json"
    assert not [row for row in found.rows if row.published]
    assert _one(_run((1, _measured(60.0)))).title == "docci_goal"
    assert _one(_run((1, comparison.Measured("x", {"r": 1.0}, {}, {})))).title == (
        "A list that is not recorded"
    )
    # A file of a later version may name what this one does not know.
    assert _one(_run((1, _measured(60.0, benchmark="new_set")))).title == "new_set"


def test_each_list_has_its_own_rows():
    other = _measured(80.0, benchmark=None, list="b.json", list_sha256="b" * 64)
    same = _measured(70.0, list="elsewhere/docci.json")
    runs = [_run((1, _measured(60.0))), _run((1, other), (2, same))]
    found = report_results.by_list(runs, ["a", "b"])
    assert [one.title for one in found] == ["docci_goal", "b.json"]
    assert [[row.name for row in _own(one)] for one in found] == [["a", "b"], ["b"]]


def test_a_benchmark_is_one_list_though_its_file_changed():
    runs = [_run((1, _measured(60.0))), _run((1, _measured(70.0, list_sha256="b" * 64)))]
    found = _one(*runs)
    assert [row.name for row in _own(found)] == ["run 0", "run 1"]
    assert any("cannot be compared: list_sha256" in note for note in found.notes)


def test_columns_by_direction():
    found = _one(_run((1, _measured(60.0))))
    assert found.groups == {
        "Text to image": {"t2i_r@1": "R@1", "t2i_median_rank": "Median rank"},
        "Image to text": {"i2t_r@1": "R@1"},
        "Other metrics": {"ties": "ties"},
    }
