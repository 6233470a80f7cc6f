"""Numbers of curves, each against a slow way to get it."""

import math
import statistics

import numpy as np
import pytest

from hnclip_jax.analysis import curves

RANDOM = np.random.default_rng(0).lognormal(size=60)


def slow_quantile(values, share):
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    rest = place - math.floor(place)
    return below if below == above or rest == 0 else below * (1 - rest) + above * rest


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0, 0.337])
@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_quantiles_are_numpys_for_numbers(share, count):
    found = curves.quantile(RANDOM[:count], share)
    assert found == pytest.approx(np.quantile(RANDOM[:count], share), rel=1e-12)
    assert found == pytest.approx(slow_quantile(RANDOM[:count], share), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, math.nan),
        ([math.nan, math.nan], 0.5, math.nan),
        ([math.nan, 3.0], 0.1, 3.0),
        ([1.0, 2.0, math.inf], 0.5, 2.0),
        ([1.0, 2.0, math.inf], 0.6, math.inf),
        ([1.0, math.inf, math.inf], 0.9, math.inf),
        ([math.inf, math.inf], 0.3, math.inf),
        ([5.0, 5.0, 5.0], 0.9, 5.0),
        ([3.0, 1.0, 2.0], 0.25, 1.5),
    ],
)
def test_quantiles_of_odd_values(values, share, expected):
    found = curves.quantile(np.array(values), share)
    assert found == expected or (math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize("window", [1, 4, 10, 30, 1000])
def test_running_medians_are_those_of_a_loop(window):
    steps = np.cumsum(np.random.default_rng(1).integers(1, 6, size=60))
    values = RANDOM.copy()
    values[[3, 20, 21]] = math.nan, math.inf, 0.0
    expected = []
    for step in steps:
        near = [
            value
            for at, value in zip(steps, values, strict=True)
            if abs(at - step) <= window / 2 and not math.isnan(value)
        ]
        expected.append(statistics.median(near) if near else math.nan)
    np.testing.assert_array_equal(curves.running_median(steps, values, window), expected)


def test_a_window_reaches_half_to_each_side_ends_included():
    steps = np.array([5, 10, 15, 20])
    values = np.array([1.0, 2.0, 4.0, 8.0])
    assert curves.running_median(steps, values, 10).tolist() == [1.5, 2.0, 4.0, 6.0]
    assert curves.running_median(steps, values, 9).tolist() == [1.0, 2.0, 4.0, 8.0]
    assert curves.running_median(steps[:0], values[:0], 9).shape == (0,)


def test_bands_are_quantiles_of_each_epoch():
    steps = np.arange(5, 301, 5)
    values = RANDOM.copy()
    values[[0, 13]] = math.nan
    found = curves.bands(steps, values, 70)
    assert [(band.epoch, band.first, band.last) for band in found] == [
        (1, 0, 70), (2, 70, 140), (3, 140, 210), (4, 210, 280), (5, 280, 350),
    ]  # fmt: skip
    for band in found:
        inside = [
            value
            for step, value in zip(steps, values, strict=True)
            if band.first < step <= band.last and not math.isnan(value)
        ]
        assert band.count == len(inside)
        expected = [slow_quantile(inside, share) for share in (0.1, 0.5, 0.9)]
        assert [band.low, band.median, band.high] == pytest.approx(expected, rel=1e-12)
    assert sum(band.count for band in found) == 58


def test_an_epoch_without_numbers_has_no_edges_and_one_without_measurements_no_band():
    steps = np.array([10, 20, 50])
    found = curves.bands(steps, np.array([1.0, math.nan, 3.0]), 10)
    assert [(band.epoch, band.count) for band in found] == [(1, 1), (2, 0), (5, 1)]
    assert math.isnan(found[1].low)
    assert (found[2].low, found[2].high) == (3.0, 3.0)


def test_without_the_length_of_an_epoch_there_are_no_bands():
    assert curves.bands(np.array([5, 10]), np.array([1.0, 2.0]), 0) == []


def test_the_spread_of_runs():
    columns = [np.array([1.0]), np.array([1.0, 4.0]), np.array([3.0, 4.0, 8.0])]
    found = curves.spread(columns)
    assert found.count.tolist() == [1, 2, 3]
    assert found.mean.tolist() == [1.0, 2.5, 5.0]
    assert (found.low.tolist(), found.high.tolist()) == ([1.0, 1.0, 3.0], [1.0, 4.0, 8.0])
    assert np.isnan(found.deviation[:2]).all()
    assert found.deviation[2] == pytest.approx(statistics.stdev([3.0, 4.0, 8.0]))


def test_no_places_have_no_spread():
    assert all(part.shape == (0,) for part in curves.spread([]))


def test_log_limits_lie_just_outside_what_can_be_shown():
    series = [np.array([0.0, 1e-3, math.inf]), np.array([math.nan, 10.0, -5.0])]
    floor, ceiling = curves.log_limits(series)
    assert floor == pytest.approx(1e-3 / 1e4**0.06)
    assert ceiling == pytest.approx(10 * 1e4**0.06)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 2.0], (2 / 1.5, 3.0)),
        ([0.0, math.nan, math.inf], (0.1, 10.0)),
        ([], (0.1, 10.0)),
    ],
)
def test_log_limits_of_few_values(values, expected):
    assert curves.log_limits([np.array(values)]) == pytest.approx(expected)


def test_what_an_axis_cannot_show_is_moved_and_marked():
    values = np.array([0.0, 1.0, math.nan, math.inf, -math.inf, -2.0])
    found = curves.clamp(values, 0.5, 7.0, log=True)
    assert found.drawn.tolist() == [0.5, 1.0, 0.5, 7.0, 0.5, 0.5]
    assert found.zeros.tolist() == [True, False, False, False, False, True]
    assert found.infinite.tolist() == [False, False, False, True, True, False]
    assert found.undefined.tolist() == [False, False, True, False, False, False]


def test_a_plain_axis_shows_zeros():
    values = np.array([0.0, -1.0, math.nan])
    found = curves.clamp(values, -1.1, 1.1, log=False)
    assert found.drawn.tolist() == [0.0, -1.0, -1.1]
    assert not found.zeros.any()
    assert found.undefined.tolist() == [False, False, True]
