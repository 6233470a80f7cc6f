"""What the machine does to a run: a full disk, a second Ctrl-C. One line, and nothing is lost."""

import errno
import json
import pathlib
import resource

import jax
import pytest
from orbax.checkpoint import v1 as ocp

STEPS = 6


def checkpoints(workdir):
    """Returns the steps whose checkpoints are complete."""
    # One that is being written has a longer name, and for a moment this file.
    names = [path.parent.name for path in workdir.glob("checkpoints/*/commit_success.txt")]
    return sorted(int(name) for name in names if name.isdigit())


@pytest.mark.parametrize("where", ["at once", "in the background"])
def test_no_space_for_a_checkpoint(quick, train, tmp_path, monkeypatch, where):
    assert train("--stop_after=2").code == 0

    def fail(*_, **__):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise ValueError("the save failed") from error

    class Failing:
        result = fail

    with monkeypatch.context() as patch:
        patch.setattr(
            ocp.training.Checkpointer,
            "save_checkpointables_async",
            fail if where == "at once" else lambda *_, **__: Failing(),
        )
        message = train().one_line()
    assert "no space left" in message
    assert "make room" in message
    assert checkpoints(tmp_path / "run") == [2]
    assert train().code == 0
    assert checkpoints(tmp_path / "run") == [2, STEPS]


def test_the_file_system_itself_refuses_a_checkpoint(quick, train, tmp_path, caplog):
    # As much as a checkpoint needs and noise does not compress; all other files are smaller.
    quick.weight = jax.random.normal(jax.random.key(0), 2**18)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, unlimited[1]))
    try:
        message = train("--config.train.save_every_steps=3").one_line()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert "file too large" in message
    assert not caplog.records  # Orbax would log a traceback from each of its threads.
    assert checkpoints(tmp_path / "run") == []
    assert train("--config.train.save_every_steps=3").code == 0
    assert checkpoints(tmp_path / "run") == [3, STEPS]


class _Full:
    """A file on a full disk."""

    def __init__(self, name):
        self.name = str(name)

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self):
        pass


def test_no_space_for_the_metrics(quick, train, tmp_path, monkeypatch):
    assert train("--stop_after=2").code == 0
    real = pathlib.Path.open

    def full(path, mode="r", **kwargs):
        return _Full(path) if mode == "a" else real(path, mode, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "open", full)
        message = train().one_line()
    assert "metrics.jsonl: No space left on device" in message
    assert train().code == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, STEPS + 1))


def test_no_space_for_the_settings(quick, train, tmp_path, monkeypatch):
    assert train("--stop_after=2").code == 0
    before = (tmp_path / "run" / "config.json").read_text()

    def full(path, text):
        path.open("w").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "write_text", full)
        assert "No space left on device" in train().one_line()
    assert (tmp_path / "run" / "config.json").read_text() == before
    assert train().code == 0


def test_the_second_ctrl_c_stops_at_once(quick, train, tmp_path):
    def stop(number):
        raise KeyboardInterrupt

    quick.before_step = stop
    assert train().one_line(code=130) == (
        "hnclip train: stopped at once; what was saved before is untouched"
    )
