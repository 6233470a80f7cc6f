"""Companions: against plain loops, whatever the blocks; and which captions are chosen."""

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import companions


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def texts():
    """40 captions of 25 pictures, some alike; rows 3 and 30 are the same vector."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(40, 6))
    rows[20:] = rows[:20] + 0.3 * rng.normal(size=(20, 6))
    rows[30] = rows[3]
    return unit(rows), np.concatenate([np.arange(25), np.arange(15)])


@pytest.fixture(params=[(2048, 8192), (7, 3)], ids=["one block", "many blocks"])
def blocks(request, monkeypatch):
    monkeypatch.setattr(companions, "_ASKED", request.param[0])
    monkeypatch.setattr(companions, "_ROWS", request.param[1])


def slow(text, pair_ids, row):
    """All companions of a caption, the nearest first, equal ones by their rows."""
    scores = []
    for other in range(len(text)):
        if pair_ids[other] != pair_ids[row]:
            total = 0.0
            for a, b in zip(text[row], text[other], strict=True):
                total += float(a) * float(b)
            scores.append((-np.float32(total), other))
    return [(other, -score) for score, other in sorted(scores)]


@pytest.mark.usefixtures("blocks")
def test_companions_are_those_of_plain_loops(texts):
    text, pair_ids = texts
    asked = [11, 0, 39, 3]
    found = companions.find(text, pair_ids, asked, 6)
    assert found.asked.tolist() == asked
    for number, row in enumerate(asked):
        rows, cosines = zip(*slow(text, pair_ids, row)[:6], strict=True)
        assert found.found[number].tolist() == list(rows)
        np.testing.assert_allclose(found.cosines[number], cosines, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("blocks")
def test_hardest_is_the_cosine_of_the_nearest(texts):
    text, pair_ids = texts
    told = []
    found = companions.hardest(text, pair_ids, lambda *done: told.append(done))
    expected = [slow(text, pair_ids, row)[0][1] for row in range(40)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert told[-1] == (40, 40)


@pytest.mark.usefixtures("blocks")
def test_of_equal_companions_the_first_comes_first():
    text = unit(np.array([[1.0, 0], [0.6, 0.8], [0.6, 0.8], [0, 1], [0.6, 0.8]]))
    found = companions.find(text, np.arange(5), [0], 4)
    assert found.found.tolist() == [[1, 2, 4, 3]]
    assert found.cosines[0, 0] == found.cosines[0, 2]


@pytest.mark.usefixtures("blocks")
def test_where_there_are_no_more_nothing_is_made_up():
    text = unit(np.eye(4) + 0.1)
    found = companions.find(text, np.array([0, 0, 1, 0]), [0, 2], 3)
    assert found.found.tolist() == [[2, -1, -1], [0, 1, 3]]
    assert np.isneginf(found.cosines[0, 1:]).all()
    assert np.isfinite(found.cosines[1]).all()


def test_the_hardest_come_first_and_no_pair_twice(texts):
    text, pair_ids = texts
    found = companions.choose(text, pair_ids, "hardest", 4, 2)
    nearest = [slow(text, pair_ids, row)[0][1] for row in range(40)]
    # Rows 3 and 30 are the same, but 30 is the companion of 3.
    assert found.asked[0] == 3
    assert found.found[0, 0] == 30
    values = [nearest[row] for row in found.asked]
    assert values == sorted(values, reverse=True)
    pairs = [
        frozenset((row, other))
        for row, others in zip(found.asked, found.found, strict=True)
        for other in others
    ]
    assert len({*pairs}) == len(pairs) == 8
    seen = set()
    for row, others in zip(found.asked, found.found, strict=True):
        assert pair_ids[row] not in seen
        seen |= {pair_ids[row], *pair_ids[others]}
    # Whoever is nearer than the last of them and was passed over was seen before.
    for row in range(40):
        if nearest[row] > min(values) and row not in found.asked:
            assert pair_ids[row] in seen


def test_a_picture_is_asked_about_once():
    """Its second caption has a near companion of its own, but the picture was shown."""
    text = unit(np.array([[1, 0, 0], [0, 1, 0], [1, 0.1, 0], [0.2, 1, 0], [0, 0.1, 1]]))
    found = companions.choose(text, np.array([0, 0, 1, 2, 3]), "hardest", 2, 1)
    assert found.asked.tolist() == [0, 3]
    assert found.found.tolist() == [[2], [1]]


def test_when_all_were_seen_there_are_fewer():
    text = unit(np.random.default_rng(0).normal(size=(5, 3)))
    found = companions.choose(text, np.arange(5), "hardest", 4, 4)
    assert found.found.shape == (1, 4)


def test_the_lot_is_drawn_by_the_seed(texts):
    text, pair_ids = texts
    one, same, other = (
        companions.choose(text, pair_ids, "random", 5, 1, seed=seed).asked.tolist()
        for seed in (1, 1, 2)
    )
    assert one == same != other
    assert len({*one}) == 5


def test_mistakes_are_one_line(texts):
    text, pair_ids = texts
    with pytest.raises(types.UserError, match="unknown choice of captions 'hardes'; did you mean"):
        companions.choose(text, pair_ids, "hardes", 1, 1)
    with pytest.raises(types.UserError, match="all 40 captions are of one picture or one text"):
        companions.choose(text, np.zeros(40, int), "random", 1, 1)
    with pytest.raises(types.UserError, match="all 1 captions are of one picture"):
        companions.choose(text[:1], pair_ids[:1], "hardest", 1, 1)
    broken = text.copy()
    broken[7, 2], broken[9, 1] = np.nan, np.inf
    with pytest.raises(types.UserError, match=r"2 of 40 caption embeddings .* row 7;"):
        companions.choose(broken, pair_ids, "hardest", 1, 1)
