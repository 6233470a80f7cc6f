"""The nearest captions by words, against a comparison of all with all."""

import collections
import math
import re

import numpy as np
import pytest

from hnclip_jax.data import neighbours

WORDS = [f"w{number}" for number in range(60)]


def made(count, seed=0, length=12):
    """Captions in families of three that differ in two words."""
    random = np.random.default_rng(seed)
    captions = []
    for number in range(count):
        if number % 3 == 0:
            base = random.choice(WORDS, length)
        changed = base.copy()
        changed[random.choice(length, 2, replace=False)] = random.choice(WORDS, 2)
        captions.append(" ".join(changed))
    return captions


def cosines(captions):
    """All cosines, word by word."""
    counts = [collections.Counter(re.findall(r"\w+", text.lower())) for text in captions]
    having = collections.Counter(word for one in counts for word in one)
    rarity = {w: math.log((1 + len(captions)) / (1 + c)) + 1 for w, c in having.items()}
    rows = [{w: (1 + math.log(c)) * rarity[w] for w, c in one.items()} for one in counts]
    norms = [math.sqrt(sum(v * v for v in row.values())) or 1.0 for row in rows]
    return [
        [sum(a[w] * b.get(w, 0.0) for w in a) / (x * y) for b, y in zip(rows, norms, strict=True)]
        for a, x in zip(rows, norms, strict=True)
    ]


def slow(captions, ids, count):
    """Row -> its nearest as (cosine, row), of equals the next one behind it first."""
    table, total = cosines(captions), len(captions)
    found = []
    for row in range(total):
        others = [other for other in range(total) if ids[other] != ids[row]]
        others.sort(key=lambda o: (-round(table[row][o], 4), (o - row) % total))
        found.append([(table[row][other], other) for other in others[:count]])
    return found


@pytest.mark.parametrize("block", [7, 256])
def test_all_are_compared_with_all(block, monkeypatch):
    monkeypatch.setattr(neighbours, "_BLOCK", block)
    captions = [*made(39), "", "alone", "w1 w2", "W1 w2!"]
    ids = np.arange(len(captions)) // 2  # Two captions of every picture.
    rows, found = neighbours.find(captions, ids, 22)
    # So many are asked for that all others are candidates.
    assert (rows.dtype, found.dtype, rows.shape) == (np.int32, np.float32, (43, 22))
    table = cosines(captions)
    for row, expected in enumerate(slow(captions, ids, 22)):
        np.testing.assert_allclose(found[row], [cosine for cosine, _ in expected], atol=1e-4)
        np.testing.assert_allclose(
            found[row], [table[row][other] for other in rows[row]], atol=1e-4
        )
        assert all(ids[other] != ids[row] for other in rows[row])
        assert len(set(rows[row].tolist())) == 22


def test_candidates_of_a_long_list_are_the_nearest():
    captions, ids = made(300, seed=2), np.arange(300)
    rows, _ = neighbours.find(captions, ids, 8)
    expected = slow(captions, ids, 8)
    near = [
        (row, other) for row, best in enumerate(expected) for cosine, other in best if cosine > 0.5
    ]
    assert len(near) > 900
    assert all(other in rows[row] for row, other in near)
    total = sum(other in rows[row] for row, best in enumerate(expected) for _, other in best)
    assert total > 0.93 * 8 * 300


def test_of_equals_the_next_one_behind_is_the_nearest():
    rows, found = neighbours.find(["a b", "c", "b a", "a b!", "B A"], np.arange(5), 2)
    assert rows.tolist() == [[2, 3], [2, 3], [3, 4], [4, 0], [0, 2]]
    np.testing.assert_allclose(found[[0, 2, 3, 4]], 1, atol=1e-4)
    np.testing.assert_array_equal(found[1], 0)
    # More equals than candidates.
    rows, _ = neighbours.find(["same words"] * 50, np.arange(50), 3)
    assert rows.tolist() == [[(row + step) % 50 for step in (1, 2, 3)] for row in range(50)]


def test_where_there_are_no_others():
    rows, found = neighbours.find(["a", "b", "c"], np.array([0, 0, 1]), 2)
    assert rows.tolist() == [[2, -1], [2, -1], [0, 1]]
    np.testing.assert_array_equal(np.isneginf(found), rows < 0)
    rows, found = neighbours.find(["same"] * 4, np.zeros(4, int), 3)
    assert (rows == -1).all()
    assert np.isneginf(found).all()
    assert neighbours.find(["a", "b"], np.arange(2), 0)[0].shape == (2, 0)
    assert neighbours.find([], np.arange(0), 3)[0].shape == (0, 3)
    assert neighbours.find(["", ""], np.arange(2), 1)[0].tolist() == [[1], [0]]


def test_projections_are_whole_and_their_products_exact():
    """So that no order of summing, of another machine say, gives other neighbours."""
    texts = neighbours._Words([*made(30), "", "one", " ".join(WORDS * 20)])
    projected = texts.projected()
    np.testing.assert_array_equal(projected, np.rint(projected))
    norms = np.linalg.norm(projected.astype(np.float64), axis=1)
    np.testing.assert_allclose(np.delete(norms, 30), neighbours._NORM, rtol=0.005)
    whole = projected.astype(np.int64)
    assert np.abs(whole).astype(object).dot(np.abs(whole).T.astype(object)).max() < 2**24
    np.testing.assert_array_equal(projected @ projected.T, whole @ whole.T)
    weights = texts._weights
    np.testing.assert_array_equal(weights, np.rint(weights))
    assert np.add.reduceat(weights, texts._starts[:30]).max() < 2**24


def test_progress_is_told():
    seen = []
    neighbours.find(made(30), np.arange(30), 2, lambda *both: seen.append(both))
    assert seen == [(30, 30)]
