"""Shares of a list: nested by seed, in order, counted."""

import json

import numpy as np
import pytest

from hnclip_jax.data import fraction, lists
from tests.data import drawing


@pytest.fixture
def pictures(tmp_path):
    rows = []
    for number in range(30):
        drawing.noise(4, 4).save(tmp_path / f"{number}.png")
        rows.append({"filename": f"{number}.png", "caption": [f"caption {number}", "the same"]})
    (tmp_path / "list.json").write_text(json.dumps(rows))
    return lists.read(tmp_path / "list.json")


def test_shares_are_nested_and_in_the_list_s_order(pictures):
    before = set()
    for share, count in ((0.05, 2), (0.1, 3), (0.2, 6), (0.5, 15), (0.99, 30), (1.0, 30)):
        some = fraction.take(pictures, share, seed=7)
        indexes = [record.index for record in some.records]
        assert len(indexes) == count
        assert indexes == sorted(indexes)
        assert before <= set(indexes)
        before = set(indexes)
    assert fraction.take(pictures, 1.0, seed=7) is pictures


def test_a_seed_tells_which(pictures):
    taken = [
        [record.id for record in fraction.take(pictures, 0.5, seed).records] for seed in (0, 1, 0)
    ]
    assert taken[0] == taken[2] != taken[1]


def test_pairs_are_counted_anew(pictures):
    some = fraction.take(pictures, 0.5, seed=0)
    assert (some.report.pairs, some.report.duplicates) == (30, 14)
    assert some.report.rows == 30
    images, captions = lists.views(some.records)
    assert len(images) == len(captions) == 30
    assert np.unique(lists.pair_ids(some.records)).tolist() == [0]
    assert some.records[2:4] == (some.records[2], some.records[3])
