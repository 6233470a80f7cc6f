"""What weeks bring: signals, kills, storage that goes away, two starts at once. Nothing is lost."""

import errno
import fcntl
import json
import os
import pathlib
import shutil
import signal
import sys
import time

import jax
import jax.numpy as jnp
import pytest
from orbax.checkpoint import v1 as ocp

from hnclip_jax import cli, types
from hnclip_jax.commands import rooms
from hnclip_jax.evaluation import protocol
from hnclip_jax.training import state, step

STEPS = 6
EACH = "--config.train.save_every_steps=1"


def _checkpoints(workdir):
    """Returns the steps whose checkpoints are complete."""
    # One that is being written has a longer name, and for a moment this file.
    names = [path.parent.name for path in workdir.glob("checkpoints/*/commit_success.txt")]
    return sorted(int(name) for name in names if name.isdigit())


def _logged(workdir):
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [line["step"] for line in map(json.loads, lines) if "train/loss" in line]


def _at(step, do):
    return lambda number: do() if number == step else None


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, types.AGAIN), (signal.SIGINT, types.STOPPED)]
)
def test_a_signal_leaves_a_code_that_tells_schedulers(quick, train, tmp_path, number, code):
    quick.before_step = _at(3, lambda: signal.raise_signal(number))
    ran = train()
    assert ran.code == code
    assert ran.err.splitlines()[-1].startswith("hnclip train: stopped after step 3 of 6, which is")
    assert _checkpoints(tmp_path / "run") == [3]
    assert train().code == 0
    assert _logged(tmp_path / "run") == list(range(1, STEPS + 1))


def test_sigterm_in_an_evaluation_is_obeyed_after_it(quick, train, drawn, tmp_path, monkeypatch):
    def told(params):
        signal.raise_signal(signal.SIGTERM)
        return protocol.Result({"t2i_r@1": 0.0}, {})

    monkeypatch.setattr(protocol, "Evaluator", lambda *_, **__: told)
    ran = train(f"--config.eval.data={drawn[1]}", "--config.eval.every_steps=2")
    assert ran.code == types.AGAIN
    assert "stopped after step 3 of 6" in ran.err
    assert (tmp_path / "run" / "eval" / "step_00000002.json").exists()


def test_an_evaluation_that_was_due_at_sigterm_is_made_up_for(quick, train, drawn, tmp_path):
    words = (f"--config.eval.data={drawn[1]}", "--config.eval.every_steps=3")
    quick.before_step = _at(3, lambda: signal.raise_signal(signal.SIGTERM))
    assert train(*words).code == types.AGAIN
    assert not (tmp_path / "run" / "eval").exists()
    assert train(*words).code == 0
    names = sorted(path.name for path in (tmp_path / "run" / "eval").iterdir())
    assert names == ["step_00000003.json", "step_00000006.json"]


def test_what_a_kill_in_the_middle_of_a_save_left_is_no_checkpoint(quick, train, tmp_path):
    assert train("--stop_after=2").code == 0
    folder = tmp_path / "run" / "checkpoints"
    half = folder / "4.orbax-checkpoint-tmp"
    shutil.copytree(folder / "2", half)
    (half / "commit_success.txt").unlink()
    ran = train()
    assert ran.code == 0, ran.err
    assert "goes on after step 2 of 6" in ran.err
    assert not half.exists()
    assert _logged(tmp_path / "run") == list(range(1, STEPS + 1))


def test_a_line_of_metrics_that_a_kill_cut_off_is_written_again(quick, train, tmp_path):
    assert train("--stop_after=3").code == 0
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 4, "train/lo')
    assert train().code == 0
    assert _logged(tmp_path / "run") == list(range(1, STEPS + 1))


def test_a_kill_between_two_files_of_the_folder_leaves_it_usable(quick, train, tmp_path):
    assert train("--stop_after=3").code == 0
    for name in ("config.tmp", "metrics.tmp"):
        (tmp_path / "run" / name).write_text("half")
    assert train().code == 0
    assert not list((tmp_path / "run").glob("*.tmp"))


@pytest.mark.parametrize("what", ["arrays", "names", "meta", "everything"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_serves(quick, train, tmp_path, what):
    assert train(EACH, "--stop_after=4").code == 0
    last = tmp_path / "run" / "checkpoints" / "4"
    files = [path for path in last.rglob("*") if path.is_file()]
    spoilt = {
        "arrays": [path for path in files if "/d/" in str(path)],
        "names": [path for path in files if path.name == "_METADATA"],
        "meta": [path for path in files if path.name == "_CHECKPOINT_METADATA"],
        "everything": files,
    }[what]
    for path in spoilt:
        path.write_bytes(path.read_bytes()[:7])
    message = train(EACH).one_line()
    assert f"the checkpoint {last} is damaged" in message
    assert "move it away to go on from the one before" in message
    shutil.move(last, tmp_path / "damaged")
    ran = train(EACH)
    assert ran.code == 0, ran.err
    assert "goes on after step 3 of 6" in ran.err


def test_two_runs_are_never_in_one_folder(quick, train, tmp_path):
    assert train("--stop_after=1").code == 0
    with (tmp_path / "run" / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another run is at work in" in train().one_line()
    assert train().code == 0


def test_a_file_system_without_locks_is_no_hindrance(quick, train, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert train().code == 0


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOTCONN, "mount it again"),  # A mounted bucket that is gone.
        (errno.ESTALE, "mount it again"),
        (errno.EIO, "see what its disk or mount is up to"),
        (errno.EROFS, "make it writable"),
        (errno.EACCES, "make it writable"),
        (errno.EDQUOT, "make room there"),
    ],
    ids=lambda value: errno.errorcode.get(value, "") if isinstance(value, int) else "",
)
def test_storage_that_goes_away_is_one_line(quick, train, tmp_path, monkeypatch, number, advice):
    assert train("--stop_after=2").code == 0

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(ocp.training.Checkpointer, "save_checkpointables_async", fail)
        message = train().one_line()
    assert os.strerror(number).lower() in message
    assert advice in message
    assert train().code == 0


def test_a_folder_that_is_removed_under_the_run_is_one_line(quick, train, tmp_path):
    folder = tmp_path / "run" / "checkpoints"

    def remove():
        until = time.monotonic() + 30
        while _checkpoints(tmp_path / "run") != [1, 2, 3] and time.monotonic() < until:
            time.sleep(0.01)
        folder.rename(tmp_path / "elsewhere")

    quick.before_step = _at(4, remove)
    message = train(EACH, "--config.train.keep_checkpoints=9").one_line()
    assert f"could not be saved in {folder}: no such file or directory" in message
    assert "see why it is gone" in message


def test_a_mount_that_is_gone_is_not_taken_for_the_empty_folder_below_it(
    quick, train, tmp_path, monkeypatch
):
    folder, real = tmp_path / "run" / "checkpoints", os.stat

    def unmounted(path, *args, **kwargs):
        found = real(path, *args, **kwargs)
        if str(path) != str(folder) or len(quick.rows) < 4:
            return found
        return os.stat_result([*found[:2], found.st_dev + 1, *found[3:10]])

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", unmounted)
        message = train(EACH).one_line()
    assert "step 4 could not be saved" in message
    assert "transport endpoint is not connected" in message
    assert _checkpoints(tmp_path / "run") == [2, 3]


def test_a_save_that_failed_ends_the_run_before_the_next_is_due(
    quick, train, tmp_path, monkeypatch
):
    class Failed:
        def result(self, timeout):
            raise OSError(errno.ENOSPC, "No space left on device")

    manager = ocp.training.Checkpointer
    monkeypatch.setattr(manager, "save_checkpointables_async", lambda *_, **__: Failed())
    assert "no space left" in train("--config.train.save_every_steps=3").one_line()
    assert len(quick.rows) == 4  # The save of step 3 failed; step 4 noticed.


def test_a_save_that_hangs_ends_the_program_for_a_new_start(quick, train, monkeypatch):
    class Hangs:
        def result(self, timeout):
            assert 0 < timeout <= 1
            raise TimeoutError

    ended = []
    manager = ocp.training.Checkpointer
    with monkeypatch.context() as patch:
        patch.setattr(manager, "save_checkpointables_async", lambda *_, **__: Hangs())
        patch.setattr(manager, "is_saving_in_progress", lambda _: True)
        patch.setattr(cli, "_end", lambda code: ended.append(code) or code)
        ran = train("--config.train.save_every_steps=2", "--config.train.save_timeout_s=1")
    assert ran.code == types.AGAIN
    assert ended == [types.AGAIN]  # Orbax's threads would keep the interpreter.
    assert "is not complete after 1 s (train.save_timeout_s)" in ran.err.splitlines()[-1]


def test_a_program_that_has_to_end_does(monkeypatch):
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    cli._end(75)
    assert codes == [75]


@pytest.mark.parametrize("where", ["weights", "eval"])
def test_no_space_for_what_a_run_leaves_costs_no_step(
    quick, train, drawn, tmp_path, monkeypatch, where
):
    words = (f"--config.eval.data={drawn[1]}", "--config.eval.every_steps=3")

    def full(*_, **__):
        raise types.UserError("cannot write: No space left on device")

    with monkeypatch.context() as patch:
        if where == "eval":
            patch.setattr(protocol, "write", full)
        else:
            patch.setattr(rooms, "save_weights", lambda job: full)
        assert "No space left" in train(*words).one_line()
    done = 3 if where == "eval" else STEPS
    assert _checkpoints(tmp_path / "run") == [done]
    seen = len(quick.rows)
    patch_free = train(*words)
    assert patch_free.code == 0, patch_free.err
    assert len(quick.rows) - seen == STEPS - done


def test_nobody_reads_what_the_run_says_any_more(quick, train, tmp_path, monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

        def isatty(self):
            return False

        def flush(self):
            pass

    def close():
        monkeypatch.setattr(sys, "stderr", Closed())

    quick.before_step = _at(2, close)
    assert train().code == 0
    assert _checkpoints(tmp_path / "run") == [STEPS]


def test_too_little_memory_is_one_line(quick, train, monkeypatch):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes\nat")

    monkeypatch.setattr(state, "create", fail)
    message = train().one_line()
    assert "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes" in message
    assert "model.remat=full" in message


def test_what_is_wrong_with_the_program_keeps_its_traceback(quick, train, monkeypatch):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")

    monkeypatch.setattr(state, "create", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="a bug"):
        train()


def test_a_run_that_stopped_at_a_loss_may_go_on_without_such_steps(
    quick, train, tmp_path, monkeypatch
):
    build = quick.build

    def spoilt(*args):
        run = build(*args)

        def some(now, batch):
            now, output = run(now, batch)
            bad = int(now.step) in (4, 5)
            loss = jnp.float32("nan") if bad else output.terms["loss"]
            return now, output._replace(terms={"loss": loss})

        return some

    monkeypatch.setattr(step, "build", spoilt)
    message = train(EACH).one_line()
    assert "the loss of step 4 is nan" in message
    assert "saved is the state of step 3" in message
    assert _checkpoints(tmp_path / "run") == [2, 3]
    skip = "--config.train.skip_nonfinite_steps="
    assert (
        "one more than train.skip_nonfinite_steps (1) allows" in train(EACH, skip + "1").one_line()
    )
    assert "goes on after step 4" in (ran := train(EACH, skip + "2")).err
    assert ran.code == 0
    assert "left out (2 of at most 2)" in ran.err


def test_a_bucket_s_address_is_no_folder_of_this_name(quick, hnclip, write_config, tmp_path):
    path = write_config(tmp_path / "run_config.py", {"train.steps": STEPS})
    message = hnclip("train", f"--config={path}", "--workdir=gs://bucket/run").one_line()
    assert "gs://bucket/run is an address" in message
    assert "mount the bucket" in message
    assert not pathlib.Path("gs:").exists()


def test_the_profile_of_some_steps_lies_in_the_run_s_folder(quick, train, tmp_path):
    assert train("--config.log.profile_steps=2:3").code == 0
    assert list((tmp_path / "run" / "profile").rglob("*.trace.json.gz"))
    assert "must be two steps, say '10:13'" in train("--config.log.profile_steps=3").one_line()


def test_a_home_that_cannot_be_written_costs_no_run(quick, train, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert train().code == 0
    finally:
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])


def test_the_folder_s_parent_is_a_file(quick, train, tmp_path):
    (tmp_path / "file").touch()
    assert "Not a directory" in train(workdir="file/run").one_line()
    assert pathlib.Path(tmp_path / "file").read_text() == ""
