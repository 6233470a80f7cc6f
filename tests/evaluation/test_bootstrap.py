"""Intervals: as wide as they must be, the same for the same seed, of every metric."""

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.evaluation import bootstrap, retrieval, ties

KS = (1, 5)


def measured(queries, seed=0, map_k=0):
    """Pairs of which about half are found first, as `retrieval.measure` gives them."""
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((queries, 8))
    text = image + rng.standard_normal((queries, 8))
    return retrieval.measure(image, text, map_k=map_k)


def drawn_one_by_one(values, statistic, samples=4000, seed=5):
    """The same interval the plain way: positions are drawn, and their values taken."""
    rng = np.random.default_rng(seed)
    found = [statistic(values[rng.integers(0, len(values), len(values))]) for _ in range(samples)]
    return np.quantile(found, [0.025, 0.975])


def test_they_are_those_of_drawing_queries_one_by_one():
    found = measured(300, map_k=10)
    ours = bootstrap.intervals(found, KS, 4000, 0)
    for name in ("t2i", "i2t"):
        ranks = found.ranks[name]
        for k in KS:
            expected = drawn_one_by_one(ranks.greater < k, lambda hits: 100 * hits.mean())
            np.testing.assert_allclose(ours[f"{name}_r@{k}"], expected, atol=0.7)
        expected = drawn_one_by_one(ranks.greater + 1.0, np.median)
        np.testing.assert_allclose(ours[f"{name}_median_rank"], expected, atol=0.6)
        expected = drawn_one_by_one(100 * found.precisions[name], np.mean)
        np.testing.assert_allclose(ours[f"{name}_map@10"], expected, atol=0.7)


def test_every_metric_has_one_and_lies_inside():
    found = measured(200, map_k=3)
    ours = bootstrap.intervals(found, KS, 500, 1)
    metrics = found.metrics(KS)
    assert [*ours] == [name for name in metrics if name != "ties"]
    for name, (low, high) in ours.items():
        assert low < metrics[name] < high or name.endswith("median_rank")
        assert low <= metrics[name] <= high


def test_four_times_the_queries_halve_the_width():
    widths = []
    for queries in (400, 1600):
        rank = np.arange(queries) % 2  # Half of them are found first.
        one = np.ones(queries, int)
        ranks = ties.Ranks(rank, 0 * one, one)
        found = retrieval.Measured({"t2i": ranks}, {"t2i": queries}, {}, 0)
        low, high = bootstrap.intervals(found, (1,), 4000, 0)["t2i_r@1"]
        assert high - low == pytest.approx(2 * 1.96 * 50 / queries**0.5, rel=0.08)
        widths.append(high - low)
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("at_once", [1, 700, 4_000_000])
def test_a_seed_gives_the_same_numbers_however_many_are_drawn_at_once(at_once, monkeypatch):
    found = measured(150, map_k=10)
    expected = bootstrap.intervals(found, KS, 100, 3)
    monkeypatch.setattr(bootstrap, "_COUNTS_AT_ONCE", at_once)
    # The sums may differ in the last bit.
    again = bootstrap.intervals(found, KS, 100, 3)
    assert all(again[name] == pytest.approx(ends, rel=1e-12) for name, ends in expected.items())
    assert bootstrap.intervals(found, KS, 100, 3) == again
    other = bootstrap.intervals(found, KS, 100, 4)
    assert other["i2t_map@10"] != expected["i2t_map@10"]
    assert other != expected


def test_the_median_of_an_even_number_is_between_the_two():
    ranks = ties.Ranks(np.array([0, 9]), np.zeros(2, int), np.ones(2, int))
    found = retrieval.Measured({"t2i": ranks}, {"t2i": 10}, {}, 0)
    medians = bootstrap._medians(ties.places(ranks), 200, np.random.default_rng(0))
    assert {*medians} == {1.0, 5.5, 10.0}
    assert bootstrap.intervals(found, (1,), 200, 0)["t2i_median_rank"] == [1.0, 10.0]


def test_certain_results_have_no_width():
    found = retrieval.measure(np.eye(20), np.eye(20))
    assert bootstrap.intervals(found, (1,), 50, 0)["t2i_r@1"] == [100.0, 100.0]


@pytest.mark.parametrize(("samples", "seed"), [(1, 0), (100, -1)])
def test_senseless_numbers_are_refused(samples, seed):
    with pytest.raises(types.UserError, match="2 samples or more, and a seed from 0"):
        bootstrap.intervals(measured(10), KS, samples, seed)
