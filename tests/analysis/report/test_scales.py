"""Axes: round ends and ticks, places of values."""

import math

import numpy as np
import pytest

from hnclip_jax.analysis.report import scales

RANGES = [(0.0, 1.0), (-3.7, 12.2), (1e-7, 3e-7), (12_345.0, 99_999.0), (0.82, 0.88), (-5.0, -4.0)]


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_linear_axes_hold_all_values_and_have_round_ticks(low, high):
    scale = scales.fit(np.array([low, high, (low + high) / 2]), 180, 10)
    assert scale.low <= low + 1e-12
    assert scale.high >= high - 1e-12
    found = scales.ticks(scale)
    assert 4 <= len(found) <= 11
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - whole) for whole in (1, 2, 5)) < 1e-6
    assert found[0] == pytest.approx(scale.low, abs=steps[0] * 1e-6)
    assert found[-1] == pytest.approx(scale.high, abs=steps[0] * 1e-6)


def test_any_width_has_ticks():
    widths = [4 * 10.0**power for power in range(-12, 9)]
    widths += [*10 ** np.random.default_rng(0).uniform(-12, 9, 500)]
    for width in widths:
        found = scales.ticks(scales.fit(np.array([0.0, width]), 180, 10))
        assert 4 <= len(found) <= 11, width


def test_what_differs_by_rounding_alone_is_one_number():
    scale = scales.fit(np.array([1 - 1e-7, 1.0, 1 + 1e-7]), 180, 10)
    assert (scale.low, scale.high) == pytest.approx((0.4, 1.6), abs=0.2)
    texts = [scales.text(tick) for tick in scales.ticks(scale)]
    assert len({*texts}) == len(texts)


def test_places_are_proportional():
    scale = scales.Scale(10, 30, 100, 0)
    np.testing.assert_allclose(scale(np.array([10, 15, 30])), [100, 75, 0])
    log = scales.Scale(0.01, 100, 0, 80, True)
    np.testing.assert_allclose(log(np.array([0.01, 1, 10, 100])), [0, 40, 60, 80])


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ((0.02, 30), 0.01, 100),
        ((1, 1), 0.1, 10),
        ((3e-9, 2e-8), 1e-9, 1e-7),
        ((10, 1000), 10, 1000),
    ],
)
def test_logarithmic_axes_end_at_powers_of_ten(values, low, high):
    scale = scales.fit(np.array(values, float), 0, 1, True)
    assert (scale.low, scale.high) == (pytest.approx(low), pytest.approx(high))
    np.testing.assert_allclose(np.log10(scales.ticks(scale)) % 1, 0, atol=1e-9)


def test_a_wide_logarithmic_axis_has_few_ticks():
    assert len(scales.ticks(scales.Scale(1e-20, 1e5, 0, 1, True))) <= 7


@pytest.mark.parametrize("value", [0.0, 5.0, -2.0, 1e-9])
def test_equal_values_have_an_axis_around_them(value):
    scale = scales.fit(np.full(3, value), 0, 1)
    assert scale.low < value < scale.high


def test_no_values_have_an_axis_too():
    for log in (False, True):
        scale = scales.fit(np.zeros(0), 0, 1, log)
        assert scale.low < scale.high


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.25, "0.25"), (1 / 3, "0.3333"), (999, "999"), (1200, "1,200"),
        (15_000, "15k"), (12_345, "12.35k"), (1_200_000, "1,200k"), (2e7, "2e+07"),
        (-0.5, "-0.5"), (3e-5, "3e-05"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert scales.text(value) == text
