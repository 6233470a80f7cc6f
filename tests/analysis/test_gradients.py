"""Gradients over a run: every number against a loop over the lines."""

import json
import math
import statistics

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import gradients, gradients_tables, page
from tests import fake_runs

PLAIN, TRAINED, RATIO, COSINE, SOLVED = gradients.KEYS


def run(name="run", *, per_epoch=40, label="", changes=None, **made):
    return fake_runs.history(name, fake_runs.gradients(**made), per_epoch, label, **(changes or {}))


def on(train, fraction, per_epoch=40, **more):
    changes = {"data__train": train, "data__fraction": fraction}
    return run(f"{train} {fraction}", count=12, per_epoch=per_epoch, changes=changes, **more)


def test_every_series_is_that_of_a_loop():
    history = run(count=30, zeros=(3, 4, 20))
    (measured,) = gradients.measure([history], 20)
    for key in gradients.KEYS:
        series = measured.series[key]
        values = {line["step"]: float(line[key]) for line in history.lines}
        assert series.steps.tolist() == list(values)
        np.testing.assert_array_equal(series.values, list(values.values()))
        for step, median in zip(series.steps, series.median, strict=True):
            near = [v for at, v in values.items() if abs(at - step) <= 10 and not math.isnan(v)]
            assert median == statistics.median(near)
        assert [band.epoch for band in series.bands] == [1, 2, 3, 4]
        for band in series.bands:
            inside = [v for at, v in values.items() if band.first < at <= band.last and v == v]
            assert band.median == statistics.median(inside)
            assert band.count == len(inside)


def test_the_window_is_a_share_of_the_run_if_none_is_given():
    histories = [run(count=100), run("short", count=1)]
    assert [one.window for one in gradients.measure(histories)] == [50, 1]
    assert [one.window for one in gradients.measure(histories, 40)] == [40, 40]


def test_what_no_axis_can_show_is_counted():
    history = run(count=12, zeros=(2, 5, 6))
    history.lines[7][TRAINED] = "inf"
    history.lines[8][RATIO] = "nan"
    (measured,) = gradients.measure([history], 20)
    counts = {key: series.counts for key, series in measured.series.items()}
    assert counts == {
        PLAIN: gradients.Counts(12, 3, 0, 0),
        TRAINED: gradients.Counts(12, 0, 1, 0),
        RATIO: gradients.Counts(12, 0, 3, 1),
        COSINE: gradients.Counts(12, 0, 0, 3),
        SOLVED: gradients.Counts(12, 0, 0, 0),
    }
    assert [str(count) for count in counts.values()] == [
        "3 zero of 12",
        "1 infinite of 12",
        "3 infinite, 1 undefined of 12",
        "3 undefined of 12",
        "",
    ]


def test_a_share_of_zero_solved_pairs_is_no_zero_of_a_gradient():
    history = run(count=4)
    history.lines[0][SOLVED] = 0.0
    (measured,) = gradients.measure([history], 20)
    assert str(measured.series[SOLVED].counts) == ""


def test_a_run_without_gradients_is_one_line():
    histories = [run(count=3), fake_runs.history("older", [{"step": 1, "train/loss": 1.0}])]
    expected = r"older holds no gradients/norm_info_nce; train with --config.log.gradients_every=5"
    with pytest.raises(types.UserError, match=expected):
        gradients.measure(histories)


def test_lists_of_one_name_are_told_apart_by_their_folders():
    histories = [on("a/x/train.json", 1.0), on("b/x/train.json", 1.0), on("scenes", 1.0)]
    assert gradients.grid(histories).rows == ["a/x/train", "b/x/train", "scenes"]
    assert gradients.grid(histories[:1]).rows == ["x/train"]
    same = [on("x/train.json", 1.0), on("x/train.csv", 1.0)]
    assert gradients.grid(same).rows == ["x/train.json", "x/train.csv"]


def test_two_runs_in_one_place_of_a_grid_are_a_mistake():
    expected = "scenes 0.1 and scenes 0.1 both trained on 10 % of scenes, .* leave one out"
    with pytest.raises(types.UserError, match=expected):
        gradients.grid([on("scenes", 0.1), on("scenes", 0.1, seed=3)])


def test_json_and_table_hold_every_number():
    histories = [run("a", count=9, zeros=(4,), label="first"), run("b", count=5, per_epoch=0)]
    measured = gradients.measure(histories, 20)
    content = json.loads(json.dumps(page.finite(gradients_tables.to_json(measured))))
    assert content["band"] == [0.1, 0.9]
    assert set(content["floors"]) == {panel.title for panel in gradients.PANELS}
    assert content["floors"]["gradient norm"] == gradients.limits(gradients.PANELS[0], measured)[0]
    assert content["ceilings"]["cosine"] == 1.08
    for entry, one in zip(content["runs"], measured, strict=True):
        assert (entry["label"], entry["window_steps"]) == (one.label, 20)
        assert entry["steps_per_epoch"] == (one.history.steps_per_epoch or None)
        for key, series in one.series.items():
            written = entry["series"][key]
            assert written["steps"] == series.steps.tolist()
            assert written["values"] == page.finite(series.values)
            assert written["running_median"] == page.finite(series.median)
            assert written["bands"] == [page.finite(band._asdict()) for band in series.bands]
            assert written["counts"]["measured"] == len(series.values)
    assert content["runs"][0]["series"][PLAIN]["counts"]["zero"] == 1

    rows = gradients_tables.table(measured)
    assert len(rows) == 5 * (9 + 5)
    first = rows[4]
    series = measured[0].series[PLAIN]
    assert (first["label"], first["metric"], first["step"]) == ("first", PLAIN, 25)
    assert (first["epoch"], first["value"]) == (25 / 40, 0.0)
    assert first["running_median"] == series.median[4]
    assert math.isnan(rows[-1]["epoch"])
    assert (rows[-1]["label"], rows[-1]["metric"]) == ("b", SOLVED)
    assert rows[-1]["value"] == histories[1].lines[-1][SOLVED]


def test_the_summary_tells_medians_and_counts():
    history = run("a", count=9, zeros=(4,))
    text = gradients_tables.summary(gradients.measure([history])).splitlines()
    median = statistics.median(line[TRAINED] for line in history.lines)
    assert text[0] == "a: 9 measurements, medians:"
    assert text[1].endswith("1 zero of 9")
    assert text[2].split() == ["gradient", "norm,", "as", "trained", f"{median:.4g}"]
    assert len(text) == 6
