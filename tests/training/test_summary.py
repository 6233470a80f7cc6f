"""The closing table: a line per phase, means of the last log lines, the last evaluation."""

import json

import pytest

from hnclip_jax.training import summary


def _train(step, gamma, loss, **more):
    return {"step": step, "train/gamma": gamma, "train/loss": loss, **more}


def test_phases_are_stretches_with_and_without_the_boost():
    lines = [
        *(_train(step, 0.0, float(step)) for step in range(1, 8)),
        {"step": 7, "eval/t2i_r@1": 40.0},
        _train(8, 0.25, 10.0),
        {"step": 8, "eval/t2i_r@1": 41.0},
        _train(9, 0.5, 20.0),
        {"step": 9, "eval/t2i_r@1": 50.0},
    ]
    plain, boosted = summary.phases(lines)
    assert plain["step"] == 7
    assert plain["gamma"] == 0.0
    assert plain["train/loss"] == pytest.approx((3 + 4 + 5 + 6 + 7) / 5)
    assert plain["eval/t2i_r@1"] == 40.0
    assert boosted["step"] == 9
    assert boosted["gamma"] == 0.5
    assert boosted["train/loss"] == pytest.approx(15.0)
    assert boosted["eval/t2i_r@1"] == 50.0


def test_a_switch_back_is_a_phase_of_its_own():
    rows = summary.phases([_train(1, 0.0, 1.0), _train(2, 0.5, 1.0), _train(3, 0.0, 1.0)])
    assert [row["step"] for row in rows] == [1, 2, 3]


def test_the_table_aligns_and_leaves_out_what_nobody_measured():
    lines = [
        _train(100, 0.0, 1.0, **{"train/scale": 14.28}),
        _train(200, 0.5, 12.5, **{"train/scale": 100.0}),
        {"step": 200, "eval/i2t_r@1": 5.25},
    ]
    assert summary.table(lines).splitlines() == [
        " steps  gamma     loss      s  I2T R@1",
        "to 100      0   1.0000   14.3        -",
        "to 200    0.5  12.5000  100.0      5.2",
    ]


def test_a_loss_that_is_no_number_shows():
    assert summary.table([_train(1, 0.5, "nan")]).splitlines()[1].split() == [
        "to",
        "1",
        "0.5",
        "nan",
    ]


def test_a_run_without_a_line_has_a_title(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert summary.table(summary.read(tmp_path / "metrics.jsonl")) == "steps  gamma"


def test_lines_are_read_as_they_were_written(tmp_path):
    lines = [_train(1, 0.0, 1.5), {"step": 1, "eval/t2i_r@1": 3.0}]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert summary.read(path) == lines
