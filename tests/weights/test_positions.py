"""Tables of positions: stretched, exchanged and resized, against loops and torch's own resize."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from hnclip_jax.weights import positions

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def table(rows, width, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(dtype)


def stretched(old):
    """The rule, row by row and number by number."""
    old, width = np.asarray(old, np.float64), old.shape[1]
    new = np.full((248, width), np.nan)
    for column in range(width):
        for row in range(20):
            new[row, column] = old[row, column]
        for i in range(56):
            for r in range(4):
                left, right = old[20 + i, column], old[21 + i, column]
                new[20 + 4 * i + r, column] = ((4 - r) * left + r * right) / 4
        for r in range(4):
            new[244 + r, column] = old[76, column] + r * (old[76, column] - old[75, column]) / 4
    assert np.isfinite(new).all()
    return new


def test_stretched_rows_follow_the_rule():
    old = table(77, 5)
    np.testing.assert_allclose(positions.stretch(old), stretched(old), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", TYPES[:3])
def test_a_type_is_rounded_to_once(dtype):
    old = table(77, 5, dtype)
    new = positions.stretch(old)
    assert (new.dtype, new.shape) == (np.dtype(dtype), (248, 5))
    np.testing.assert_array_equal(new, stretched(old).astype(dtype))
    np.testing.assert_array_equal(new[:20], old[:20])
    # Every old row is still there: each fourth new one.
    np.testing.assert_array_equal(new[20::4], old[20:])


def test_some_rows_by_hand():
    squares = np.arange(77.0)[:, None] ** 2
    new = positions.stretch(squares)[:, 0]
    assert new[:21].tolist() == [row**2 for row in range(21)]
    # 20 and 21 squared are 400 and 441: a quarter of the way is 10.25.
    assert new[20:25].tolist() == [400, 410.25, 420.5, 430.75, 441]
    # 75 and 76 squared are 5625 and 5776; beyond the last row it goes on by a quarter of 151.
    assert new[240:].tolist() == [5625, 5662.75, 5700.5, 5738.25, 5776, 5813.75, 5851.5, 5889.25]


def test_a_straight_line_stays_one_beyond_its_old_end():
    new = positions.stretch(np.arange(77.0)[:, None])[:, 0]
    wanted = [*range(20), *(20 + i / 4 for i in range(228))]
    np.testing.assert_allclose(new, wanted, rtol=1e-15)
    assert new[-1] == 76.75


def test_the_tables_given_are_left_alone():
    for call in (
        positions.stretch,
        lambda given: positions.exchange_tails(given, given + 1),
        lambda given: positions.resize_grid(given[:65], 5),
    ):
        old = table(77, 3)
        call(old)
        np.testing.assert_array_equal(old, table(77, 3))


@pytest.mark.parametrize("rows", [248, 77, 20, 7])
def test_exchanging_twice_changes_nothing(rows):
    first, second = table(rows, 4, np.float32, 1), table(rows, 4, np.float32, 2)
    once = positions.exchange_tails(first, second)
    assert [half.shape for half in once] == [first.shape, second.shape]
    for got, wanted in zip(positions.exchange_tails(*once), (first, second), strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, wanted)


def test_twenty_rows_of_the_first_are_read_and_the_rest_of_the_second():
    first = np.arange(248)[:, None] + 0.25
    second = np.arange(248)[:, None] + 0.75
    read, never = (half[:, 0].tolist() for half in positions.exchange_tails(first, second))
    assert read == [*(row + 0.25 for row in range(20)), *(row + 0.75 for row in range(20, 248))]
    assert never == [*(row + 0.75 for row in range(20)), *(row + 0.25 for row in range(20, 248))]


@pytest.mark.parametrize(
    ("one", "other"), [((248, 4), (77, 4)), ((248, 4), (248, 5)), ((248,), (248,))]
)
def test_tables_of_two_shapes_are_no_pair(one, other):
    with pytest.raises(ValueError, match="need the same") as caught:
        positions.exchange_tails(np.zeros(one), np.zeros(other))
    assert f"have shapes {one} and {other}" in str(caught.value)


def resized(old, size):
    """torch's own bicubic resize with antialiasing, in float64."""
    old = torch.from_numpy(np.asarray(old, np.float64))
    edge = math.isqrt(len(old) - 1)
    grid = old[1:].T.reshape(1, -1, edge, edge)
    grid = torch.nn.functional.interpolate(
        grid, size=(size, size), mode="bicubic", antialias=True, align_corners=False
    )
    return torch.cat([old[:1], grid.flatten(2)[0].T]).numpy()


SIZES = [(16, 24), (24, 16), (7, 12), (12, 7), (14, 9), (16, 37), (37, 16), (3, 2), (2, 7), (5, 1)]


@pytest.mark.parametrize(("old", "new"), [*SIZES, (1, 4)])
def test_a_grid_is_resized_as_torch_does(old, new):
    given = table(1 + old * old, 6)
    got = positions.resize_grid(given, new)
    np.testing.assert_allclose(got, resized(given, new), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(got[0], given[0])


def test_rows_and_columns_keep_their_sides():
    y, x = np.indices((16, 16)).reshape(2, 256)
    grid = np.stack([y, x], axis=1).astype(np.float64)
    given = np.concatenate([np.full((1, 2), -1.0), grid])
    y, x = positions.resize_grid(given, 24)[1:].reshape(24, 24, 2).transpose(2, 0, 1)
    # A slope stays a slope away from the edges: the middles of the old and new cells meet.
    wanted = (np.arange(24) + 0.5) * 16 / 24 - 0.5
    np.testing.assert_allclose(x[0, 3:-3], wanted[3:-3], atol=0.02)
    np.testing.assert_allclose(x, np.broadcast_to(x[:1], x.shape), atol=1e-12)
    np.testing.assert_allclose(y, x.T, atol=1e-12)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("new", [24, 11])
def test_a_resized_grid_keeps_its_type_and_class_row(dtype, new):
    given = table(257, 5, dtype)
    got = positions.resize_grid(given, new)
    assert (got.dtype, got.shape) == (np.dtype(dtype), (1 + new * new, 5))
    np.testing.assert_array_equal(got[0], given[0])
    ulp = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        got.astype(np.float64), resized(given, new), rtol=ulp, atol=1e-9 if ulp < 1e-9 else 1e-6
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_the_same_size_is_the_same_table(dtype):
    given = table(257, 5, dtype)
    got = positions.resize_grid(given, 16)
    assert got.dtype == given.dtype
    np.testing.assert_array_equal(got, given)


@pytest.mark.parametrize(("old", "new"), SIZES)
def test_a_constant_stays_one(old, new):
    given = np.concatenate([[[9.0, 9.0]], np.full((old * old, 2), [0.3, -7.0])])
    got = positions.resize_grid(given, new)
    np.testing.assert_array_equal(got[0], 9.0)
    np.testing.assert_allclose(got[1:], np.full((new * new, 2), [0.3, -7.0]), rtol=1e-14)
