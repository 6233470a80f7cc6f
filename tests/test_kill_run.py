"""The script that kills runs: where it aims, what it hit, and that it sees what goes wrong."""

import collections
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.training import checkpoint, folder, state
from tests.kill_player import EVERY, Player
from tools import kill_compare, kill_moments, kill_run, kill_trial


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Kills runs of a player: (fault, kills, processes) -> Tally."""
    monkeypatch.setattr(kill_trial.kill_hosts, "Hosts", Player)
    monkeypatch.setattr(kill_trial.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(
        kill_compare,
        "arrays",
        lambda run, step: {
            "a": np.float64((run.checkpoints / f"{step}" / "_CHECKPOINT_METADATA").read_text())
        },
    )

    def kill(fault="", kills=40, count=1):
        monkeypatch.setattr(Player, "fault", fault)
        trial = kill_trial.Trial(["train"], count, tmp_path / "out", 1.0)
        rng = np.random.default_rng(0)
        while trial.tally.kills < kills and len(trial.tally.wrong) < 20:
            trial.run(3, rng)
        return trial.tally

    return kill


def test_a_run_without_a_fault(play):
    tally = play()
    assert tally.wrong == []
    assert tally.kills >= 40
    assert len(tally.lost) == tally.kills
    assert 0 < max(tally.lost) <= EVERY
    assert min(tally.places[place] for place in ("start-up", "steps", "save", "end")) > 0
    assert not tally.left_codes


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("forgets", "began anew beside the checkpoint of step"),
        ("older", "went on after step"),
        ("late", "the last checkpoint is of step 3"),
        ("bits", "weights/: model"),
        ("bits", "checkpoints/14: a (1 arrays)"),
        ("bits", ": checkpoint 14: a, 1 arrays"),
        ("doubled", "metrics.jsonl: from line"),
        ("fails", "ended with [2]: words"),
    ],
)
def test_a_fault_is_seen(play, fault, said):
    wrong = play(fault).wrong
    assert any(said in line for line in wrong), wrong


def test_processes_that_are_left_must_end(play, tmp_path):
    tally = play("hangs", 20, 2)
    assert any("process 1 still ran" in line for line in tally.wrong)
    assert any("process 0 still ran" in line for line in tally.wrong)


def test_how_processes_that_are_left_have_ended(play):
    tally = play("", 20, 2)
    assert tally.wrong == []
    assert set(tally.left_codes) == {75}
    assert 0 < tally.left_codes[75] == len(tally.left_s) < tally.kills
    shown = kill_run.table({2: tally})
    assert f"| 2 | {tally.kills} | {tally.places['start-up']} | {tally.places['steps']} |" in shown
    assert f"exit codes 75: {tally.left_codes[75]}" in shown


def test_moments_are_spread_and_come_from_the_seed():
    def some(seed):
        rng = np.random.default_rng(seed)
        return [(kill_moments.draw(rng), tuple(kill_moments.victims(rng, 2))) for _ in range(200)]

    assert some(1) == some(1) != some(2)
    aims = collections.Counter(moment.aim for moment, _ in some(1))
    assert all(0.5 < aims[aim] / (200 * share) < 2 for aim, share in kill_moments.AIMS.items())
    assert {who for _, who in some(1)} == {(0,), (1,), (0, 1)}
    assert np.ptp([moment.event for moment, _ in some(1)]) > 0.9
    assert np.ptp([moment.delay for moment, _ in some(1)]) > 0.9
    assert kill_moments.victims(np.random.default_rng(0), 1) == [0]


class Seen:
    """Stands for a Watch: of step 6 the checkpoint is there; then all goes on by one per look."""

    first, looks = 6, 0

    def logged(self):
        self.looks += 1
        return self.first + self.looks

    def saves(self):
        self.looks += 1
        return self.looks


@pytest.mark.parametrize(
    ("aim", "event", "looks"),
    [
        ("start-up", 0.9, 0),
        ("steps", 0.0, 1),
        ("steps", 0.5, 5),
        ("steps", 0.999, 8),
        ("save", 0.0, 1),
        ("save", 0.999, 3),
        ("end", 0.3, 8),
    ],
)
def test_the_moment_comes_with_what_it_aims_at(monkeypatch, aim, event, looks):
    slept, seen = [], Seen()
    monkeypatch.setattr(kill_moments.time, "sleep", slept.append)
    lengths = {name: 100.0 * n for n, name in enumerate(kill_moments.AIMS, 1)}
    moment = kill_moments.Moment(aim, event, 0.25)
    assert kill_moments.wait_for(moment, seen, lengths, (14, 3), lambda: True)
    assert (seen.looks, slept[-1]) == (looks, lengths[aim] / 4)
    assert not kill_moments.wait_for(moment, seen, lengths, (14, 3), lambda: False)


@pytest.fixture
def run(tmp_path):
    """A run folder with checkpoints 3 and 6, and metrics up to step 8."""
    made = folder.RunFolder(tmp_path / "run")
    for step in (3, 6):
        (made.checkpoints / str(step)).mkdir(parents=True)
        (made.checkpoints / str(step) / "_CHECKPOINT_METADATA").touch()
    lines = [{"step": step, "train/loss": 1.0, "time/s": step} for step in range(1, 9)]
    made.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9')
    return made


def test_what_a_start_has_done_so_far(run):
    watch = kill_moments.Watch(run)
    assert (watch.first, watch.logged(), watch.saves()) == (6, 0, 0)
    kept = run.path / "kept"
    kept.write_text("".join(run.metrics.read_text().splitlines(keepends=True)[:6]))
    os.replace(kept, run.metrics)
    assert watch.logged() == 0
    with run.metrics.open("a") as file:
        file.write('{"step": 7}\n')
    assert watch.logged() == 7
    (run.checkpoints / "9.orbax-checkpoint-tmp").mkdir()
    assert watch.saves() == 1
    (run.checkpoints / "9.orbax-checkpoint-tmp").rename(run.checkpoints / "9")
    assert watch.saves() == 1


def test_the_first_start_of_a_run(tmp_path):
    run = folder.RunFolder(tmp_path / "new")
    watch = kill_moments.Watch(run)
    assert (watch.first, watch.logged(), watch.saves()) == (0, 0, 0)
    assert kill_compare.lines(run) == []
    run.path.mkdir()
    run.metrics.write_text('{"step": 1}\n')
    assert watch.logged() == 1


@pytest.mark.parametrize(
    ("logged", "complete", "due", "place"),
    [
        (0, False, False, "start-up"),
        (8, False, False, "steps"),
        (8, False, True, "evaluation"),
        (14, False, True, "evaluation"),
        (14, False, False, "end"),
        (0, True, False, "end"),
    ],
)
def test_where_a_kill_has_hit(run, logged, complete, due, place):
    assert kill_moments.place(run, logged, complete, 14, due) == place
    (run.checkpoints / "3" / "_CHECKPOINT_METADATA").unlink()
    assert kill_moments.place(run, logged, complete, 14, due) == "deletion"
    assert kill_compare.committed(run) == [6]
    (run.checkpoints / "9.orbax-checkpoint-tmp").mkdir()
    assert kill_moments.place(run, logged, complete, 14, due) == "save"
    assert kill_compare.committed(run) == [6]


def test_a_line_that_is_cut_off_is_no_line(run):
    assert kill_compare.last_logged(run) == 8


def test_every_bit_counts():
    one = {"a": np.float32([0.0, np.nan]), "b": np.int32([1])}
    assert kill_compare.differing(one, {name: array.copy() for name, array in one.items()}) == []
    for other in (
        np.float32([-0.0, np.nan]),
        np.float64([0.0, np.nan]),
        np.float32([[0.0, np.nan]]),
        np.float32([np.nextafter(np.float32(0), np.float32(1)), np.nan]),
    ):
        assert kill_compare.differing(one, {**one, "a": other}) == ["a"]
    assert kill_compare.differing(one, {"a": one["a"], "c": one["b"]}) == ["b", "c"]


def test_the_arrays_of_a_checkpoint(tmp_path):
    run = folder.RunFolder(tmp_path)
    mesh = jax.make_mesh((4,), ("fsdp",))
    split = jax.NamedSharding(mesh, jax.P("fsdp"))
    wide = jax.device_put(jnp.arange(8.0), split)
    now = state.TrainState(jnp.int32(7), {"wide": wide}, (jnp.float32(2.5),), None)
    with checkpoint.Checkpoints(run.checkpoints, 1) as checkpoints:
        checkpoints.save(now, {})
    found = kill_compare.arrays(run, 7)
    assert sorted(float(array.sum()) for array in found.values()) == [2.5, 7.0, 28.0]
    again = kill_compare.arrays(run, 7)
    assert kill_compare.differing(found, again) == []


def test_kills_are_shared_out():
    assert kill_run.shares([50], [1, 2]) == [25, 25]
    assert kill_run.shares([7], [1, 2]) == [4, 3]
    assert kill_run.shares([30, 20], [1, 2]) == [30, 20]
    with pytest.raises(types.UserError, match="--kills has 3 numbers, --processes 2"):
        kill_run.shares([1, 2, 3], [1, 2])
