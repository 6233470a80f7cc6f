"""The runs of the controls: done once, gone on with, and told where they fail."""

import signal

import pytest
from absl import flags

from hnclip_jax import config
from hnclip_jax.commands import train
from hnclip_jax.training import folder
from tests.controls_cases import NAMES, jobs, trained
from tools import controls_runs


def test_only_what_is_not_complete_is_done(tmp_path, capsys):
    made = jobs(tmp_path, NAMES[:5], 1)
    trained(made[0])
    trained(made[1], step=6)
    trained(made[2], weights=False)
    trained(made[3])
    for path in folder.RunFolder(made[3].path).eval.iterdir():
        path.unlink()
    assert [controls_runs.complete(job) for job in made] == [True, False, False, False, False]
    started = []
    failed = controls_runs.work(made, lambda job: started.append(job) or "")
    assert failed == {}
    assert started == made[1:]
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "controls: 1 of 5 runs are complete"
    assert said[1] == f"run 1 of 4: hn, seed 7; log in {tmp_path}/hn_seed7.log"
    assert said[2] == (
        f"run 2 of 4: constant, seed 7; under a minute left; log in {tmp_path}/constant_seed7.log"
    )


def test_runs_of_epochs_are_complete_at_their_end(tmp_path):
    job = jobs(tmp_path, seeds=1, train__steps=0, train__epochs=2, eval__every_epochs=1)[0]
    for step, whole in ((3, False), (6, True)):
        trained(job, step=step, weights=whole)
        assert controls_runs.complete(job) is whole


def test_the_time_left_is_by_what_runs_took(tmp_path, monkeypatch, capsys):
    clock = iter([0, 60, 100, 280, 300, 301])
    monkeypatch.setattr(controls_runs.time, "monotonic", lambda: next(clock))
    controls_runs.work(jobs(tmp_path, NAMES[:3], 1), lambda job: "")
    said = capsys.readouterr().err
    assert "run 2 of 3: hn, seed 7; about 2 min left" in said
    assert "run 3 of 3: constant, seed 7; about 2 min left" in said


def test_one_that_fails_stops_only_what_starts_from_it(tmp_path, capsys):
    made = jobs(tmp_path, ("gamma_0", "hn"), 2, base_steps=3)
    started = []

    def start(job):
        started.append(job.name)
        return "no list" if job.name in ("base, seed 7", "hn, seed 8") else ""

    failed = controls_runs.work(made, start)
    assert started == ["base, seed 7", "base, seed 8", "gamma_0, seed 8", "hn, seed 8"]
    waiting = f"the run it starts from failed: {tmp_path}/base_seed7"
    assert failed == {
        "base, seed 7": "no list",
        "gamma_0, seed 7": waiting,
        "hn, seed 7": waiting,
        "hn, seed 8": "no list",
    }
    assert "  failed: no list" in capsys.readouterr().err.splitlines()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Replaces `python -m hnclip_jax.cli` by a shell script."""

    def replace(text):
        script = tmp_path / "program"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setattr(controls_runs.sys, "executable", str(script))

    return replace


def test_a_run_is_a_process_with_its_own_log(tmp_path, program):
    job = jobs(tmp_path / "runs", seeds=1)[1]
    program('echo "$@"; echo')
    assert controls_runs.train(job) == ""
    said = controls_runs.log(job).read_text()
    assert said.startswith("-m hnclip_jax.cli train --config=")
    assert f"controls_config.py:{job.path}/config.json --workdir={job.path}" in said
    assert config.from_json((job.path / "config.json").read_text()) == job.settings
    program("echo; echo hnclip train: the list is gone; echo; exit 2")
    assert controls_runs.train(job) == "exit code 2: hnclip train: the list is gone"
    assert controls_runs.log(job).read_text().startswith(said)
    controls_runs.log(job).unlink()
    program("kill -9 $$")
    assert controls_runs.train(job) == "exit code -9: it said nothing"


def test_the_process_finds_the_settings_of_its_run(tmp_path):
    job = jobs(tmp_path, seeds=1, eval__ks=(1, 3), loss__gamma_by_epoch=(0.1, 0.2))[1]
    folder.RunFolder(job.path).claim(job.settings)
    argv = ["train", f"--config={controls_runs._CONFIG}:{job.path}/config.json"]
    values = flags.FlagValues()
    train.define_flags(values, argv)
    values(argv)
    assert config.from_config_dict(values.config) == job.settings


def test_who_stops_the_controls_stops_the_run(tmp_path, program, monkeypatch):
    program(f"trap 'echo saved > {tmp_path}/saved; exit 75' TERM; while true; do sleep 0.05; done")
    job = jobs(tmp_path / "runs", seeds=1)[0]

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            controls_runs.train(job)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (tmp_path / "saved").read_text() == "saved\n"
