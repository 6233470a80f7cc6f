"""Differences between processes in words."""

import pytest

from hnclip_jax.parallel import differing


@pytest.mark.parametrize(
    ("who", "words"),
    [([3], "process 3"), ([2, 0, 1], "processes 0-2"), ([7, 0, 1, 5], "processes 0-1, 5, 7")],
)
def test_numbers_are_drawn_together(who, words):
    assert differing.processes(who) == words


def test_each_item_is_told_with_who_has_what():
    facts = {0: {"a": "1", "b": "x"}, 1: {"a": "1", "b": "y"}, 2: {"a": "1", "b": "x", "c": "z"}}
    assert differing.lines(facts) == [
        "b is 'x' on processes 0, 2, 'y' on process 1",
        "c is not there on processes 0-1, 'z' on process 2",
    ]
    assert differing.lines({0: {"a": "1"}, 1: {"a": "1"}}) == []


def test_many_values_are_cut_short():
    (line,) = differing.lines({index: {"a": str(index)} for index in range(9)})
    assert (
        line == "a is '0' on process 0, '1' on process 1, '2' on process 2, '3' on process 3, ..."
    )
