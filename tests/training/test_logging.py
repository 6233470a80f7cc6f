"""What a run writes down: JSON lines that survive a kill, TensorBoard, lines for people."""

import io
import json
import math
import re
import struct
import sys

import jax
import pytest

from hnclip_jax import types
from hnclip_jax.training import folder, logging

LINES = ['{"step": 1, "train/loss": 3.0}', '{"step": 2, "train/loss": 2.0}', '{"step": 2, "a": 1}']


@pytest.fixture
def path(tmp_path):
    """A metrics.jsonl of two steps."""
    found = tmp_path / "metrics.jsonl"
    found.write_text("".join(line + "\n" for line in LINES))
    return found


def _go_on(path, start_step):
    lines = logging.JsonLines(path, start_step)
    lines.scalars(start_step + 1, {"train/loss": 1.0})
    lines.close()
    return path.read_text().splitlines()


@pytest.mark.parametrize("start_step", [0, 1, 2, 9])
def test_lines_behind_the_step_to_go_on_from_are_dropped(path, start_step):
    kept = [line for line in LINES if json.loads(line)["step"] <= start_step]
    new = json.dumps({"step": start_step + 1, "train/loss": 1.0})
    assert _go_on(path, start_step) == [*kept, new]


@pytest.mark.parametrize("broken", ['{"step": 3, "train/lo', '{"ste', "", "\x00\x00"])
def test_a_line_that_broke_off_is_dropped(path, broken):
    path.write_text(path.read_text() + broken)
    assert _go_on(path, 5)[:-1] == LINES


def test_a_last_line_without_its_end_is_kept_whole(path):
    path.write_text(path.read_text().rstrip("\n"))
    assert _go_on(path, 5)[:-1] == LINES


def test_what_json_has_no_number_for_is_text(tmp_path):
    lines = logging.JsonLines(tmp_path / "metrics.jsonl", 0)
    lines.scalars(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5})

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    # Read before it is closed: each line is there as soon as it is written.
    found = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    lines.close()
    assert found == {"step": 1, "a": "nan", "b": "inf", "c": "-inf", "d": 0.5}
    assert math.isnan(float(found["a"]))


def _events(path):
    """The events of a TensorBoard file: records of length, checksum, bytes, checksum."""
    from tensorboardX.proto import event_pb2

    content, place = path.read_bytes(), 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield event_pb2.Event.FromString(content[place + 12 : place + 12 + length])
        place += 16 + length


def test_tensorboard_gets_the_same_numbers(tmp_path):
    run = logging.Run(folder.RunFolder(tmp_path), 0, 10, tensorboard=True)
    run.scalars(5, {"train/loss": 0.25})
    run.scalars(6, {"train/loss": 0.125, "eval/t2i_r@1": 50.0})
    run.close()
    (events,) = tmp_path.glob("events.*")
    found = [
        (event.step, value.tag, value.simple_value)
        for event in _events(events)
        for value in event.summary.value
    ]
    # TensorBoard allows no "@" in a name.
    assert [(step, tag.replace("@", "_"), value) for step, tag, value in found] == [
        (5, "train/loss", 0.25),
        (6, "train/loss", 0.125),
        (6, "eval/t2i_r_1", 50.0),
    ]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_tensorboard_that_is_not_installed_says_how(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(types.UserError, match=r"pip install 'hnclip_jax\[tensorboard\]'"):
        logging.TensorBoard(tmp_path, 0)


def test_people_see_the_numbers_that_matter(tmp_path, capsys):
    run = logging.Run(folder.RunFolder(tmp_path), 0, 10, tensorboard=False)
    run.advance(3)
    run.scalars(3, {"train/loss": 1.25, "train/g_std": 7.0, "train/boost_share": 0.5})
    run.close()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "step 3/10  loss 1.2500  boost 50%\n"


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_bar_keeps_the_latest_loss_and_recall(tmp_path, monkeypatch):
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run = logging.Run(folder.RunFolder(tmp_path), 0, 10, tensorboard=False)
    run.scalars(4, {"eval/t2i_r@1": 40.0})
    run.advance(5)
    run.scalars(5, {"train/loss": 1.25, "train/boost_share": -1e-9})
    run.close()
    lines = re.split("[\r\n]", screen.getvalue())
    assert "step 5/10  loss 1.2500  boost 0%" in lines
    bar = [line for line in lines if "5/10 [" in line][-1]
    assert "50%" in bar
    assert "loss 1.2500  boost 0%  T2I R@1 40.0" in bar


def test_other_processes_than_the_first_swallow_everything(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    run = logging.Run(folder.RunFolder(tmp_path), 0, 10, tensorboard=True)
    run.advance(1)
    run.scalars(1, {"train/loss": 1.0})
    run.close()
    logging.say("hello")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_plain_line_where_there_is_no_terminal(capsys):
    progress = logging.Progress("embedding", "row")
    for done in (500, 1000, 1500):
        progress(done, 1500)
    progress.close()
    assert capsys.readouterr().err == "embedding: 1,500 of 1,500 rows\n"
