"""Geometry on the page: the numbers of the table and of both distributions, counted by loops."""

import math

import numpy as np
import pytest

from hnclip_jax.analysis import boost, geometry
from hnclip_jax.analysis.report import cosines
from tests.analysis.report import reading


def _measured(name, seed, solved=None):
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(40, 6)) + 1.5
    text = (text / np.linalg.norm(text, axis=1, keepdims=True)).astype(np.float32)
    seen = geometry.measure(text, np.arange(40) // 2)
    predicted = boost.predict(seen.mean, seen.std, scale=20.0, gamma=0.5, solved=solved)
    return text, cosines.Measured(name, seen, predicted)


def _loops(text):
    """Returns the cosines of all pairs of negatives, and each caption's hardest."""
    text, pairs, hardest = text.astype(np.float64), [], []
    for a in range(40):
        row = [float(text[a] @ text[b]) for b in range(40) if a // 2 != b // 2]
        hardest.append(max(row))
        pairs += [float(text[a] @ text[b]) for b in range(a) if a // 2 != b // 2]
    return np.array(pairs), np.array(hardest)


def test_the_table_has_the_numbers_of_a_loop():
    solved = boost.Solved(0.625, 0.1, 0.2, 1.0, 3, 8)
    texts, found = zip(_measured("before", 0), _measured("<after>", 1, solved), strict=True)
    tree = reading.read(cosines.render(found, ["Began with <x>."]))
    assert tree.all("p")[0].text == "Began with <x>."
    rows = tree.all("table")[0].rows()[1:]
    for text, row, name in zip(texts, rows, ("before", "<after>"), strict=True):
        pairs, hardest = _loops(text)
        assert row[0] == name
        numbers = [float(cell) if cell != "nan" else math.nan for cell in row[1:]]
        mean, std = pairs.mean(), pairs.std()
        expected = [mean, std, hardest.mean(), 100 * np.mean(hardest >= 0.95), 20]
        assert numbers[:5] == pytest.approx(expected, abs=0.051)
        assert numbers[:3] == pytest.approx(expected[:3], abs=6e-5)
        assert numbers[5:7] == pytest.approx([10 * mean, 10 * std], abs=0.0051)
    assert [row[-1] for row in rows] == ["nan", "62.5"]


def test_the_distributions_are_densities():
    text, found = _measured("a", 2)
    pairs, hardest = _loops(text)
    for counts, values in (
        (found.geometry.counts, pairs),
        (found.geometry.hardest_counts, hardest),
    ):
        middles, density = cosines.density_of(counts)
        assert density.sum() * 0.01 == pytest.approx(1)
        for middle, share in zip(middles, density, strict=True):
            inside = np.mean((values >= middle - 0.005) & (values < middle + 0.005)) / 0.01
            # A cosine at the edge of a bin may be counted on either side.
            assert share == pytest.approx(inside, abs=1.01 / len(values) / 0.01)
        assert density[1] > 0
        assert density[0] == 0


def test_both_are_drawn_for_all_weights():
    found = [_measured("before", 0)[1], _measured("after", 1)[1]]
    tree = reading.read(cosines.render(found, []))
    assert [node.text for node in tree.all("figure") for node in node.all("h3")] == [
        "All pairs, density",
        "Hardest companion of each, density",
    ]
    for figure in tree.all("figure"):
        entries = [entry.text.split()[0] for entry in figure.one("ul").all("li")]
        assert entries == ["before", "after"]


def test_captions_that_are_all_alike():
    counts = np.zeros(geometry.BINS, np.int64)
    counts[-1] = 5
    middles, density = cosines.density_of(counts)
    assert middles == pytest.approx([0.985, 0.995])
    assert density == pytest.approx([0, 100])
