"""Recall of runs, every number against a loop over what the runs wrote."""

import json
import math
import statistics

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import page, recall, recall_tables
from tests import fake_runs


def run(name, found, *, metric="r@1", per_epoch=10, label="", seed=1, **changes):
    lines = [{"step": 1, "train/loss": 2.0}, *fake_runs.evaluations(found, metric)]
    return fake_runs.history(name, lines, per_epoch, label, train__seed=seed, **changes)


FIRST = {10: (50.0, 40.0), 20: (60.0, 52.0), 30: (66.0, 51.0)}
SECOND = {10: (52.0, 41.0), 20: (58.0, 50.0), 30: (60.0, 59.0)}
THIRD = {10: (51.0, 45.0), 20: (59.0, 55.0), 30: (69.0, 40.0)}
SEEDS = [run(f"s{n}", found, seed=n) for n, found in enumerate((FIRST, SECOND, THIRD))]


def value(pair, panel):
    return {"t2i": pair[0], "i2t": pair[1], "average": (pair[0] + pair[1]) / 2}[panel]


def test_a_curve_is_the_mean_and_the_spread_of_its_seeds():
    drawn = recall.over_epochs(SEEDS, "r@1")
    (curve,) = drawn.curves
    assert (drawn.axis, drawn.metric, curve.label) == ("epoch", "r@1", "s0")
    assert curve.x.tolist() == [1.0, 2.0, 3.0]
    for panel in ("average", "t2i", "i2t"):
        spread = curve.panels[panel]
        for place, step in enumerate((10, 20, 30)):
            values = [value(found[step], panel) for found in (FIRST, SECOND, THIRD)]
            assert spread.count[place] == 3
            assert spread.mean[place] == pytest.approx(statistics.fmean(values))
            assert (spread.low[place], spread.high[place]) == (min(values), max(values))
            assert spread.deviation[place] == pytest.approx(statistics.stdev(values))
    for one, found in zip(curve.runs, (FIRST, SECOND, THIRD), strict=True):
        assert one.steps.tolist() == [10, 20, 30]
        assert one.values["average"].tolist() == [value(pair, "average") for pair in found.values()]


def test_kinds_are_curves():
    runs = [*SEEDS[:2], run("plain", THIRD, loss__gamma=0.0)]
    drawn = recall.over_epochs(runs, "r@1")
    assert [(curve.label, len(curve.runs)) for curve in drawn.curves] == [
        ("loss.gamma=0.5", 2), ("loss.gamma=0.0", 1),
    ]  # fmt: skip
    assert drawn.curves[1].panels["i2t"].mean.tolist() == [45.0, 55.0, 40.0]
    assert np.isnan(drawn.curves[0].panels["t2i"].deviation).all()


def test_the_mean_stands_only_where_all_seeds_were_evaluated():
    unfinished = {5: (10.0, 10.0), **{step: SECOND[step] for step in (10, 30)}}
    drawn = recall.over_epochs([SEEDS[0], run("b", unfinished, seed=2)], "r@1")
    (curve,) = drawn.curves
    assert curve.x.tolist() == [1.0, 3.0]
    assert curve.panels["t2i"].mean.tolist() == [51.0, 63.0]
    assert curve.panels["t2i"].count.tolist() == [2, 2]
    assert [one.steps.tolist() for one in curve.runs] == [[10, 20, 30], [5, 10, 30]]


def test_seeds_that_share_no_step_have_no_mean():
    other = run("b", {7: (1.0, 2.0)}, seed=2)
    drawn = recall.over_epochs([SEEDS[0], other], "r@1")
    (curve,) = drawn.curves
    assert curve.x.shape == (0,)
    assert all(part.shape == (0,) for spread in curve.panels.values() for part in spread)
    assert "s0: its 2 runs share no evaluated step" in recall_tables.summary(drawn, [])


def test_steps_where_an_epoch_is_not_known():
    drawn = recall.over_epochs([SEEDS[0], run("b", SECOND, seed=2, per_epoch=0)], "r@1")
    assert drawn.axis == "step"
    assert drawn.curves[0].x.tolist() == [10.0, 20.0, 30.0]
    assert drawn.x(drawn.curves[0].runs[0]).tolist() == [10.0, 20.0, 30.0]


def test_runs_of_other_lengths_stand_at_their_own_epochs():
    half = run("half", {5: (1.0, 2.0), 10: (3.0, 4.0)}, per_epoch=5, data__fraction=0.5)
    drawn = recall.over_epochs([SEEDS[0], half], "r@1")
    assert [curve.x.tolist() for curve in drawn.curves] == [[1.0, 2.0, 3.0], [1.0, 2.0]]
    assert drawn.x(drawn.curves[1].runs[0]).tolist() == [1.0, 2.0]


def test_another_k_is_read():
    drawn = recall.over_epochs([run("a", FIRST, metric="r@5")], "r@5")
    assert drawn.curves[0].panels["t2i"].mean.tolist() == [50.0, 60.0, 66.0]


def test_runs_that_were_not_evaluated_are_one_line():
    with pytest.raises(types.UserError, match=r"b holds no evaluation; train with --config.eval"):
        recall.over_epochs([SEEDS[0], run("b", {})], "r@1")
    with pytest.raises(types.UserError, match=r"b was evaluated at r@1, not at r@10; give another"):
        recall.over_fractions([run("b", FIRST)], "r@10", "last")


FRACTIONS = [
    run("a1", FIRST, seed=1, data__fraction=0.25),
    run("a2", SECOND, seed=2, data__fraction=0.25),
    run("a", THIRD, seed=1, data__fraction=1.0),
    run("p", {10: (1.0, 2.0), 20: (5.0, 4.0), 30: (3.0, 3.5)}, data__fraction=0.5, loss__gamma=0.0),
]


@pytest.mark.parametrize(
    ("checkpoint", "steps"), [("last", [30, 30, 30, 30]), ("best", [30, 30, 20, 20])]
)
def test_over_fractions_one_evaluation_of_each_run_counts(checkpoint, steps):
    drawn = recall.over_fractions(FRACTIONS, "r@1", checkpoint)
    assert drawn.axis == "fraction"
    assert [curve.label for curve in drawn.curves] == ["loss.gamma=0.5", "loss.gamma=0.0"]
    hn, plain = drawn.curves
    assert [run.steps.tolist() for curve in drawn.curves for run in curve.runs] == [
        [step] for step in steps
    ]
    assert (hn.x.tolist(), plain.x.tolist()) == ([0.25, 1.0], [0.5])
    for panel in recall.PANELS:
        quarter = [value(FIRST[30], panel), value(SECOND[30], panel)]
        whole = value(THIRD[steps[2]], panel)
        assert hn.panels[panel].mean.tolist() == [statistics.fmean(quarter), whole]
        assert hn.panels[panel].low.tolist() == [min(quarter), whole]
        assert hn.panels[panel].high.tolist() == [max(quarter), whole]
        assert hn.panels[panel].count.tolist() == [2, 1]
    assert drawn.x(hn.runs[1]).tolist() == [0.25]


def test_the_best_evaluation_is_never_one_that_is_no_number():
    found = {10: ("nan", "nan"), 20: (5.0, 4.0), 30: (1.0, 1.0)}
    drawn = recall.over_fractions([run("a", found)], "r@1", "best")
    assert drawn.curves[0].runs[0].steps.tolist() == [20]


def test_references_have_the_panels_that_are_known():
    metrics = {"t2i_r@1": 80.0, "i2t_r@1": 70.0, "i2t_r@5": 90.0, "ties": 0}
    assert recall.reference("x", metrics, "r@1") == (
        "x", {"average": 75.0, "t2i": 80.0, "i2t": 70.0},
    )  # fmt: skip
    assert recall.reference("x", metrics, "r@5").values == {"i2t": 90.0}
    with pytest.raises(types.UserError, match=r"x has no r@10 of either direction; it has t2i_r@1"):
        recall.reference("x", metrics, "r@10")


def test_json_and_table_hold_every_number():
    drawn = recall.over_fractions(FRACTIONS, "r@1", "best")
    references = [recall.reference("x", {"t2i_r@1": 80.0, "i2t_r@1": 70.0}, "r@1")]
    content = json.loads(json.dumps(page.finite(recall_tables.to_json(drawn, references))))
    assert (content["axis"], content["metric"], content["unit"]) == ("fraction", "r@1", "percent")
    assert content["references"] == [{"label": "x", "average": 75.0, "t2i": 80.0, "i2t": 70.0}]
    for entry, curve in zip(content["curves"], drawn.curves, strict=True):
        assert (entry["label"], entry["x"]) == (curve.label, curve.x.tolist())
        assert entry["n"] == curve.panels["t2i"].count.tolist()
        for panel, spread in curve.panels.items():
            assert set(entry[panel]) == {"mean", "low", "high", "deviation"}
            assert entry[panel]["mean"] == spread.mean.tolist()
            assert entry[panel]["low"] == spread.low.tolist()
            assert entry[panel]["deviation"] == [None] * len(curve.x)
        for written, one in zip(entry["runs"], curve.runs, strict=True):
            assert written["run"] == one.history.name
            assert written["seed"] == one.history.settings.train.seed
            assert (written["fraction"], written["x"]) == (one.fraction, [one.fraction])
            assert written["steps"] == one.steps.tolist()
            assert written["i2t"] == one.values["i2t"].tolist()

    rows = recall_tables.table(drawn)
    assert len(rows) == 4 * 3
    assert rows[1] == {
        "label": "loss.gamma=0.5", "run": "a1", "seed": 1, "fraction": 0.25, "step": 30,
        "epoch": 3.0, "metric": "t2i_r@1", "value": 66.0,
    }  # fmt: skip
    three = recall_tables.to_json(recall.over_epochs(SEEDS, "r@1"), [])["curves"][0]["average"]
    assert three["deviation"][0] == pytest.approx(statistics.stdev([45.0, 46.5, 48.0]))


def test_the_table_tells_steps_where_epochs_are_not_known():
    rows = recall_tables.table(recall.over_epochs([run("a", FIRST, per_epoch=0)], "r@1"))
    assert [row["step"] for row in rows[::3]] == [10, 20, 30]
    assert math.isnan(rows[0]["epoch"])


def test_the_summary_is_the_last_of_each_curve_or_all_shares():
    assert recall_tables.summary(recall.over_epochs(SEEDS, "r@1"), []).splitlines() == [
        "R@1 in percent, mean over the runs (lowest to highest)",
        "s0, epoch 3, n = 3: average 57.50 (54.50 to 59.50), t2i 65.00 (60.00 to 69.00), "
        "i2t 50.00 (40.00 to 59.00)",
    ]
    reference = recall.reference("x", {"t2i_r@1": 80.0}, "r@1")
    drawn = recall.over_fractions(FRACTIONS, "r@1", "last")
    lines = recall_tables.summary(drawn, [reference]).splitlines()
    assert (
        lines[2] == "loss.gamma=0.5, 100 % of the data, n = 1: average 54.50, t2i 69.00, i2t 40.00"
    )
    assert lines[1].startswith("loss.gamma=0.5, 25 % of the data, n = 2: average 59.00 (58.50 to")
    assert lines[-1] == "x: t2i 80.00"
