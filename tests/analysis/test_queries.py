"""Queries by their ranks: counts against every order that ties may take, and who is chosen."""

import itertools

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import queries


def ranked(greater, equal=None, k=1):
    """By the rule for ties, with one right item."""
    greater = np.array(greater)
    equal = np.zeros_like(greater) if equal is None else np.array(equal)
    hits = np.clip((k - greater) / (equal + 1), 0, 1)
    return queries.Ranked(1 + greater + equal / 2, equal, hits)


A = ranked([0, 4, 9, 0, 2, 0, 1], [0, 0, 0, 0, 0, 0, 0])
B = ranked([0, 0, 0, 3, 5, 8, 0], [0, 0, 0, 0, 0, 0, 1])


def test_counts_are_those_of_the_four_fields():
    both, only_a, only_b, neither = queries.counts(A, B)
    assert (both, only_a, only_b, neither) == (1, 2, 2.5, 1.5)
    assert both + only_a == A.hits.sum()
    assert both + only_b == B.hits.sum()


def test_counts_with_ties_are_the_mean_over_all_orders():
    """Two queries; in A the right item is tied with two others, in B with one, k = 2 and 1."""
    a, b = ranked([0, 1], [2, 0], k=2), ranked([0, 0], [1, 3], k=1)
    fields = np.zeros(4)
    for orders_a, orders_b in [(range(3), range(2)), (range(1, 2), range(4))]:
        cases = list(itertools.product(orders_a, orders_b))
        for place_a, place_b in cases:
            found_a, found_b = place_a < 2, place_b < 1
            fields[2 * (not found_a) + (not found_b)] += 1 / len(cases)
    np.testing.assert_allclose(queries.counts(a, b), fields, atol=1e-12)


def test_rescued_are_those_that_only_b_finds_the_largest_gain_first():
    assert queries.choose("rescued", [A, B], 9).tolist() == [2, 1]
    assert queries.choose("rescued", [A, B], 1).tolist() == [2]


def test_lost_are_those_that_only_a_finds_the_largest_loss_first():
    assert queries.choose("lost", [A, B], 9).tolist() == [5, 3]


def test_what_ties_leave_to_chance_is_neither():
    # Query 6: A fails, B has it tied at the first place.
    assert 6 not in queries.choose("rescued", [A, B], 9)
    assert 6 not in queries.choose("lost", [B, A], 9)
    # Nor is it a failure that the other one could rescue.
    with pytest.raises(
        types.UserError, match=r"both find 0\.5, A alone 0, B alone 0\.5, neither 0"
    ):
        queries.choose("rescued", [ranked([0], [1]), ranked([0])], 9)


def test_worst_are_the_largest_ranks_of_a():
    assert queries.choose("worst", [A], 3).tolist() == [2, 1, 4]
    assert queries.choose("worst", [A, B], 9).tolist() == [2, 1, 4, 6, 0, 3, 5]


def test_hardest_are_the_nearest_and_random_is_by_seed():
    near = np.array([0.1, 0.9, 0.3, 0.9, -np.inf, 0.2, 0.8])
    assert queries.choose("hardest", [A], 4, near=near).tolist() == [1, 3, 6, 2]
    lots = [queries.choose("random", [A], 4, seed=seed).tolist() for seed in (0, 0, 1)]
    assert lots[0] == lots[1] != lots[2]
    assert len({*lots[0]}) == 4


def test_if_none_is_of_the_kind_it_says_how_many_are_of_which():
    with pytest.raises(types.UserError) as caught:
        queries.choose("lost", [A, A], 4)
    assert str(caught.value) == (
        "there is no query that A finds and B fails: of 7, both find 3, A alone 0, B alone 0, "
        "neither 4; choose others"
    )
    with pytest.raises(types.UserError, match="A fails and B finds: of 7"):
        queries.choose("rescued", [A, A], 4)


def test_mistakes_are_one_line():
    with pytest.raises(types.UserError, match="'rescued' queries are those of two models"):
        queries.choose("rescued", [A], 4)
    with pytest.raises(types.UserError, match="unknown choice of queries 'wurst'; did you mean"):
        queries.choose("wurst", [A], 4)


def test_those_that_ask_are_the_rows_of_captions_or_pictures():
    owner = np.array([0, 0, 1, 2, 2, 2])
    assert queries.asking(owner, 3, None, "t2i").tolist() == [0, 1, 2, 3, 4, 5]
    assert queries.asking(owner, 3, None, "i2t").tolist() == [0, 1, 2]
    assert queries.asking(owner, 3, (2, 0), "t2i").tolist() == [0, 1, 3, 4, 5]
    assert queries.asking(owner, 3, (2, 0), "i2t").tolist() == [0, 2]


def test_pictures_are_named_by_their_first_caption():
    owner = np.array([0, 0, 1, 2, 2, 2])
    rows = queries.asking(owner, 3, (0, 2), "t2i")
    assert rows[queries.named(owner, "t2i", rows, {"c": 2, "a": 0})].tolist() == [3, 0]
    rows = queries.asking(owner, 3, (0, 2), "i2t")
    assert rows[queries.named(owner, "i2t", rows, {"c": 2, "a": 0})].tolist() == [2, 0]
    for direction in queries.DIRECTIONS:
        rows = queries.asking(owner, 3, (0, 2), direction)
        with pytest.raises(types.UserError, match="picture 'b' is there to be found and does not"):
            queries.named(owner, direction, rows, {"b": 1})


def test_the_table_has_a_line_for_each_direction():
    table = queries.table({"t2i": [A, B], "i2t": [B, A]}, ["A: one", "B: two"], 5)
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert lines[:2] == ["A: one", "B: two"]
    assert lines[2] == "found among the first 5 both only A only B neither queries"
    assert lines[3] == "text to image 1 2 2.5 1.5 7"
    assert lines[4] == "image to text 1 2.5 2 1.5 7"
    alone = queries.table({"t2i": [A]}, ["one"], 1).splitlines()
    alone = [" ".join(line.split()) for line in alone]
    assert alone[1] == "found among the first 1 found not found queries"
    assert alone[2] == "text to image 3 4 7"


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (2.5, "2.5"), (4 / 3, "1.3"), (12345.0, "12,345"), (10, "10")]
)
def test_ranks_are_whole_or_have_one_digit(value, text):
    assert queries.number(value) == text
