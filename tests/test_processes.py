"""Two real processes train as one process does; only the first of them speaks and writes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from hnclip_jax.weights import files

TOLERANCE = 1e-5  # float32 sums in another order, through two towers
STEPS = 3
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def run_config(write_config, drawn, tmp_path_factory):
    """A config file whose list has only eight captions, so that equal ones meet in every batch."""
    folder = tmp_path_factory.mktemp("processes")
    rows = json.loads(drawn[0].read_text())
    for index, row in enumerate(rows):
        row["filename"] = str(drawn[0].parent / row["filename"])
        row["caption"] = rows[index % 8]["caption"]
    (folder / "list.json").write_text(json.dumps(rows))
    return write_config(
        folder / "run_config.py",
        {
            "data.train": str(folder / "list.json"),
            "eval.data": str(drawn[1]),
            "eval.batch_size": 12,
            "optim.eps": 1.0,  # Else Adam divides rounding by rounding.
            "train.steps": STEPS,
        },
    )


def _two(run_config, workdir, *own, common=(), meanwhile=lambda processes, said: None):
    """Runs two processes of two devices each; returns their exit codes and what they wrote.

    own: words of each process alone, if they are not the same; common: of both.
    meanwhile: called with the processes, and a function that gives what the first one said so far.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "hnclip_jax.cli", "train"]
    command += [f"--config={run_config}", f"--workdir={workdir}", *common]
    command += [f"--config.parallel.coordinator=127.0.0.1:{port}"]
    command += ["--config.parallel.process_count=2", "--config.parallel.fsdp=4"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    written = [workdir.with_name(f"{workdir.name}-{index}") for index in range(2)]
    with contextlib.ExitStack() as stack:
        processes = [
            subprocess.Popen(
                [*command, f"--config.parallel.process_index={index}", *own[index : index + 1]],
                env=environment,
                stdout=stack.enter_context(path.with_suffix(".out").open("w")),
                stderr=stack.enter_context(path.with_suffix(".err").open("w")),
            )
            for index, path in enumerate(written)
        ]
        for process in processes:
            stack.callback(process.kill)
        meanwhile(processes, written[0].with_suffix(".err").read_text)
        codes = [process.wait(timeout=TIMEOUT_S) for process in processes]
    return codes, [
        tuple(path.with_suffix(stream).read_text() for stream in (".out", ".err"))
        for path in written
    ]


def _once_said(text, do):
    """Waits until the first process has said `text`; then calls `do` with the processes."""

    def wait(processes, said):
        until = time.monotonic() + TIMEOUT_S
        while text not in said() and time.monotonic() < until:
            time.sleep(0.05)
        do(processes)

    return wait


@pytest.fixture(scope="module")
def together(run_config):
    """The folder of a run by two processes, and what they wrote."""
    workdir = run_config.parent / "together"
    codes, written = _two(run_config, workdir)
    assert codes == [0, 0], written
    return workdir, written


def _alone(hnclip, run_config, devices):
    """The folder of the same run by this process, on so many devices."""
    workdir = run_config.parent / f"alone_{devices}"
    ran = hnclip("train", f"--config={run_config}", f"--workdir={workdir}", devices=devices)
    assert ran.code == 0, ran.err
    assert "56 captions occur more than once" in ran.err
    return workdir


def _lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [4, 1])
def test_two_processes_train_as_one(together, hnclip, run_config, devices):
    workdir, _ = together
    alone = _alone(hnclip, run_config, devices)
    found, expected = _lines(workdir), _lines(alone)
    assert [line["step"] for line in found] == [1, 2, 3, 3]
    for one, other in zip(found[:STEPS], expected[:STEPS], strict=True):
        for name in ("train/loss", "train/grad_norm", "train/info_nce", "train/g_hardest"):
            np.testing.assert_allclose(one[name], other[name], rtol=TOLERANCE, err_msg=name)
    assert found[STEPS] == expected[STEPS]
    arrays, others = (
        files.read(run / "weights" / "model.safetensors").tree for run in (workdir, alone)
    )
    for name, array in others.items():
        np.testing.assert_allclose(arrays[name], array, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
def test_only_the_first_process_speaks(together):
    _, written = together
    assert "complete: 3 steps" in written[0][1]
    assert written[1][1] == ""


@pytest.mark.slow
def test_one_process_sees_that_two_have_finished(together, hnclip, run_config):
    workdir, _ = together
    ran = hnclip("train", f"--config={run_config}", f"--workdir={workdir}")
    assert ran.code == 0, ran.err
    assert f"nothing is left to do: {workdir} has its 3 steps" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            ("--config.optim.lr=0.1", "--config.optim.lr=0.2"),
            "config optim.lr",
        ),
        (("--config.data.image_root=", "--config.data.split=train"), "config data.split"),
    ],
    ids=["lr", "split"],
)
def test_processes_of_different_settings_stop_with_one_line_each(run_config, own, said):
    workdir = run_config.parent / "never"
    codes, written = _two(run_config, workdir, *own)
    assert codes == [2, 2], written
    for _, err in written:
        *_, last = err.splitlines()
        assert last.startswith("hnclip train: ")
        assert said in last
        assert "start the same command on every host" in last
    assert not workdir.exists()


@pytest.mark.slow
def test_sigterm_to_one_of_two_ends_both_and_one_goes_on_as_if_nothing_was(
    together, hnclip, run_config
):
    workdir = run_config.parent / "preempted"
    # While they compile, so that the word is there before the first step is done.
    tell = _once_said("parameters", lambda both: both[1].send_signal(signal.SIGTERM))
    codes, written = _two(run_config, workdir, meanwhile=tell)
    assert codes == [75, 75], written
    assert "of 3, which is saved; the same command goes on from there" in written[0][1]
    ran = hnclip("train", f"--config={run_config}", f"--workdir={workdir}", devices=4)
    assert ran.code == 0, ran.err
    assert "goes on after step" in ran.err
    found, expected = _lines(workdir), _lines(together[0])
    assert [line["step"] for line in found] == [1, 2, 3, 3]
    for one, other in zip(found[:STEPS], expected[:STEPS], strict=True):
        np.testing.assert_allclose(one["train/loss"], other["train/loss"], rtol=TOLERANCE)
    assert found[STEPS] == expected[STEPS]


@pytest.mark.slow
def test_one_that_is_killed_takes_the_other_with_it_for_a_new_start(run_config):
    workdir = run_config.parent / "killed"
    codes, written = _two(
        run_config,
        workdir,
        common=("--config.train.steps=100000",),
        meanwhile=_once_said("step 5/", lambda both: both[1].kill()),
    )
    assert codes == [75, -signal.SIGKILL], written
    last = written[0][1].splitlines()[-1]
    assert last.startswith("hnclip train: process 0 of 2 lost another one, or the way to it (")
    assert "start all of them again" in last


@pytest.mark.slow
def test_a_picture_that_only_one_of_two_meets_ends_both_with_its_line(run_config):
    rows = json.loads((run_config.parent / "list.json").read_text())
    broken = run_config.parent / "broken.png"
    broken.write_bytes(b"no picture")
    rows[40]["filename"] = str(broken)
    (run_config.parent / "broken.json").write_text(json.dumps(rows))
    codes, written = _two(
        run_config,
        run_config.parent / "spoilt",
        common=(f"--config.data.train={run_config.parent / 'broken.json'}",),
    )
    assert codes == [2, 2], written
    lines = [err.splitlines()[-1] for _, err in written]
    assert all("broken.png" in line and line.startswith("hnclip train: ") for line in lines)
    assert sum("cannot go on: " in line for line in lines) == 1
