"""How alike captions are, against loops over all pairs in double precision."""

import itertools
import math

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import geometry, geometry_batch

EXACT = 1e-12
"""Mean and deviation are sums in double precision, whatever the order."""
PRODUCT = 2e-6
"""What a product in single precision may be off by."""


def unit(count, seed, width=8, shared=1.0):
    rows = np.random.default_rng(seed).normal(size=(count, width)) + shared
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def slow(text, ids):
    """The cosines of all negatives, each pair once, and each caption's largest one."""
    cosines, hardest = [], [-math.inf] * len(text)
    for a, b in itertools.combinations(range(len(text)), 2):
        if ids[a] != ids[b]:
            cosine = math.fsum(float(x) * float(y) for x, y in zip(text[a], text[b], strict=True))
            cosines.append(cosine)
            hardest[a], hardest[b] = max(hardest[a], cosine), max(hardest[b], cosine)
    return np.array(cosines), np.array(hardest)


IDS = {
    "no two of one picture": np.arange(60),
    "pairs": np.arange(60) // 2,
    "not in order": np.random.default_rng(5).integers(0, 25, 60),
    "one large group": np.where(np.arange(60) < 40, 7, np.arange(60)),
    "negative ids": -np.arange(60) // 3,
}


@pytest.mark.parametrize("rows", [1, 7, 2048])
@pytest.mark.parametrize("ids", IDS.values(), ids=list(IDS))
def test_all_pairs(ids, rows, monkeypatch):
    monkeypatch.setattr(geometry, "_ROWS", rows)
    monkeypatch.setattr(geometry, "_COUNTED", 5)
    text = unit(60, 0)
    cosines, hardest = slow(text, ids)
    found = geometry.measure(text, ids)
    assert (found.captions, found.pairs) == (60, len(cosines))
    assert found.left_out == 60 * 59 // 2 - len(cosines)
    assert found.mean == pytest.approx(cosines.mean(), abs=EXACT)
    assert found.std == pytest.approx(cosines.std(), abs=EXACT)
    np.testing.assert_allclose(found.hardest, hardest, atol=PRODUCT)
    assert found.hardest_mean == pytest.approx(hardest.mean(), abs=PRODUCT)
    assert found.counts.tolist() == by_bins(cosines)
    assert found.hardest_counts.tolist() == by_bins(hardest)


def by_bins(cosines):
    counts = [0] * geometry.BINS
    for cosine in cosines:
        assert abs(cosine * 200 - round(cosine * 200)) > 200 * PRODUCT, "too near to an edge"
        counts[math.floor((cosine + 1) / 0.005)] += 1
    return counts


def test_the_moments_stay_exact_where_captions_are_nearly_equal():
    text = unit(50, 1, shared=1e2)
    cosines, _ = slow(text, np.arange(50))
    found = geometry.measure(text, np.arange(50))
    assert found.std < 1e-4
    assert found.std == pytest.approx(cosines.std(), rel=1e-3)


def test_wider_rows_than_there_are_captions():
    text, ids = unit(6, 2, width=32), np.array([0, 0, 1, 1, 1, 2])
    cosines, _ = slow(text, ids)
    found = geometry.measure(text, ids)
    assert found.mean == pytest.approx(cosines.mean(), abs=EXACT)
    assert found.std == pytest.approx(cosines.std(), abs=EXACT)


def test_equal_captions_are_in_the_last_bin():
    # 0.6 and 0.8 in single precision: their squares add up to a little more than 1.
    text = np.tile(np.array([0.6, 0.8], np.float32), (5, 1))
    found = geometry.measure(text, np.arange(5))
    assert found.counts[-1] == 10
    assert found.hardest_counts[-1] == 5
    assert found.counts.sum() == 10
    assert (found.mean, found.std) == pytest.approx((1, 0), abs=1e-7)
    assert "100.00000%" in found.text().splitlines()[-1]


def test_opposite_captions_are_in_the_first_bin():
    text = np.array([[0.6, 0.8], [-0.6, -0.8]], np.float32)
    found = geometry.measure(text, np.arange(2))
    assert found.counts[0] == 1
    assert found.mean == pytest.approx(-1)


def test_progress_ends_where_all_pairs_are_done(monkeypatch):
    monkeypatch.setattr(geometry, "_ROWS", 7)
    seen = []
    geometry.measure(unit(30, 1), np.arange(30) // 2, lambda *at: seen.append(at))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (30 * 29 // 2, 30 * 29 // 2)
    assert {total for _, total in seen} == {30 * 29 // 2}


def test_an_interruption_ends_the_work(monkeypatch):
    monkeypatch.setattr(geometry, "_ROWS", 1)
    begun = []
    block = geometry._block
    monkeypatch.setattr(geometry, "_block", lambda *of: begun.append(of) or block(*of))

    def interrupted(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        geometry.measure(unit(80, 1), np.arange(80), interrupted)
    assert len(begun) < 80 * 81 // 2


@pytest.mark.parametrize(
    ("cosine", "bucket"),
    [
        (-0.9, "below 0.5"),
        (0.4999, "below 0.5"),
        (0.5001, "0.5 to 0.6"),
        (0.6001, "0.6 to 0.7"),
        (0.7001, "0.7 to 0.8"),
        (0.8001, "0.8 to 0.9"),
        (0.8999, "0.8 to 0.9"),
        (0.9001, "0.9 to 0.95"),
        (0.9499, "0.9 to 0.95"),
        (0.9501, "0.95 to 0.99"),
        (0.9899, "0.95 to 0.99"),
        (0.9901, "0.99 or more"),
        (1.0, "0.99 or more"),
    ],
)
def test_buckets_of_hardness(cosine, bucket):
    text = np.array([[1, 0], [cosine, math.sqrt(1 - cosine**2)]], np.float32)
    told = geometry.measure(text, np.arange(2)).to_json()
    for name in ("share_of_pairs", "share_of_hardest"):
        assert told[name] == {one: float(one == bucket) for one in geometry.BUCKETS}


def test_shares_by_hardness():
    text, ids = unit(60, 0), np.arange(60) // 2
    cosines, hardest = slow(text, ids)
    found = geometry.measure(text, ids)
    edges = [-2, *geometry.HARDNESS, 2]
    for values, counts in ((cosines, found.counts), (hardest, found.hardest_counts)):
        expected = [
            np.mean((values >= low) & (values < high)) for low, high in itertools.pairwise(edges)
        ]
        np.testing.assert_allclose(geometry.hardness(counts), expected, atol=1e-12)


def test_what_is_told():
    # Two nearly equal captions, and two far away from all.
    text = np.eye(4, dtype=np.float32)
    text[1] = [0.96, 0.28, 0, 0]
    text = np.concatenate([text, text[3:]])
    told = geometry.measure(text, np.array([0, 1, 2, 3, 3])).text()
    assert "5 captions, 9 pairs of negatives (1 pairs of one picture or text left out)" in told
    assert "mean cosine 0.1067, standard deviation 0.3017" in told
    assert "a cosine of 0.3840 on average; 40.0% of the captions have one of 0.95 or more" in told
    rows = [line.split() for line in told.splitlines()]
    assert ["0.95", "to", "0.99", "11.11111%", "40.00%"] in rows
    assert ["below", "0.5", "88.88889%", "60.00%"] in rows


@pytest.mark.parametrize("wrong", [np.nan, 0.0, 2.0, np.inf])
def test_rows_that_are_no_unit_vectors(wrong):
    text = unit(5, 0)
    text[3] *= wrong
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(types.UserError, match=r"1 of 5 .* that of caption 3"),
    ):
        geometry.measure(text, np.arange(5))


@pytest.mark.parametrize("ids", [[0], [4, 4, 4], []])
def test_no_negatives(ids):
    with pytest.raises(types.UserError, match=f"{len(ids)} captions, but no two"):
        geometry.measure(unit(len(ids), 0), np.array(ids, int))


CAPTIONS = [f"caption {number}" for number in range(20)]


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_is_drawn_from_the_list(seed):
    text, ids = unit(20, 3), np.arange(20) // 2
    found = geometry_batch.draw(text, ids, CAPTIONS, 8, seed)
    assert len(set(found.rows.tolist())) == 8
    assert found.rows.tolist() != sorted(found.rows.tolist())
    largest = {}
    for (i, a), (j, b) in itertools.product(enumerate(found.rows), repeat=2):
        cosine = math.fsum(float(x) * float(y) for x, y in zip(text[a], text[b], strict=True))
        assert found.cosines[i, j] == pytest.approx(cosine, abs=EXACT)
        assert found.negatives[i, j] == (ids[a] != ids[b])
        if i < j and ids[a] != ids[b]:
            largest[i, j] = cosine
    assert found.largest == max(largest, key=largest.get)
    assert found.value == pytest.approx(max(largest.values()), abs=EXACT)
    assert found.texts == tuple(CAPTIONS[found.rows[at]] for at in found.largest)
    told = found.text().splitlines()
    assert told[0] == f"The largest entry of G in a batch of 8 is {found.value:.4f}:"
    assert [line.strip() for line in told[1:]] == list(found.texts)


def test_the_seed_says_which_batch():
    text, ids = unit(20, 3), np.arange(20)
    rows = [geometry_batch.draw(text, ids, CAPTIONS, 8, seed).rows.tolist() for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    # And other weights see the same captions.
    assert geometry_batch.draw(unit(20, 4), ids, CAPTIONS, 8, 1).rows.tolist() == rows[0]


def test_a_batch_of_a_short_list_is_all_of_it():
    found = geometry_batch.draw(unit(5, 0), np.arange(5), CAPTIONS, 16, seed=0)
    assert sorted(found.rows.tolist()) == list(range(5))


def test_a_batch_without_negatives():
    found = geometry_batch.draw(unit(4, 0), np.array([0, 0, 0, 0]), CAPTIONS, 2, seed=0)
    assert (found.largest, found.value, found.texts) == (None, None, ())
    assert found.text() == "A batch of 2 captions has no negatives."
    assert found.to_json()["largest"] is None
