"""Ranks and recall against hand-computed cases and a float64 double loop."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.evaluation import counting, retrieval, ties

BLOCKS = [1, 7, 64, 129, 1000]


def random_pairs(pictures, texts, width, seed=0):
    """Embeddings of unequal length, and a picture for each caption; every picture has one."""
    rng = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(pictures), rng.integers(0, pictures, texts - pictures)])
    rng.shuffle(owner)
    image = rng.standard_normal((pictures, width))
    text = image[owner] + 2 * rng.standard_normal((texts, width))
    return image.astype(np.float32), text.astype(np.float32), owner


def ranks(*args, **kwargs):
    return retrieval.measure(*args, **kwargs).ranks


def reference(queries, query_ids, gallery, gallery_ids):
    """(greater, equal, right) of each query by loops over float64 scores."""
    rows = []
    for query, own in zip(queries.astype(np.float64), query_ids, strict=True):
        scores = [
            float(query @ item) / (np.linalg.norm(query) * np.linalg.norm(item))
            for item in gallery.astype(np.float64)
        ]
        best = max(score for score, other in zip(scores, gallery_ids, strict=True) if other == own)
        counts = [0, 0, 0]
        for score, other in zip(scores, gallery_ids, strict=True):
            same = abs(score - best) < 1e-12
            if other == own:
                counts[2] += same
            else:
                counts[0] += score > best and not same
                counts[1] += same
        rows.append(counts)
    return np.array(rows).T


def assert_equal_ranks(found, expected):
    for name in ("t2i", "i2t"):
        for field, one, other in zip(ties.Ranks._fields, found[name], expected[name], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"{name} {field}")


def test_identity_is_perfect():
    metrics = retrieval.retrieval_metrics(np.eye(12), np.eye(12))
    t2i, i2t = ([f"{name}_r@{k}" for k in (1, 5, 10)] for name in ("t2i", "i2t"))
    medians = {"t2i_median_rank": 1.0, "i2t_median_rank": 1.0}
    assert metrics == {**dict.fromkeys(t2i + i2t, 100.0), **medians, "ties": 0}
    assert list(metrics) == [*t2i, "t2i_median_rank", *i2t, "i2t_median_rank", "ties"]


def test_known_ranks():
    # With unit pictures along the axes, text j has the scores text[j] up to its length.
    text = np.array([[3, 2, 1], [3, 2, 1], [3, 2, 1.5]])
    metrics = retrieval.retrieval_metrics(np.eye(3), text, ks=(1, 2, 3))
    # Captions: right pictures stand first, second and third.
    assert [metrics[f"t2i_r@{k}"] for k in (1, 2, 3)] == pytest.approx([100 / 3, 200 / 3, 100])
    # Pictures: texts 0 and 1 are equal, text 2 has less of axes 0 and 1 and most of axis 2.
    found = ranks(np.eye(3), text)["i2t"]
    assert found.greater.tolist() == [0, 0, 0]
    assert found.equal.tolist() == [1, 1, 0]
    assert [metrics[f"i2t_r@{k}"] for k in (1, 2)] == pytest.approx([200 / 3, 100])
    assert metrics["ties"] == 2


def test_anti_diagonal():
    # The right item scores 0, one wrong item 1, the two others 0 as well.
    metrics = retrieval.retrieval_metrics(np.eye(4), np.eye(4)[::-1], ks=(1, 2, 3, 4))
    for name in ("t2i", "i2t"):
        # One is above it, and it is each of the next three equally often.
        assert metrics[f"{name}_median_rank"] == 3
        recalls = [metrics[f"{name}_r@{k}"] for k in (1, 2, 3, 4)]
        assert recalls == pytest.approx([0, 100 / 3, 200 / 3, 100])
    assert metrics["ties"] == 8


def test_any_of_five_captions_is_a_hit():
    # Pictures at 0 and 90 degrees; five captions of each. Only that at 10 finds picture 0, only
    # that at 75 finds picture 1. Nearest to picture 0 is its own at 10, to picture 1 a wrong at 80.
    angles = np.radians([80, 70, 10, 60, 50, 75, 40, 30, 20, 15])
    text = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    metrics = retrieval.retrieval_metrics(np.eye(2), text, np.repeat([0, 1], 5), ks=(1, 2))
    assert metrics == {
        "t2i_r@1": 20.0,
        "t2i_r@2": 100.0,
        "t2i_median_rank": 2.0,
        "i2t_r@1": 50.0,
        "i2t_r@2": 100.0,
        "i2t_median_rank": 1.5,
        "ties": 0,
    }


def test_ragged_captions_in_any_order():
    image, text = np.eye(3), np.eye(3)[[2, 0, 2, 1, 2, 0]]
    found = ranks(image, text, [2, 0, 2, 1, 2, 0])
    assert found["i2t"].right.tolist() == [2, 1, 3]
    assert found["t2i"].right.tolist() == [1] * 6
    assert not any(ranks.greater.any() or ranks.equal.any() for ranks in found.values())


@pytest.mark.parametrize("captions", [1, 5])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_constant_embeddings_score_chance(captions, k):
    pictures = 20
    texts = captions * pictures
    metrics = retrieval.retrieval_metrics(
        np.ones((pictures, 6)), np.ones((texts, 6)), np.arange(texts) // captions, ks=(k,)
    )
    none_found = math.comb(texts - captions, k) / math.comb(texts, k)
    assert metrics[f"t2i_r@{k}"] == pytest.approx(100 * k / pictures)
    assert metrics[f"i2t_r@{k}"] == pytest.approx(100 * (1 - none_found))
    assert metrics["ties"] == pictures + texts


@pytest.mark.parametrize("greater", [0, 1, 3])
@pytest.mark.parametrize("equal", [0, 2, 4])
@pytest.mark.parametrize("right", [1, 2])
def test_tie_rules_against_every_order(greater, equal, right):
    found = ties.Ranks(*np.array([[greater], [equal], [right]]))
    # Which places of the tied group its right items can take, each choice equally likely.
    choices = list(itertools.combinations(range(equal + right), right))
    for k in range(1, 10):
        hits = [greater + min(places) < k for places in choices]
        assert ties.recall(found, k) == pytest.approx(100 * np.mean(hits))
        assert ties.recall(found, k, "optimistic") == 100 * any(hits)
        assert ties.recall(found, k, "pessimistic") == 100 * all(hits)


@pytest.mark.parametrize(("pictures", "texts"), [(40, 40), (30, 97), (130, 140)])
def test_double_loop(pictures, texts):
    image, text, owner = random_pairs(pictures, texts, 16)
    # Opposite pairs: the right scores lie below 0, which is what padding would score.
    for sign in (1, -1):
        found = ranks(image, sign * text, owner)
        ids = np.arange(pictures)
        expected = {
            "t2i": reference(sign * text, owner, image, ids),
            "i2t": reference(image, ids, sign * text, owner),
        }
        assert_equal_ranks(found, expected)


def test_no_ties_give_whole_counts():
    image, text, owner = random_pairs(60, 170, 8)
    metrics = retrieval.retrieval_metrics(image, text, owner, ks=range(1, 61))
    assert metrics.pop("ties") == 0
    for name in [name for name in metrics if "_r@" in name]:
        value = metrics[name]
        queries = 170 if name.startswith("t2i") else 60
        assert value in {100 * hits / queries for hits in range(queries + 1)}
    assert metrics["t2i_r@60"] == 100.0
    assert 0 < metrics["t2i_r@1"] < metrics["t2i_r@5"]


def test_swapping_the_sides_swaps_the_directions():
    image, text, _ = random_pairs(150, 150, 8)
    one, other = ranks(image, text), ranks(text, image)
    assert_equal_ranks(one, {"t2i": other["i2t"], "i2t": other["t2i"]})


@pytest.mark.parametrize("width", [7, 64, 513])
def test_duplicates_tie_exactly_and_no_block_size_matters(width):
    rng = np.random.default_rng(width)
    kinds = rng.permutation(np.repeat(np.arange(75), 4))
    image, text, _ = random_pairs(75, 75, width)
    results = [ranks(image[kinds], text[kinds], block_rows=block_rows) for block_rows in BLOCKS]
    for found in results[0].values():
        assert (found.equal == 3).all()
        assert (found.greater % 4 == 0).all()
        assert found.greater.any()
    for result in results[1:]:
        assert_equal_ranks(result, results[0])


@pytest.mark.parametrize("sizes", [(1100, 1300), (2100, 700)], ids=["wide", "narrow"])
def test_equal_rows_tie_wherever_they_stand(sizes):
    # Several tiles each way, the last ones padded; ten kinds, so that all counts are known.
    rng = np.random.default_rng(5)
    kinds = rng.standard_normal((10, 33))
    pictures, texts = (rng.integers(0, 10, size) for size in sizes)
    texts[:10] = pictures[:10] = range(10)
    text_to_image = np.array([rng.choice(np.flatnonzero(pictures == kind)) for kind in texts])
    bare = np.setdiff1d(np.arange(sizes[0]), text_to_image)
    text_to_image = np.concatenate([text_to_image, bare])
    texts = np.concatenate([texts, pictures[bare]])
    found = ranks(kinds[pictures], kinds[texts], text_to_image, block_rows=300)
    per_kind = np.bincount(pictures, minlength=10), np.bincount(texts, minlength=10)
    own = np.bincount(text_to_image)
    np.testing.assert_array_equal(found["t2i"].equal, per_kind[0][texts] - 1)
    np.testing.assert_array_equal(found["i2t"].equal, per_kind[1][pictures] - own)
    np.testing.assert_array_equal(found["i2t"].right, own)
    assert not found["t2i"].greater.any()
    assert not found["i2t"].greater.any()


def test_a_block_of_captions_and_a_tile_of_pictures_are_all_that_is_held(monkeypatch):
    shapes = []
    product = counting._product

    def watched(text, image):
        shapes.append((len(text), len(image)))
        return product(text, image)

    monkeypatch.setattr(counting, "_product", watched)
    image, text, owner = random_pairs(1300, 1500, 8)
    seen = []
    ranks(image, text, owner, block_rows=700, progress=lambda *done: seen.append(done))
    assert {*shapes} == {(768, 768)}
    # Each block meets each tile once; before that, those that hold right pairs.
    assert 4 + 2 <= len(shapes) <= 4 + 3
    assert seen == [(768, 1500), (1500, 1500)]
    shapes.clear()
    ranks(image, text, owner, block_rows=10_000)
    assert {*shapes} == {(1536, 768)}


def test_scores_are_computed_at_full_precision():
    rows = np.ones((256, 8), np.float32)
    program = str(jax.make_jaxpr(counting._product)(rows, rows))
    assert program.count("dot_general[") == program.count("(Precision.HIGHEST, Precision.HIGHEST)")
    assert program.count("dot_general[") == 1


def test_as_many_queries_as_two_counts_in_one_number_can_bear():
    pictures, texts = 3, 40_000
    found = ranks(
        np.ones((pictures, 2)), np.ones((texts, 2)), np.arange(texts) % 3, block_rows=texts
    )
    np.testing.assert_array_equal(found["i2t"].equal + found["i2t"].right, texts)
    best = np.tile([[1.0, 0.0]], (texts - 3, 1))
    text = np.concatenate([np.tile([[0.0, 1.0]], (3, 1)), best])
    owner = np.concatenate([np.arange(3), np.full(texts - 3, 2)])
    found = ranks(np.tile([[1.0, 0.0]], (3, 1)), text, owner, block_rows=texts)
    assert found["i2t"].greater.tolist() == [texts - 3, texts - 3, 0]


def test_fewer_queries_ask_a_gallery_that_stays_whole():
    image, text, owner = random_pairs(140, 400, 8)
    asking = np.random.default_rng(3).permutation(140)[:50]
    whole, part = (
        retrieval.measure(image, text, owner, queries=queries, map_k=5)
        for queries in (None, asking.tolist())
    )
    pictures = np.sort(asking)
    captions = np.flatnonzero(np.isin(owner, asking))
    for name, rows in (("t2i", captions), ("i2t", pictures)):
        for one, other in zip(part.ranks[name], whole.ranks[name], strict=True):
            np.testing.assert_array_equal(one, other[rows])
        np.testing.assert_array_equal(part.precisions[name], whole.precisions[name][rows])
    assert part.gallery == {"t2i": 140, "i2t": 400}
    metrics = part.metrics((1,))
    assert metrics["i2t_r@1"] == 100 * np.mean(whole.ranks["i2t"].greater[pictures] == 0)


@pytest.mark.parametrize("seed", range(4))
def test_every_metric_against_a_slow_implementation(seed):
    # Five vectors with the products 0, 0.5 and 1, so that scores tie in every way: right with
    # wrong, right with right, above and below the best.
    rng = np.random.default_rng(seed)
    kinds = np.concatenate([np.eye(4), np.full((1, 4), 0.5)])
    pictures, texts = rng.integers(0, 5, 9), rng.integers(0, 5, 20)
    owner = np.concatenate([np.arange(9), rng.integers(0, 9, 11)])
    metrics = retrieval.retrieval_metrics(
        kinds[pictures], kinds[texts], owner, ks=(1, 3, 8), map_k=4
    )
    scores = kinds[pictures] @ kinds[texts].T
    right = np.arange(9)[:, None] == owner[None, :]
    expected, ties = {}, 0
    for name, table, relevant in (("t2i", scores.T, right.T), ("i2t", scores, right)):
        rows = [slow(row, good, (1, 3, 8), 4) for row, good in zip(table, relevant, strict=True)]
        for key in rows[0][0]:
            middle = np.median if key == "median_rank" else np.mean
            expected[f"{name}_{key}"] = float(middle([row[0][key] for row in rows]))
        ties += sum(row[1] for row in rows)
    assert ties
    assert metrics == pytest.approx({**expected, "ties": ties})


def slow(scores, right, ks, map_k):
    """One query's metrics, the mean over all orders of its equal scores; and whether it is tied."""
    start, earlier, precision, firsts, tied = 0, 0, 0.0, [], False
    for score in sorted({*scores}, reverse=True):
        block = right[scores == score]
        # Which of the block's places the right items take, each choice equally likely.
        choices = [
            [start + place + 1 for place in places]
            for places in itertools.combinations(range(len(block)), int(block.sum()))
        ]
        precision += np.mean(
            [sum((earlier + n) / p for n, p in enumerate(c, 1) if p <= map_k) for c in choices]
        )
        if block.any() and not firsts:
            firsts, tied = [min(places) for places in choices], not block.all()
        start, earlier = start + len(block), earlier + int(block.sum())
    found = {f"r@{k}": 100 * np.mean([first <= k for first in firsts]) for k in ks}
    found[f"map@{map_k}"] = 100 * precision / right.sum()
    found["median_rank"] = np.mean(firsts)
    return found, tied


def test_float32_and_float64_agree():
    image, text, owner = random_pairs(200, 300, 64, seed=4)
    similarity = (text / np.linalg.norm(text, axis=1, keepdims=True)).astype(np.float64) @ (
        (image / np.linalg.norm(image, axis=1, keepdims=True)).astype(np.float64).T
    )
    greater = (similarity > similarity[np.arange(300), owner][:, None]).sum(axis=1)
    np.testing.assert_array_equal(ranks(image, text, owner)["t2i"].greater, greater)


@pytest.mark.parametrize("scale", [1e-30, 1e30, None], ids=["tiny", "huge", "random"])
def test_length_of_a_row_changes_nothing(scale):
    image, text, owner = random_pairs(50, 120, 8)
    lengths = np.random.default_rng(1).uniform(0.01, 100, (120, 1)) if scale is None else scale
    scaled = (text * lengths).astype(np.float32)
    assert_equal_ranks(ranks(image, scaled, owner), ranks(image, text, owner))


def test_a_row_of_zeros_scores_zero():
    image = np.array([[0.0, 0.0], [0.0, 1.0]])
    text = np.array([[1.0, 0.5], [-0.5, 1.0]])
    found = ranks(image, text)
    assert found["t2i"].greater.tolist() == [1, 0]
    assert found["i2t"].equal.tolist() == [1, 0]


def test_device_arrays_of_half_precision():
    image, text, owner = random_pairs(20, 40, 8)
    half = [jnp.asarray(rows, jnp.bfloat16) for rows in (image, text)]
    whole = [np.asarray(rows, np.float32) for rows in half]
    assert_equal_ranks(ranks(*half, jnp.asarray(owner)), ranks(*whole, owner))


def with_nan(rows):
    rows = rows.copy()
    rows[[2, 3], 1] = np.nan, np.inf
    return rows


EYE = np.eye(4)


ERRORS = {
    "image not finite": (
        (with_nan(EYE), EYE),
        "2 of 4 image embeddings hold NaN or infinity, the first is row 2",
    ),
    "text not finite": ((EYE, with_nan(EYE)), "2 of 4 text embeddings hold NaN"),
    "counts": ((EYE, EYE[:3]), "4 pictures but 3 captions; give text_to_image"),
    "widths": ((EYE, EYE[:, :2]), "width 4, text embeddings 2"),
    "rank": ((EYE[0], EYE), r"image embeddings have shape \(4,\)"),
    "empty": ((EYE[:0], EYE), r"image embeddings have shape \(0, 4\)"),
    "owners": ((EYE, EYE, [0, 1, 2]), r"text_to_image is int64 \[3\].* 4 captions"),
    "owner type": ((EYE, EYE, [0.0, 1, 2, 3]), "text_to_image is float64"),
    "owner too large": ((EYE, EYE, [0, 1, 2, 4]), "from 0 to 4, but there are 4 pictures"),
    "owner below 0": ((EYE, EYE, [-1, 1, 2, 3]), "from -1 to 3"),
    "bare picture": (
        (EYE, EYE, [0, 0, 1, 1]),
        "2 of 4 pictures have no caption, the first is row 2",
    ),
    "k of 0": ((EYE, EYE, None, (1, 0)), r"ks is \(1, 0\)"),
    "no k": ((EYE, EYE, None, ()), r"ks is \(\)"),
    "broken k": ((EYE, EYE, None, (1.5,)), r"ks is \(1.5,\)"),
}


@pytest.mark.parametrize(("arguments", "message"), list(ERRORS.values()), ids=list(ERRORS))
def test_what_does_not_fit_is_an_error(arguments, message):
    with pytest.raises(types.UserError, match=message):
        retrieval.retrieval_metrics(*arguments)


OPTIONS = {
    "a query twice": ({"queries": [1, 1]}, "queries are 2 positions of 4 pictures"),
    "no query": ({"queries": []}, "queries are 0 positions"),
    "a query too far": ({"queries": [4]}, "from 0 to 3"),
    "too few groups": ({"groups": ["a"], "relevance": "group", "map_k": 3}, "1 groups for 4"),
    "relevance": ({"relevance": "pairs"}, "did you mean 'pair'"),
    "map_k": ({"map_k": -1}, "map_k is -1"),
}


@pytest.mark.parametrize(("options", "message"), list(OPTIONS.values()), ids=list(OPTIONS))
def test_options_are_checked(options, message):
    with pytest.raises(types.UserError, match=message):
        retrieval.measure(EYE, EYE, **options)


def test_a_device_that_gives_one_product_two_results_is_noticed(monkeypatch):
    tally = counting._tally
    monkeypatch.setattr(counting, "_tally", lambda scores, *rest: tally(scores * 0.5, *rest))
    with pytest.raises(types.UserError, match="JAX_PLATFORMS=cpu"):
        retrieval.measure(EYE, EYE)


def test_block_and_rule_are_checked():
    with pytest.raises(types.UserError, match="block_rows is 0"):
        ranks(EYE, EYE, block_rows=0)
    with pytest.raises(types.UserError, match="did you mean 'expected'"):
        ties.recall(ranks(EYE, EYE)["t2i"], 1, "expect")
