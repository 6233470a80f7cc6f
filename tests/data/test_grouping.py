"""Grouped batches: whole groups of near-duplicates, by seed and epoch alone."""

import collections
import itertools
import pickle
import threading

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import grouping, neighbours, pipeline

COUNT, SIZE, BATCH = 23, 3, 6
CAPTIONS = [f"family {'abcdefgh'[row // 3] * 3} member {row % 3}" for row in range(COUNT)]


def numbered(row):
    return {"copy": np.int32(row)}


def made(size=SIZE, seed=5, captions=CAPTIONS, ids=None):
    ids = np.arange(len(captions)) if ids is None else np.asarray(ids)
    rows, _ = neighbours.find(captions, ids, grouping.PER_MEMBER * (size - 1))
    return grouping.Groups(rows, ids, size, seed)


def training(groups=None, batch_size=BATCH, **options):
    order = grouping.Order(groups or made())
    return pipeline.training(numbered, COUNT, seed=5, batch_size=batch_size, order=order, **options)


def rows_of(batches, steps):
    return [batch["index"].tolist() for batch in itertools.islice(batches, steps)]


def slow_order(groups, epoch):
    """The same walk with plain lists."""
    count, size = len(groups.pair_ids), groups.size
    random = np.random.default_rng((groups.seed, epoch))
    free, whole, rest = set(range(count)), [], []
    for row in random.permutation(count).tolist():
        if row not in free:
            continue
        group = [row]
        for other in groups.neighbours[row].tolist():
            ids = [groups.pair_ids[member] for member in group]
            if other in free and len(group) < size and groups.pair_ids[other] not in ids:
                group.append(other)
        free -= set(group)
        (whole if len(group) == size else rest).append(group)
    flat = list(itertools.chain(*whole, *rest))
    flat = flat[: count - count % size]
    cut = [flat[low : low + size] for low in range(0, len(flat), size)]
    return [row for place in random.permutation(len(cut)) for row in cut[place]]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_an_epoch_against_a_slow_walk(size):
    ids = np.arange(COUNT) // 2
    groups = made(size, ids=ids)
    for epoch in range(3):
        expected = slow_order(groups, epoch)
        assert groups.order(epoch).tolist() == expected
        assert len({*expected}) == len(expected) == groups.per_epoch == COUNT // size * size


def test_families_are_groups():
    groups = made(captions=CAPTIONS[:21])
    families = groups.order(0).reshape(-1, SIZE) // 3
    assert (families == families[:, :1]).all()
    assert sorted(families[:, 0]) == list(range(7))
    assert families[:, 0].tolist() != list(range(7))


def test_pairs_of_one_picture_are_not_put_together():
    # Two captions of each picture, alike but for a word; the pictures of a family are near.
    ids = np.arange(24) // 2
    captions = [
        f"family {'abc'[row // 8] * 3} picture {row // 2} caption {row % 2}" for row in range(24)
    ]
    groups = made(4, captions=captions, ids=ids)
    for epoch in range(4):
        found = groups.order(epoch).reshape(-1, 4)
        assert all(len({*ids[group]}) == 4 for group in found)
        assert all(len({*(group // 8)}) == 1 for group in found)


def test_captions_of_one_picture_among_the_nearest_are_taken_once():
    rows = np.array([[1, 2, 3], [0, 3, -1], [0, 3, -1], [0, 1, 2]], np.int32)
    groups = grouping.Groups(rows, np.array([0, 1, 1, 2]), 3, 0)
    for epoch in range(8):
        group = groups.order(epoch)
        assert len({*groups.pair_ids[group].tolist()}) == 3


def test_every_epoch_has_other_groups_and_leaves_out_other_rows():
    groups = made(captions=["words"] * COUNT)
    orders = [groups.order(epoch).tolist() for epoch in range(6)]
    assert len({*map(tuple, orders)}) == 6
    sets = {
        frozenset(frozenset(order[low : low + SIZE]) for low in range(0, len(order), SIZE))
        for order in orders
    }
    assert len(sets) == 6
    left_out = [frozenset(range(COUNT)) - frozenset(order) for order in orders]
    assert {len(rows) for rows in left_out} == {COUNT % SIZE}
    assert len({*left_out}) > 3
    assert orders[0] == made(captions=["words"] * COUNT).order(0).tolist()
    assert orders[0] != made(captions=["words"] * COUNT, seed=6).order(0).tolist()


def test_where_nothing_is_near_groups_are_random():
    groups = made(captions=["all equal"] * 9, ids=np.zeros(9, int))
    assert (groups.neighbours == -1).all()
    first, second = (groups.order(epoch).tolist() for epoch in range(2))
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second


def test_fewer_than_a_group_are_none():
    groups = made(4, captions=CAPTIONS[:3])
    assert groups.per_epoch == 0
    assert groups.order(0).shape == (0,)
    # Such a list is smaller than any batch that takes whole groups.
    with pytest.raises(types.UserError, match="3 pairs, fewer than the batch of 4"):
        pipeline.training(numbered, 3, seed=0, batch_size=4, order=grouping.Order(groups))


def test_batches_follow_the_order_over_epochs():
    groups = made()
    flat = [row for epoch in range(5) for row in groups.order(epoch).tolist()]
    found = rows_of(training(groups), len(flat) // BATCH)
    assert list(itertools.chain(*found)) == flat[: len(flat) // BATCH * BATCH]
    for epoch in range(4):
        rows = flat[epoch * groups.per_epoch : (epoch + 1) * groups.per_epoch]
        assert max(collections.Counter(rows).values()) == 1
    parts = {
        frozenset(order[low : low + SIZE])
        for order in (groups.order(epoch).tolist() for epoch in range(5))
        for low in range(0, groups.per_epoch, SIZE)
    }
    for batch in found:
        assert {frozenset(batch[low : low + SIZE]) for low in range(0, BATCH, SIZE)} <= parts


@pytest.mark.parametrize("processes", [2, 3])
def test_the_global_batch_is_the_same_for_any_number_of_processes(processes):
    steps = 11
    whole = rows_of(training(), steps)
    shares = [
        rows_of(training(share=pipeline.Share(index, processes)), steps)
        for index in range(processes)
    ]
    for step, expected in enumerate(whole):
        assert sorted(itertools.chain(*(share[step] for share in shares))) == sorted(expected)


@pytest.mark.parametrize("start", [1, 3, 4, 50])
def test_a_pipeline_begun_at_a_step_equals_one_that_ran_there(start):
    ran = rows_of(training(), start + 6)
    assert rows_of(training(start_step=start), 6) == ran[start:]
    share = pipeline.Share(1, 2)
    ran = rows_of(training(share=share), start + 6)
    assert rows_of(training(share=share, start_step=start), 6) == ran[start:]


@pytest.mark.slow
def test_workers_change_nothing(parsed_flags):
    alone, helped = training(), training(workers=2)
    assert rows_of(helped, 9) == rows_of(alone, 9)
    helped.close()


def test_threads_and_copies_see_one_order():
    groups = made()
    expected = np.concatenate([groups.order(epoch) for epoch in range(6)])
    order = pickle.loads(pickle.dumps(grouping.Order(groups)))
    found = np.zeros(len(expected), int)

    def read(first):
        for place in range(first, len(expected), 4):
            found[place] = order(place)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(found, expected)
    assert [order(place) for place in (0, 120, 1, 60)] == expected[[0, 120, 1, 60]].tolist()


def test_an_epoch_is_ordered_once(monkeypatch):
    calls, ordered = [], grouping.Groups.order
    monkeypatch.setattr(
        grouping.Groups, "order", lambda self, epoch: calls.append(epoch) or ordered(self, epoch)
    )
    order = grouping.Order(made())
    for place in range(63):
        order(place)
        order(max(place - 2, 0))
    assert calls == [0, 1, 2]


def test_groups_must_fit():
    grouping.check(4, 64)
    grouping.check(1, 7)
    with pytest.raises(types.UserError, match=r"group_size=4 captions do not fit whole into 30"):
        grouping.check(4, 30)
