"""Ranks and recall against hand-computed cases and a float64 double loop."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.evaluation import retrieval

BLOCKS = [1, 7, 64, 129, 1000]


def random_pairs(pictures, texts, width, seed=0):
    """Embeddings of unequal length, and a picture for each caption; every picture has one."""
    rng = np.random.default_rng(seed)
    owner = np.concatenate([np.arange(pictures), rng.integers(0, pictures, texts - pictures)])
    rng.shuffle(owner)
    image = rng.standard_normal((pictures, width))
    text = image[owner] + 2 * rng.standard_normal((texts, width))
    return image.astype(np.float32), text.astype(np.float32), owner


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
        for field, one, other in zip(
            retrieval.Ranks._fields, found[name], expected[name], strict=True
        ):
            np.testing.assert_array_equal(one, other, err_msg=f"{name} {field}")


def test_identity_is_perfect():
    metrics = retrieval.retrieval_metrics(np.eye(12), np.eye(12))
    names = ["t2i_r@1", "t2i_r@5", "t2i_r@10", "i2t_r@1", "i2t_r@5", "i2t_r@10"]
    assert metrics == {**dict.fromkeys(names, 100.0), "ties": 0}
    assert list(metrics) == [*names, "ties"]


def test_known_ranks():
    # With unit pictures along the axes, text j has the scores text[j] up to its length.
    text = np.array([[3, 2, 1], [3, 2, 1], [3, 2, 1.5]])
    metrics = retrieval.retrieval_metrics(np.eye(3), text, ks=(1, 2, 3))
    # Captions: right pictures stand first, second and third.
    assert [metrics[f"t2i_r@{k}"] for k in (1, 2, 3)] == pytest.approx([100 / 3, 200 / 3, 100])
    # Pictures: texts 0 and 1 are equal, text 2 has less of axes 0 and 1 and most of axis 2.
    found = retrieval.ranks(np.eye(3), text)["i2t"]
    assert found.greater.tolist() == [0, 0, 0]
    assert found.equal.tolist() == [1, 1, 0]
    assert [metrics[f"i2t_r@{k}"] for k in (1, 2)] == pytest.approx([200 / 3, 100])
    assert metrics["ties"] == 2


def test_anti_diagonal():
    # The right item scores 0, one wrong item 1, the two others 0 as well.
    metrics = retrieval.retrieval_metrics(np.eye(4), np.eye(4)[::-1], ks=(1, 2, 3, 4))
    for name in ("t2i", "i2t"):
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
        "i2t_r@1": 50.0,
        "i2t_r@2": 100.0,
        "ties": 0,
    }


def test_ragged_captions_in_any_order():
    image, text = np.eye(3), np.eye(3)[[2, 0, 2, 1, 2, 0]]
    found = retrieval.ranks(image, text, [2, 0, 2, 1, 2, 0])
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
    found = retrieval.Ranks(*np.array([[greater], [equal], [right]]))
    # Which places of the tied group its right items can take, each choice equally likely.
    choices = list(itertools.combinations(range(equal + right), right))
    for k in range(1, 10):
        hits = [greater + min(places) < k for places in choices]
        assert retrieval.recall(found, k) == pytest.approx(100 * np.mean(hits))
        assert retrieval.recall(found, k, "optimistic") == 100 * any(hits)
        assert retrieval.recall(found, k, "pessimistic") == 100 * all(hits)


@pytest.mark.parametrize(("pictures", "texts"), [(40, 40), (30, 97), (130, 140)])
def test_double_loop(pictures, texts):
    image, text, owner = random_pairs(pictures, texts, 16)
    # Opposite pairs: the right scores lie below 0, which is what padding would score.
    for sign in (1, -1):
        found = retrieval.ranks(image, sign * text, owner)
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
    for name, value in metrics.items():
        queries = 170 if name.startswith("t2i") else 60
        assert value in {100 * hits / queries for hits in range(queries + 1)}
    assert metrics["t2i_r@60"] == 100.0
    assert 0 < metrics["t2i_r@1"] < metrics["t2i_r@5"]


def test_swapping_the_sides_swaps_the_directions():
    image, text, _ = random_pairs(150, 150, 8)
    one, other = retrieval.ranks(image, text), retrieval.ranks(text, image)
    assert_equal_ranks(one, {"t2i": other["i2t"], "i2t": other["t2i"]})


@pytest.mark.parametrize("width", [7, 64, 513])
def test_duplicates_tie_exactly_and_no_block_size_matters(width):
    rng = np.random.default_rng(width)
    kinds = rng.permutation(np.repeat(np.arange(75), 4))
    image, text, _ = random_pairs(75, 75, width)
    results = [
        retrieval.ranks(image[kinds], text[kinds], block_rows=block_rows) for block_rows in BLOCKS
    ]
    for found in results[0].values():
        assert (found.equal == 3).all()
        assert (found.greater % 4 == 0).all()
        assert found.greater.any()
    for result in results[1:]:
        assert_equal_ranks(result, results[0])


def test_a_block_of_queries_is_all_that_is_held(monkeypatch):
    shapes = []
    count = retrieval._count

    def watched(queries, *rest):
        shapes.append(queries.shape)
        return count(queries, *rest)

    monkeypatch.setattr(retrieval, "_count", watched)
    image, text, owner = random_pairs(300, 600, 8)
    retrieval.ranks(image, text, owner, block_rows=130)
    assert shapes == [(256, 8)] * (3 + 2)
    shapes.clear()
    retrieval.ranks(image, text, owner, block_rows=10_000)
    assert shapes == [(640, 8), (384, 8)]


def test_scores_are_computed_at_full_precision():
    ids = np.arange(128, dtype=np.int32)
    rows = np.ones((128, 8), np.float32)
    program = str(jax.make_jaxpr(retrieval._count)(rows, ids, rows, ids))
    assert program.count("dot_general[") == program.count("(Precision.HIGHEST, Precision.HIGHEST)")
    assert program.count("dot_general[") == 1


@pytest.mark.parametrize("scale", [1e-30, 1e30, None], ids=["tiny", "huge", "random"])
def test_length_of_a_row_changes_nothing(scale):
    image, text, owner = random_pairs(50, 120, 8)
    lengths = np.random.default_rng(1).uniform(0.01, 100, (120, 1)) if scale is None else scale
    scaled = (text * lengths).astype(np.float32)
    assert_equal_ranks(retrieval.ranks(image, scaled, owner), retrieval.ranks(image, text, owner))


def test_a_row_of_zeros_scores_zero():
    image = np.array([[0.0, 0.0], [0.0, 1.0]])
    text = np.array([[1.0, 0.5], [-0.5, 1.0]])
    found = retrieval.ranks(image, text)
    assert found["t2i"].greater.tolist() == [1, 0]
    assert found["i2t"].equal.tolist() == [1, 0]


def test_device_arrays_of_half_precision():
    image, text, owner = random_pairs(20, 40, 8)
    half = [jnp.asarray(rows, jnp.bfloat16) for rows in (image, text)]
    whole = [np.asarray(rows, np.float32) for rows in half]
    assert_equal_ranks(retrieval.ranks(*half, jnp.asarray(owner)), retrieval.ranks(*whole, owner))


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
    "broken k": ((EYE, EYE, None, (1.5,)), r"ks is \(1.5,\)"),
}


@pytest.mark.parametrize(("arguments", "message"), list(ERRORS.values()), ids=list(ERRORS))
def test_what_does_not_fit_is_an_error(arguments, message):
    with pytest.raises(types.UserError, match=message):
        retrieval.retrieval_metrics(*arguments)


def test_block_and_rule_are_checked():
    with pytest.raises(types.UserError, match="block_rows is 0"):
        retrieval.ranks(EYE, EYE, block_rows=0)
    with pytest.raises(types.UserError, match="did you mean 'expected'"):
        retrieval.recall(retrieval.ranks(EYE, EYE)["t2i"], 1, "expect")
