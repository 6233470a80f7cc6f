"""What a run wrote down, and which runs are of one kind."""

import math

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import history
from tests import fake_runs


def test_a_series_stands_where_it_was_written():
    lines = [{"step": 2, "a": 1}, {"step": 4, "b": 9.0}, {"step": 6, "a": 2.5, "b": 8.0}]
    one = fake_runs.history("run", lines)
    steps, values = one.series("a")
    assert (steps.dtype, values.dtype) == (np.int64, np.float64)
    assert (steps.tolist(), values.tolist()) == ([2, 6], [1.0, 2.5])
    assert one.series("b")[0].tolist() == [4, 6]


def test_a_key_that_was_never_written_is_empty():
    steps, values = fake_runs.history("run", [{"step": 1, "a": 1.0}]).series("b")
    assert (steps.shape, values.shape) == ((0,), (0,))
    assert (steps.dtype, values.dtype) == (np.int64, np.float64)


def test_text_for_what_json_lacks_is_read():
    lines = [{"step": n, "a": text} for n, text in enumerate(("nan", "inf", "-inf", "1e-3"))]
    values = fake_runs.history("run", lines).series("a")[1]
    assert math.isnan(values[0])
    assert values[1:].tolist() == [math.inf, -math.inf, 0.001]


@pytest.mark.parametrize("value", ["much", None, [1.0], {}])
def test_what_is_no_number_is_named(value):
    lines = [{"step": 1, "a": 1.0}, {"step": 7, "a": value}]
    with pytest.raises(types.UserError, match=r"run: a of step 7 is .* must be a number"):
        fake_runs.history("run", lines).series("a")


def test_of_a_step_written_twice_the_later_line_counts_and_steps_rise():
    lines = [{"step": 5, "a": 1}, {"step": 10, "a": 2}, {"step": 5, "a": 3}, {"step": 1, "a": 4}]
    steps, values = fake_runs.history("run", lines).series("a")
    assert (steps.tolist(), values.tolist()) == ([1, 5, 10], [4.0, 3.0, 2.0])


def test_epochs():
    steps = np.array([5, 10, 15])
    assert fake_runs.history("run", per_epoch=10).epochs(steps).tolist() == [0.5, 1.0, 1.5]
    assert np.isnan(fake_runs.history("run").epochs(steps)).all()


def names(kinds):
    return {label: [one.name for one in group] for label, group in kinds.items()}


def test_runs_of_one_kind_differ_in_their_seed_alone():
    runs = [
        fake_runs.history("plain_1", train__seed=1, loss__gamma=0.0),
        fake_runs.history("hn_1", train__seed=1),
        fake_runs.history("plain_2", train__seed=2, loss__gamma=0.0),
        fake_runs.history("hn_2", train__seed=2),
    ]
    assert names(history.kinds(runs)) == {
        "loss.gamma=0.0": ["plain_1", "plain_2"],
        "loss.gamma=0.5": ["hn_1", "hn_2"],
    }


def test_a_label_names_every_setting_that_tells_kinds_apart():
    runs = [
        fake_runs.history("a"),
        fake_runs.history("b", loss__gamma=0.25),
        fake_runs.history("c", optim__lr=1e-5),
    ]
    lr = runs[0].settings.optim.lr
    assert list(history.kinds(runs)) == [
        f"loss.gamma=0.5, optim.lr={lr}",
        f"loss.gamma=0.25, optim.lr={lr}",
        "loss.gamma=0.5, optim.lr=1e-05",
    ]


def test_what_changes_no_number_makes_no_kind():
    free = {
        "train__seed": 9,
        "log__every_steps": 3,
        "parallel__fsdp": 2,
        "eval__batch_size": 7,
        "data__workers": 2,
        "data__image_root": "elsewhere",
        "loss__block_rows": 4,
        "train__save_every_steps": 10,
        "train__keep_checkpoints": 5,
        "train__best_metric": "eval/t2i_r@1",
        "eval__data": "list.json",
    }
    runs = [fake_runs.history("a"), fake_runs.history("b", **free)]
    assert names(history.kinds(runs)) == {"a": ["a", "b"]}


def test_more_settings_may_differ_when_asked():
    runs = [fake_runs.history("a"), fake_runs.history("b", data__fraction=0.5)]
    assert len(history.kinds(runs)) == 2
    assert names(history.kinds(runs, also_any=("data.fraction",))) == {"a": ["a", "b"]}


def test_the_users_labels_part_runs_and_name_them():
    runs = [
        fake_runs.history("a", label="first"),
        fake_runs.history("b", label="second"),
        fake_runs.history("c", label="first", train__seed=2),
        fake_runs.history("d", loss__gamma=0.0),
    ]
    assert names(history.kinds(runs)) == {
        "first": ["a", "c"],
        "second": ["b"],
        "loss.gamma=0.0": ["d"],
    }


def test_one_label_for_two_kinds_is_a_mistake():
    runs = [
        fake_runs.history("a", label="mine"),
        fake_runs.history("b", label="mine", loss__gamma=0.0),
    ]
    expected = r"a and b are both called 'mine', but differ in loss.gamma \(0.5, 0.0\); give each"
    with pytest.raises(types.UserError, match=expected):
        history.kinds(runs)


def test_a_label_that_is_a_name_already_is_a_mistake():
    runs = [fake_runs.history("a", label="b"), fake_runs.history("b")]
    with pytest.raises(types.UserError, match="both called 'b', but differ in their labels"):
        history.kinds(runs)


def test_no_runs_are_no_kinds():
    assert history.kinds([]) == {}
