"""THE loop: the order of things, what stops it, and what is saved when it stops."""

import json
import math
import os
import pathlib
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import loop, profile, recipe, state, step, stopping


class House:
    """Rooms that write down, in order, how they are called.

    losses, norms: of the steps; broken: rows of a step that are not finite; scores: of the
    evaluations; mistakes: {event: error to raise}.
    """

    def __init__(self, **plan):
        self.events, self.saved, self.lines, self.weights = [], [], [], []
        self.losses, self.norms, self.scores, self.mistakes = {}, {}, {}, {}
        self.broken = {}
        self.latest_step, self.closed = None, False
        self.before_step = lambda number: None
        plan = {"log_every": 1, "eval_every": 0, "save_every": 0, **plan}
        self.plan = loop.Plan(total_steps=plan.pop("total", 4), pairs_per_step=2, **plan)

    def run(self, begun=0, **options):
        rooms = loop.Rooms(
            step=self.step,
            batches=self.batches,
            measure=self.measure,
            compare=self.compare,
            evaluate=self.evaluate,
            save_weights=self.save_weights,
            name_of=lambda row: f"{row} (x{row}.png)",
            checkpoints=self,
            log=self,
            profile=profile.Profile(range(0), pathlib.Path()),
            meta={"list_sha256": "ab"},
        )
        self.progress = loop.Progress(state.TrainState(np.int32(begun), {}, (), None), **options)
        return loop.train(rooms, self.plan, self.progress)

    def _note(self, event):
        self.events.append(event)
        if event in self.mistakes:
            raise self.mistakes.pop(event)

    def batches(self, start):
        try:
            for number in range(start, 99):
                self._note(f"batch {number + 1}")
                yield {"truncated": np.array([True, False]), "number": number}
        finally:
            self.closed = True

    def step(self, now, batch):
        assert batch["number"] == int(now.step)
        number = int(now.step) + 1
        self.before_step(number)
        self._note(f"step {number}")
        loss, norm = self.losses.get(number, 1.0), self.norms.get(number, 1.0)
        broken = np.array([self.broken.get(number, [-1])])
        output = step.StepOutput(
            {"loss": jnp.float32(loss)},
            jnp.float32(norm),
            jnp.float32(1),
            recipe.Seen(None, None, None, None, broken),
        )
        return state.TrainState(np.int32(number), {}, (), None), output

    def compare(self, now, batch):
        assert batch["number"] == int(now.step)
        self._note(f"compare {int(now.step) + 1}")
        return {"gradients/ratio": jnp.float32(2.5)}

    def measure(self, output, number):
        return {
            "train/loss": output.terms["loss"],
            "train/number": number,
            "train/solved_plain": jnp.float32(0.25),
        }

    def evaluate(self, now):
        number = int(now.step)
        self._note(f"evaluate {number}")
        return {"eval/t2i_r@1": self.scores.get(number, 0.0)}

    def save_weights(self, now, note):
        self._note(f"weights {int(now.step)}")
        self.weights.append(note)

    def save(self, now, meta):
        self._note(f"save {int(now.step)}")
        self.saved.append((int(now.step), meta))
        self.latest_step = int(now.step)

    def wait(self):
        pass

    def check(self):
        event = f"check {int(self.progress.state.step)}"
        if event in self.mistakes:
            self._note(event)

    def advance(self, number):
        pass

    def scalars(self, number, values):
        self._note(f"{'log' if 'train/loss' in values else 'recall'} {number}")
        self.lines.append((number, values))


def test_the_order_of_things():
    house = House(total=4, log_every=2, eval_every=2, save_every=2)
    end = house.run()
    assert int(end.step) == 4
    assert house.events == [
        *("batch 1", "step 1"),
        *("batch 2", "step 2", "log 2", "evaluate 2", "recall 2", "save 2"),
        *("batch 3", "step 3"),
        *("batch 4", "step 4", "log 4", "evaluate 4", "recall 4", "save 4", "weights 4"),
    ]
    assert house.saved[0] == (2, {"list_sha256": "ab", "best": None, "skipped": 0})
    assert house.weights == [{"step": 4}]
    assert house.closed


def test_what_is_due_only_at_the_end():
    house = House(total=3, log_every=50)
    house.run()
    assert house.events[-5:] == ["log 3", "evaluate 3", "recall 3", "save 3", "weights 3"]
    assert sum(event.startswith(("log", "evaluate", "save")) for event in house.events) == 3


def test_a_run_goes_on_behind_the_step_it_is_given():
    house = House(total=4)
    house.run(begun=2)
    assert house.events[0] == "batch 3"
    assert [number for number, _ in house.lines] == [3, 4, 4]


def test_a_logged_line_holds_the_step_and_the_share_of_cut_captions():
    house = House(total=2)
    house.run()
    number, values = house.lines[1]
    assert (number, values["train/number"], values["data/truncated_share"]) == (2, 1, 0.5)
    assert values["time/pairs_per_s"] == pytest.approx(2 / values["time/step_s"])
    assert 0 <= values["data/wait_s"] < 1
    json.dumps(values)


def test_gradients_are_compared_where_their_step_begins():
    house = House(total=5, log_every=4, gradients_every=2)
    house.run()
    order = [event for event in house.events if event.split()[0] in ("compare", "step")]
    assert order == [
        "step 1", "compare 2", "step 2", "step 3", "compare 4", "step 4", "step 5",
    ]  # fmt: skip
    lines = dict(house.lines)
    compared = {"gradients/ratio": 2.5, "gradients/solved": 0.25}
    assert lines[2] == compared
    assert lines[4].items() > compared.items()
    assert lines[4]["train/number"] == 3
    assert lines[4]["time/gradients_s"] > 0
    assert not any(name.startswith("gradients/") for name in lines[5])
    assert 0 <= lines[4]["time/gradients_s"] < lines[4]["time/step_s"]


def test_no_gradients_are_compared_unless_asked_for():
    house = House(total=5)
    house.run()
    assert not any("compare" in event for event in house.events)
    assert not any("gradients" in name for _, values in house.lines for name in values)


def test_the_best_weights_are_kept():
    house = House(total=4, eval_every=1, save_every=1, best_metric="eval/t2i_r@1")
    house.scores = {1: 10.0, 2: 30.0, 3: 20.0, 4: 30.0}
    house.run()
    assert [note["step"] for note in house.weights] == [1, 2]
    assert house.weights[-1]["eval/t2i_r@1"] == 30.0
    assert [meta["best"] for _, meta in house.saved] == [10.0, 30.0, 30.0, 30.0]
    again = House(total=5, eval_every=1, best_metric="eval/t2i_r@1")
    again.scores = {5: 25.0}
    again.run(begun=4, best=30.0)
    assert again.weights == []


@pytest.mark.parametrize("which", ["losses", "norms"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("due", ["log", "save", "eval"])
def test_a_loss_that_is_not_finite_is_never_saved(which, value, due):
    every = {"log_every": 50, "save_every": 2, "eval_every": 50} | {f"{due}_every": 1}
    house = House(total=4, **every)
    setattr(house, which, {3: value})
    name = {"losses": "loss", "norms": "gradient norm"}[which]
    with pytest.raises(types.UserError) as caught:
        house.run()
    assert f"the {name} of step 3 is {value} (" in str(caught.value)
    assert "; saved is the state of step 2" in str(caught.value)
    assert "optim.lr" in str(caught.value)
    assert house.saved[-1][0] == 2
    assert ("log 3" in house.events) == (due == "log")
    assert "evaluate 3" not in house.events


def test_the_first_step_and_the_rows_that_are_not_finite_are_told():
    house = House(total=9, log_every=8)
    house.losses = {3: math.nan, 4: math.nan, 5: math.nan}
    house.broken = {3: [-1, 7, 2, -1], 4: [0, 1, 2, 3]}
    with pytest.raises(types.UserError) as caught:
        house.run()
    assert "the loss of step 3 is nan (rows 2 (x2.png), 7 (x7.png) are not finite)" in str(
        caught.value
    )
    assert "train.skip_nonfinite_steps=10" in str(caught.value)
    assert not house.saved


def test_rows_may_all_be_finite_where_the_gradient_is_not():
    house = House()
    house.norms = {2: math.inf}
    with pytest.raises(types.UserError, match=r"norm of step 2 is inf \(the embeddings of all its"):
        house.run()


def test_steps_are_left_out_when_told_counted_and_limited(capsys):
    house = House(total=9, log_every=3, save_every=3, skip_limit=2)
    house.losses, house.norms = {2: math.nan, 8: math.inf}, {4: math.nan}
    house.broken = {2: [3]}
    with pytest.raises(types.UserError) as caught:
        house.run()
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "the loss of step 2 is nan (rows 3 (x3.png) are not finite); left out (1 of at most 2)"
    )
    assert second.startswith("the gradient norm of step 4 is nan")
    assert "the loss of step 8 is inf" in str(caught.value)
    assert "one more than train.skip_nonfinite_steps (2) allows" in str(caught.value)
    assert [(step, meta["skipped"]) for step, meta in house.saved] == [(3, 1), (6, 2)]


def test_steps_left_out_before_the_run_went_on_count():
    house = House(total=9, skip_limit=2)
    house.losses = {5: math.nan, 6: math.nan}
    with pytest.raises(types.UserError, match="step 6 is nan"):
        house.run(begun=4, skipped=1)


def test_a_save_that_failed_ends_the_run_at_the_next_step():
    house = House(total=9, save_every=3)
    house.mistakes = {"check 4": types.UserError("the last checkpoint could not be saved")}
    with pytest.raises(types.UserError, match="could not be saved"):
        house.run()
    assert house.events[-1] == "check 4"


def test_a_first_loss_that_is_not_finite():
    house = House()
    house.losses = {1: math.nan}
    with pytest.raises(types.UserError, match="nothing was saved yet"):
        house.run()
    assert not house.saved


@pytest.mark.parametrize(
    ("event", "step", "steps_done"),
    [("batch 3", 2, 2), ("evaluate 2", 2, 2), ("batch 1", 0, 0)],
)
def test_a_mistake_saves_the_state_before_it(event, step, steps_done):
    house = House(total=4, eval_every=2)
    house.mistakes = {event: types.UserError("cannot decode picture x.png")}
    with pytest.raises(types.UserError, match="cannot decode picture"):
        house.run()
    assert [number for number, _ in house.saved] == [step]
    assert sum(event.startswith("step") for event in house.events) == steps_done
    assert house.closed


def test_an_evaluation_that_is_owed_comes_first():
    house = House(total=4, eval_every=2, best_metric="eval/t2i_r@1")
    house.scores = {2: 10.0}
    house.run(begun=2, owed=True)
    assert house.events[:4] == ["evaluate 2", "recall 2", "weights 2", "batch 3"]
    assert house.saved[-1][1]["best"] == 10.0
    house = House(total=4, best_metric="eval/t2i_r@1")
    house.run(begun=4, owed=True)
    assert house.events == ["evaluate 4", "recall 4", "weights 4"]


@pytest.mark.parametrize(
    ("number", "error", "code"),
    [(signal.SIGINT, stopping.Interrupted, 130), (signal.SIGTERM, stopping.Preempted, 75)],
)
def test_a_signal_ends_the_run_after_the_step_saved_at_once(number, error, code):
    before = signal.getsignal(number)
    house = House(total=4, eval_every=2)
    house.before_step = lambda at: at == 2 and os.kill(os.getpid(), number)
    with pytest.raises(error, match="stopped after step 2 of 4, which is saved") as caught:
        house.run()
    assert caught.value.exit_code == code
    # No evaluation before it: whoever needs the machine does not wait. It is owed by the next run.
    assert house.events[-3:] == ["step 2", "log 2", "save 2"]
    assert signal.getsignal(number) is before
    assert house.closed


def test_a_signal_in_the_last_step_changes_nothing():
    house = House(total=4)
    house.before_step = lambda at: at == 4 and signal.raise_signal(signal.SIGINT)
    assert int(house.run().step) == 4
    assert house.events[-1] == "weights 4"


def test_a_second_ctrl_c_does_not_wait_for_the_step():
    house = House()

    def twice(at):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    house.before_step = twice
    with pytest.raises(KeyboardInterrupt):
        house.run()
    assert not house.saved
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_outside_the_main_thread_signals_are_left_alone():
    house, ends = House(), []
    thread = threading.Thread(target=lambda: ends.append(house.run()))
    thread.start()
    thread.join()
    assert int(ends[0].step) == 4


@pytest.fixture
def among_two(monkeypatch):
    """This process is one of two; the other has nothing to say. The flags that were shown it."""
    flags = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(mesh_lib, "any_process", lambda flag: flags.append(flag) or flag)
    return flags


def test_several_processes_stop_where_they_log(among_two):
    house = House(total=6, log_every=2)
    house.before_step = lambda at: at == 3 and signal.raise_signal(signal.SIGINT)
    with pytest.raises(stopping.Interrupted, match="stopped after step 4 of 6"):
        house.run()
    assert among_two == [False, True]  # After the steps 2 and 4, and never in between.
    assert [number for number, _ in house.saved] == [4]


def test_one_of_several_processes_does_not_save_alone(among_two):
    house = House(total=6)
    house.mistakes = {"batch 3": types.UserError("cannot decode picture x.png")}
    with pytest.raises(types.UserError, match="cannot decode picture"):
        house.run()
    assert not house.saved
