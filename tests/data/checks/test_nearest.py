"""The nearest other caption, against a slow implementation."""

import math
import re

import numpy as np
import pytest

from hnclip_jax.data.checks import nearest

WORDS = [f"w{number}" for number in range(30)]


def random_captions(count, seed):
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 31)
    return [
        " ".join(rng.choice(WORDS, rng.integers(1, 12), p=weights / weights.sum()))
        for _ in range(count)
    ]


def vector(caption, captions):
    words = re.findall(r"\w+", caption.lower())
    found = {}
    for word in set(words):
        having = sum(word in re.findall(r"\w+", other.lower()) for other in captions)
        rarity = math.log((1 + len(captions)) / (1 + having)) + 1
        found[word] = (1 + math.log(words.count(word))) * rarity
    norm = math.sqrt(sum(weight**2 for weight in found.values()))
    return {word: weight / norm for word, weight in found.items()}


def by_hand(captions, pictures):
    vectors = [vector(caption, captions) for caption in captions]
    cosines = np.full((len(captions),) * 2, -np.inf)
    for i, one in enumerate(vectors):
        for j, other in enumerate(vectors):
            if pictures[i] != pictures[j]:
                cosines[i, j] = sum(weight * other.get(word, 0) for word, weight in one.items())
    return cosines


@pytest.mark.parametrize("block", [1, 7, 512])
def test_by_words(block, monkeypatch):
    monkeypatch.setattr(nearest, "_BLOCK", block)
    captions = [*random_captions(40, 0), "W1, w2! w2", "..."]
    pictures = np.array([*np.repeat(np.arange(20), 2), 20, 21])
    asked = np.array([0, 3, 17, 39, 40])
    found = nearest.by_words(captions, pictures, asked)
    cosines = by_hand(captions, pictures)[asked]
    np.testing.assert_allclose(found.similarity, cosines.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(cosines[range(5), found.found], found.similarity, atol=1e-6)


def unit(count, seed):
    rows = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [1, 7, 512])
def test_by_embeddings(block, monkeypatch):
    monkeypatch.setattr(nearest, "_BLOCK", block)
    rows, pictures = unit(30, 1), np.repeat(np.arange(10), 3)
    asked = np.array([2, 3, 29])
    seen = []
    found = nearest.by_embeddings(rows, pictures, asked, lambda *at: seen.append(at))
    cosines = (rows[asked] @ rows.T).astype(np.float64)
    cosines[pictures[asked][:, None] == pictures[None]] = -2
    assert found.found.tolist() == cosines.argmax(axis=1).tolist()
    np.testing.assert_allclose(found.similarity, cosines.max(axis=1), atol=1e-6)
    assert seen[-1] == (30, 30)


@pytest.mark.parametrize("block", [1, 512])
def test_of_equals_the_first_is_found(block, monkeypatch):
    monkeypatch.setattr(nearest, "_BLOCK", block)
    rows = unit(1, 0).repeat(4, axis=0)
    found = nearest.by_embeddings(rows, np.arange(4), np.arange(4)).found
    assert found.tolist() == [1, 0, 0, 0]


def test_no_other_picture():
    found = nearest.by_words(["a", "b"], np.zeros(2, int), np.arange(2))
    assert found.found.tolist() == [-1, -1]
    assert found.text(["a", "b"], "by words") == "no caption has another one to be near to"
    assert found.to_json(["a", "b"]) == []


@pytest.mark.parametrize(("count", "size"), [(5, 5), (5, 9), (100, 10)])
def test_sample(count, size):
    chosen = nearest.sample(count, size, seed=1)
    assert len(chosen) == min(count, size)
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(range(count))
    if size < count:
        assert chosen.tolist() != nearest.sample(count, size, seed=2).tolist()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("a red kite", "a red kite", ""),
        ("a red kite", "a blue kite", "[red] {blue}"),
        ("a kite", "a blue kite", "{blue}"),
        ("a red kite", "a kite", "[red]"),
        ("left of the red cup", "right of the blue cup", "[left] {right} ... [red] {blue}"),
    ],
)
def test_difference(a, b, expected):
    assert nearest.difference(a, b) == expected


def test_pairs_are_shown_once_the_nearest_first():
    captions = ["a red kite flies", "a red kite lands", "two cups", "two blue cups on a table"]
    found = nearest.by_words(captions, np.arange(4), np.arange(4))
    rows = found.to_json(captions)
    assert [(row["a"], row["b"]) for row in rows] == [(0, 1), (2, 3)]
    assert rows[0]["text_b"] == "a red kite lands"
    assert rows[0]["similarity"] > rows[1]["similarity"] > 0
    text = found.text(captions, "by words", shown=1)
    assert "[flies] {lands}" in text
    assert "two" not in text
