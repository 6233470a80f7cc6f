"""`hnclip train`: what a run leaves, and that a run in pieces is the run in one piece."""

import hashlib
import json
import shutil
import signal

import jax
import numpy as np
import pytest

import hnclip_jax as hn
from hnclip_jax import config
from hnclip_jax.training import step
from hnclip_jax.weights import files

STEPS = 10
HALF = 5
DEVICES = 2
KEYS = {
    *("train/loss", "train/global", "train/info_nce", "train/boost_share", "train/gamma"),
    *("train/scale", "train/grad_norm", "train/g_mean", "train/g_std", "train/g_hardest"),
    *("train/s_positive", "train/solved", "train/solved_plain", "data/truncated_share"),
}
SPEED_KEYS = {"time/step_s", "time/pairs_per_s", "data/wait_s", "time/log_s", "time/save_s"}
COMPARED_KEYS = {
    *(f"gradients/{name}" for name in ("info_nce", "global", "ratio", "cosine", "solved")),
    *(f"gradients/{what}_{loss}" for what in ("norm", "max") for loss in ("info_nce", "global")),
}
EVAL_KEYS = {
    "eval/ties",
    *(f"eval/{way}_{what}" for way in ("t2i", "i2t") for what in ("r@1", "r@5", "r@10")),
    *(f"eval/{way}_median_rank" for way in ("t2i", "i2t")),
}


@pytest.fixture(scope="module")
def ten_steps(write_config, drawn, tmp_path_factory):
    """A config file of ten steps, the boost in the second half."""
    return write_config(
        tmp_path_factory.mktemp("runs") / "run_config.py",
        {
            "eval.data": str(drawn[1]),
            "eval.every_steps": HALF,
            "loss.gamma_start_step": HALF,
            "optim.warmup_steps": 2,
            "train.steps": STEPS,
        },
    )


@pytest.fixture(scope="module")
def straight(hnclip, ten_steps):
    """The folder of a run in one piece, and what it printed."""
    workdir = ten_steps.parent / "straight"
    command = ["train", f"--config={ten_steps}", f"--workdir={workdir}"]
    return workdir, hnclip(*command, devices=DEVICES)


@pytest.fixture(scope="module")
def halves(hnclip, ten_steps):
    """The folder of a run that Ctrl-C stops after five steps, and what both commands printed.

    The second half reads with two worker processes, compares gradients, and first makes up for the
    evaluation that was due when the first was stopped.
    """
    workdir = ten_steps.parent / "halves"
    command = ["train", f"--config={ten_steps}", f"--workdir={workdir}"]
    with pytest.MonkeyPatch.context() as patch:
        build = step.build

        def build_and_interrupt(*args):
            real = build(*args)

            def run(now, batch):
                if int(now.step) == HALF - 1:
                    signal.raise_signal(signal.SIGINT)
                return real(now, batch)

            return run

        patch.setattr(step, "build", build_and_interrupt)
        first = hnclip(*command, devices=DEVICES)
    more = ("--config.data.workers=2", "--config.log.gradients_every=3")
    second = hnclip(*command, *more, devices=DEVICES)
    return workdir, first, second


def _lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def _hashes(workdir):
    found = [path for path in workdir.rglob("*") if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.mark.slow
def test_a_run_leaves_what_the_documentation_says(straight, ten_steps, drawn):
    workdir, ran = straight
    assert ran.code == 0, ran.err
    names = {path.name for path in workdir.iterdir()} - {".lock"}
    assert names == {"config.json", "metrics.jsonl", "checkpoints", "eval", "weights"}
    assert {path.name for path in (workdir / "eval").iterdir()} == {
        "step_00000005.json",
        "step_00000010.json",
    }
    settings = config.from_json((workdir / "config.json").read_text())
    assert settings.train.steps == STEPS
    assert settings.data.train == str(drawn[0])


def test_every_line_of_the_metrics_has_its_names(straight):
    lines = _lines(straight[0])
    train = [line for line in lines if "train/loss" in line]
    evaluations = [line for line in lines if "train/loss" not in line]
    assert [line["step"] for line in train] == list(range(1, STEPS + 1))
    assert train[0].keys() == KEYS | {"step"}  # Nothing to time: the first step is compilation.
    assert all(line.keys() == KEYS | SPEED_KEYS | {"step"} for line in train[1:])
    assert [line["step"] for line in evaluations] == [HALF, STEPS]
    assert all(line.keys() == EVAL_KEYS | {"step"} for line in evaluations)
    assert [line["train/gamma"] for line in train] == [0.0] * HALF + [0.5] * HALF


def test_an_evaluation_says_by_which_protocol(straight, drawn):
    result = json.loads((straight[0] / "eval" / "step_00000010.json").read_text())
    protocol = result["protocol"]
    assert protocol["list_sha256"] == hashlib.sha256(drawn[1].read_bytes()).hexdigest()
    assert (protocol["step"], protocol["pictures"], protocol["captions"]) == (STEPS, 16, 16)
    last = _lines(straight[0])[-1]
    assert {f"eval/{name}": value for name, value in result["metrics"].items()} | {
        "step": STEPS
    } == last


def test_the_run_folder_can_be_loaded(straight, small_config):
    model, params = hn.load(straight[0])
    assert model.config == small_config
    image = np.random.default_rng(0).integers(0, 256, (2, 24, 24, 3), np.uint8)
    embedding = jax.jit(model.encode_image)(params, image)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1.0, rtol=1e-5)
    note = files.read(straight[0] / "weights" / "model.safetensors").note
    assert note["step"] == STEPS
    assert note["start"] == {"weights": "random"}


def test_the_closing_table_has_a_line_per_phase(straight):
    *_, titles, plain, boosted, last = straight[1].err.splitlines()
    assert titles.split()[:4] == ["steps", "gamma", "loss", "InfoNCE"]
    assert plain.split()[:3] == ["to", "5", "0"]
    assert boosted.split()[:3] == ["to", "10", "0.5"]
    assert last == f"complete: 10 steps, weights in {straight[0] / 'weights'}"


@pytest.mark.slow
def test_a_finished_run_is_left_as_it_is(straight, hnclip, ten_steps):
    workdir, first = straight
    before = _hashes(workdir)
    ran = hnclip("train", f"--config={ten_steps}", f"--workdir={workdir}", devices=DEVICES)
    assert ran.code == 0
    assert ran.err.splitlines()[-4:] == first.err.splitlines()[-4:]
    assert f"nothing is left to do: {workdir} has its 10 steps" in ran.err
    assert _hashes(workdir) == before


@pytest.mark.slow
def test_weights_that_were_not_written_any_more_are_written(straight, hnclip, ten_steps, tmp_path):
    workdir = tmp_path / "killed"
    shutil.copytree(straight[0], workdir)
    (workdir / "weights" / "model.safetensors").rename(workdir / "weights" / "other.part")
    ran = hnclip("train", f"--config={ten_steps}", f"--workdir={workdir}", devices=DEVICES)
    assert ran.code == 0, ran.err
    found, expected = ((f / "weights" / "model.safetensors") for f in (workdir, straight[0]))
    assert found.read_bytes() == expected.read_bytes()
    assert (workdir / "metrics.jsonl").read_bytes() == (straight[0] / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(halves):
    _, first, second = halves
    assert first.code == 130
    assert first.err.splitlines()[-1] == (
        "hnclip train: stopped after step 5 of 10, which is saved; the same command goes on from "
        "there"
    )
    assert second.code == 0, second.err
    assert "goes on after step 5 of 10" in second.err


def test_five_and_five_steps_are_ten_steps_bit_for_bit(straight, halves):
    whole, pieces = straight[0], halves[0]
    for name in ("weights/model.safetensors", *(f"eval/step_{n:08d}.json" for n in (HALF, STEPS))):
        assert (pieces / name).read_bytes() == (whole / name).read_bytes()
    expected, found = _lines(whole), _lines(pieces)
    compared = {
        line["step"]: {name for name in line if name.startswith("gradients/")} for line in found
    }
    assert {step for step, names in compared.items() if names} == {6, 9}
    assert compared[9] == COMPARED_KEYS
    for line in (*expected, *found):
        for name in (*SPEED_KEYS, *COMPARED_KEYS, "time/gradients_s"):
            line.pop(name, None)
    assert found == expected


def test_stop_after_leaves_as_if_by_ctrl_c_but_done(quick, hnclip, write_config, tmp_path):
    path = write_config(tmp_path / "config.py", {"train.steps": 4})
    command = ["train", f"--config={path}", f"--workdir={tmp_path / 'run'}"]
    first = hnclip(*command, "--stop_after=3")
    assert first.code == 0, first.err
    assert first.err.splitlines()[-1] == "stopped after step 3 of 4, as asked"
    assert not (tmp_path / "run" / "weights").exists()
    second = hnclip(*command)
    assert second.code == 0, second.err
    rows = quick.rows.copy()
    quick.rows.clear()
    assert hnclip(*command[:-1], f"--workdir={tmp_path / 'straight'}").code == 0
    assert rows == quick.rows
    assert len(rows) == 4
