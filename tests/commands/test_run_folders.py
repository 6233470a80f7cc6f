"""Run folders as they are read afterwards: whole ones, those broken off, and what is none."""

import json

import pytest

from hnclip_jax import config, types
from hnclip_jax.commands import run_folders
from tests import fake_runs

LINES = [{"step": 1, "train/loss": 2.0}, {"step": 20, "eval/t2i_r@1": 50.0}]


def test_all_of_a_finished_run_is_read(tmp_path):
    path = fake_runs.write(tmp_path / "run", LINES, (20, 10), train__seed=7)
    run = run_folders.read(str(path))
    assert run.path == path
    assert run.settings.train.seed == 7
    assert run.lines == tuple(LINES)
    assert [step for step, _ in run.results] == [10, 20]
    assert run.results[0][1].protocol["list_sha256"] == "a" * 64
    assert run.results[0][1].metrics == {"t2i_r@1": 50.0, "i2t_r@1": 40.0}
    assert run.has_weights
    assert (run.last_step, run.per_epoch, run.total) == (20, 10, 20)


def test_results_that_were_measured_afterwards_have_no_step(tmp_path):
    path = fake_runs.write(tmp_path / "run", LINES, (10, 20))
    fake_runs.result(path / "eval" / "other.json", list_sha256="b" * 64)
    run = run_folders.read(str(path))
    assert [step for step, _ in run.results] == [None, 10, 20]
    assert run.per_epoch == 10


def test_the_length_of_an_epoch_is_that_between_evaluations(tmp_path):
    lines = [{"step": 60}]
    every = {"train__epochs": 6, "eval__every_epochs": 2}
    path = fake_runs.write(tmp_path / "run", lines, (20, 40, 60), **every)
    run = run_folders.read(str(path))
    assert (run.per_epoch, run.total) == (10, 60)


def test_an_evaluation_at_the_end_says_nothing_of_epochs_that_were_never_reached(tmp_path):
    every = {"train__epochs": 2, "eval__every_epochs": 3}
    path = fake_runs.write(tmp_path / "run", [{"step": 20}], (20,), **every)
    assert run_folders.read(str(path)).per_epoch == 10


@pytest.mark.parametrize("text", ["5", "null", "[]", '"text"', "{"])
def test_a_config_that_is_no_object_is_one_line(tmp_path, text):
    path = fake_runs.write(tmp_path / "run", LINES)
    (path / "config.json").write_text(text)
    with pytest.raises(types.UserError, match="is no run that can be read"):
        run_folders.read(str(path))


def test_or_that_of_the_whole_run_if_it_came_to_its_end(tmp_path):
    changes = {"train__epochs": 4, "eval__every_epochs": 0}
    path = fake_runs.write(tmp_path / "run", [{"step": 40}], (40,), **changes)
    assert run_folders.read(str(path)).per_epoch == 10
    path = fake_runs.write(tmp_path / "b", [{"step": 27}], (), weights=False, **changes)
    run = run_folders.read(str(path))
    assert (run.per_epoch, run.total, run.has_weights) == (0, 0, False)


def test_a_run_of_so_many_steps_has_a_total_but_no_epochs(tmp_path):
    changes = {"train__epochs": 0, "train__steps": 50, "eval__every_epochs": 0}
    path = fake_runs.write(tmp_path / "run", [{"step": 30}], weights=False, **changes)
    run = run_folders.read(str(path))
    assert (run.per_epoch, run.total, run.last_step) == (0, 50, 30)


def test_a_line_that_was_being_written_is_left_out(tmp_path):
    path = fake_runs.write(tmp_path / "run", LINES)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('[1]\n{"epoch": 3}\n{"step": "4"}\n\n{"step": 30, "train/lo')
    assert run_folders.read(str(path)).lines == tuple(LINES)


def test_a_run_that_wrote_nothing_yet_is_read(tmp_path):
    path = fake_runs.write(tmp_path / "run", weights=False)
    (path / "metrics.jsonl").unlink()
    (path / "eval").rmdir()
    run = run_folders.read(str(path))
    assert (run.lines, run.results, run.last_step, run.has_weights) == ((), (), 0, False)


def test_a_history_has_the_name_of_the_folder_or_the_one_given(tmp_path):
    path = fake_runs.write(tmp_path / "run", LINES, (10, 20))
    run = run_folders.read(str(path))
    history = run.history()
    assert (history.name, history.steps_per_epoch) == ("run", 10)
    assert (history.lines, history.settings) == (run.lines, run.settings)
    assert run.history("mine").name == "mine"


def test_the_home_folder_and_a_trailing_slash_are_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    fake_runs.write(tmp_path / "run", LINES)
    assert run_folders.read("~/run/").history().name == "run"


def spoil_metrics(path):
    (path / "metrics.jsonl").write_bytes(b"\xff\xfe")


def spoil_settings(path):
    values = config.to_json(fake_runs.settings())
    (path / "config.json").write_text(values.replace('"seed"', '"sead"', 1))


def spoil_result(path):
    (path / "eval" / "step_00000010.json").write_text(json.dumps({"metrics": {}}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "config.json").unlink(), "run is no run that can be read .*No such"),
        (lambda path: (path / "config.json").write_text("{"), "run is no run that can be read"),
        (spoil_settings, "run is no run that can be read .*sead"),
        (spoil_metrics, "run is no run that can be read .*utf-8"),
        (spoil_result, "step_00000010.json is an object with the keys metrics"),
    ],
)
def test_what_cannot_be_read_is_one_line(spoil, message, tmp_path):
    path = fake_runs.write(tmp_path / "run", LINES, (10,))
    spoil(path)
    with pytest.raises(types.UserError, match=message) as caught:
        run_folders.read(str(path))
    assert "\n" not in str(caught.value)


def test_no_folder_and_an_address_are_one_line(tmp_path):
    with pytest.raises(types.UserError, match="give folders that `hnclip train` made"):
        run_folders.read(str(tmp_path / "nothing"))
    with pytest.raises(types.UserError, match="is an address, but a run needs a folder"):
        run_folders.read("gs://bucket/run")
