"""Average precision: hand-computed, with pairs and with groups, among equal scores."""

import itertools

import numpy as np
import pytest

from hnclip_jax.evaluation import precision, relevance, retrieval


def one_query(scores, right, k):
    """AP@k of a query, from its scores and which items are right."""
    scores = np.array(scores, np.float32)
    right = np.array(right, bool)
    found = relevance.runs(np.zeros(right.sum(), int), scores[right])
    greater = np.array([(scores > score).sum() for score in found.score])
    equal = np.array([(scores == score).sum() for score in found.score])
    return precision.average_precision(found, greater, equal, np.array([right.sum()]), k)[0]


def test_two_right_items_one_of_them_outside_the_first_ten():
    scores = np.linspace(1, 0, 20)
    right = np.zeros(20, bool)
    right[[2, 11]] = True
    # Place 3 gives 1/3, place 12 does not count, and both count as right.
    assert one_query(scores, right, 10) == pytest.approx((1 / 3) / 2)
    assert one_query(scores, right, 12) == pytest.approx((1 / 3 + 2 / 12) / 2)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("kind", range(8))
def test_equal_scores_count_as_the_mean_over_all_orders(kind, k):
    rng = np.random.default_rng(kind)
    scores, right = rng.integers(0, 3, 7), rng.permutation(7) < 1 + kind % 4
    expected = []
    for order in itertools.permutations(range(7)):
        ranked = sorted(order, key=lambda item: -scores[item])
        hits = np.flatnonzero(right[ranked][:k])
        expected.append(sum((n + 1) / (place + 1) for n, place in enumerate(hits)) / right.sum())
    assert one_query(scores, right, k) == pytest.approx(np.mean(expected))


def joint(seed=0):
    """Eight parents, each with a whole and a local picture, and a caption for each picture."""
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((16, 12))
    text = image + 0.8 * rng.standard_normal((16, 12))
    shuffled = rng.permutation(16)
    return image[shuffled], text[shuffled], [f"parent {place % 8}" for place in shuffled]


def reference(image, text, right, k):
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (image, text)]
    values = []
    for row, good in zip(unit[1] @ unit[0].T, right, strict=True):
        hits = np.flatnonzero(good[np.argsort(-row)][:k])
        values.append(sum((n + 1) / (place + 1) for n, place in enumerate(hits)) / good.sum())
    return 100 * np.mean(values)


@pytest.mark.parametrize("rule", relevance.RULES)
def test_map_of_pairs_and_of_groups(rule):
    image, text, groups = joint()
    names = np.array(groups)
    right = np.eye(16, dtype=bool) if rule == "pair" else names[:, None] == names[None, :]
    metrics = retrieval.retrieval_metrics(image, text, map_k=10, groups=groups, relevance=rule)
    assert metrics["t2i_map@10"] == pytest.approx(reference(image, text, right, 10))
    assert metrics["i2t_map@10"] == pytest.approx(reference(text, image, right, 10))


def test_the_map_of_pairs_is_the_mean_reciprocal_rank():
    image, text, _ = joint(1)
    found = retrieval.measure(image, text, map_k=10)
    for name in retrieval.DIRECTIONS:
        place = found.ranks[name].greater + 1
        np.testing.assert_allclose(found.precisions[name], np.where(place <= 10, 1 / place, 0))
    assert (found.ranks["t2i"].greater > 0).any()


def test_the_group_changes_no_recall():
    image, text, groups = joint(2)
    plain = retrieval.retrieval_metrics(image, text)
    grouped = retrieval.retrieval_metrics(image, text, map_k=3, groups=groups, relevance="group")
    assert {name: grouped[name] for name in plain} == plain
    assert grouped["t2i_map@3"] != retrieval.retrieval_metrics(image, text, map_k=3)["t2i_map@3"]


def test_pictures_without_a_group_are_alone():
    image, text, _ = joint()
    alone = retrieval.measure(image, text, map_k=10, groups=[""] * 16, relevance="group")
    pairs = retrieval.measure(image, text, map_k=10)
    for name in retrieval.DIRECTIONS:
        np.testing.assert_array_equal(alone.precisions[name], pairs.precisions[name])


def test_a_local_picture_that_equals_the_whole_one():
    # Both of the parent are right, so that it does not matter which comes first; for recall it does
    image = np.eye(4)[[0, 0, 1, 2]]
    text = np.array([[2, 1, 0, 0], [2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    groups = ["a", "a", "b", "c"]
    metrics = retrieval.retrieval_metrics(
        image, text, ks=(1,), map_k=10, groups=groups, relevance="group"
    )
    assert metrics["t2i_map@10"] == 100
    assert metrics["t2i_r@1"] == 75


def test_many_captions_and_groups_of_unequal_size_and_any_block():
    rng = np.random.default_rng(8)
    image = rng.standard_normal((300, 6))
    owner = np.concatenate([np.arange(300), rng.integers(0, 300, 400)])
    text = image[owner] + rng.standard_normal((700, 6))
    groups = rng.integers(0, 60, 300)
    found = [
        retrieval.measure(
            image, text, owner, map_k=10, groups=groups, relevance="group", block_rows=rows
        )
        for rows in (1, 10_000)
    ]
    right = groups[owner][:, None] == groups[None, :]
    expected = (reference(image, text, right, 10), reference(text, image, right.T, 10))
    for name, value in zip(retrieval.DIRECTIONS, expected, strict=True):
        assert 100 * found[0].precisions[name].mean() == pytest.approx(value)
        np.testing.assert_array_equal(found[0].precisions[name], found[1].precisions[name])
