"""What galleries show: companions and queries, against loops over all pairs."""

import numpy as np
import pytest

from hnclip_jax.analysis import companions, queries
from hnclip_jax.analysis.report import items

SEEDS = (13, 33, 43, 57)
"""With them, each of two models finds something that the other does not."""
OWNERS = np.array([0, 0, 1, 2, 3, 4, 5, 5])


def _unit(rng, rows, width=5):
    found = rng.normal(size=(rows, width)) + 0.5
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def texts():
    captions = [f"A red kite number {n} & the <b>boat</b>" for n in range(8)]
    first = [captions[int(np.searchsorted(OWNERS, record))] for record in range(6)]
    return items.Texts(captions, OWNERS, first)


def _places(image, text, asking):
    """Returns the rank of each query's own picture, by loops."""
    found = []
    for row in asking:
        scores = [
            float(image[m].astype(float) @ text[row].astype(float)) for m in range(len(image))
        ]
        own = scores[OWNERS[row]]
        found.append(1 + sum(score > own for score in scores))
    return np.array(found, float)


def _model(name, seed, asking):
    rng = np.random.default_rng(seed)
    image, text = _unit(rng, 6), _unit(rng, 8)
    places = _places(image, text, asking)
    ranked = queries.Ranked(places, np.zeros(len(asking), int), (places <= 1).astype(float))
    return items.Model(name, image, text, ranked)


def test_duplicates_name_captions_and_mark_what_they_share(texts):
    found = companions.Companions(
        np.array([2, 7]),
        np.array([[3, 0], [4, -1]]),
        np.array([[0.98, 0.5], [0.91, -np.inf]], np.float32),
    )
    gallery = items.duplicates("runs/hn", found, texts)
    assert gallery.title == "Near-duplicate captions by runs/hn"
    assert [item.title for item in gallery.items] == [
        "Caption 2, nearest companion at cosine 0.980",
        "Caption 7, nearest companion at cosine 0.910",
    ]
    (_, first), (_, second) = (item.rows[0] for item in gallery.items)
    assert [shown.record for shown in first] == [1, 2, 0]
    assert [shown.record for shown in second] == [5, 3]
    assert [shown.title for shown in first] == [
        "The caption",
        "Caption 3, cosine 0.980",
        "Caption 0, cosine 0.500",
    ]
    assert first[0].caption == texts.captions[2]
    assert not first[0].spans
    assert first[1].caption == texts.captions[3]
    marked = [texts.captions[3][start:end] for start, end in first[1].spans]
    assert marked == ["red", "kite", "number", "b", "boat", "b"]
    assert all(shown.told for shown in first)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", ["rescued", "lost"])
def test_queries_that_one_model_finds_and_the_other_does_not(texts, by, seed):
    asking = np.arange(8)
    a, b = _model("A", seed, asking), _model("B", seed + 50, asking)
    gallery = items.retrieval(by, [a, b], asking, texts, 1000, 3)
    fails, finds = (a, b) if by == "rescued" else (b, a)
    expected = [q for q in asking if fails.ranked.places[q] > 1 and finds.ranked.places[q] == 1]
    assert expected, "choose other seeds"
    assert sorted(item.title for item in gallery.items) == [f"Caption {q}" for q in expected]
    worst = [fails.ranked.places[int(item.title.split()[1])] for item in gallery.items]
    assert worst == sorted(worst, reverse=True)
    assert gallery.summary.endswith(f" {len(expected)} of 8 captions.")
    assert {"rescued": "Rescued by B, against A", "lost": "Lost by B, against A"}[
        by
    ] == gallery.title
    for item in gallery.items:
        query = int(item.title.split()[1])
        assert item.caption == texts.captions[query]
        (_, (truth,)), *rows = item.rows
        assert (truth.record, truth.right) == (OWNERS[query], True)
        for (label, shown), model in zip(rows, (a, b), strict=True):
            assert label == f"{model.name} ranks it {model.ranked.places[query]:.0f}"
            scores = model.image.astype(float) @ model.text[query].astype(float)
            order = sorted(range(6), key=lambda m: -scores[m])[:3]
            assert [one.record for one in shown] == order
            assert [float(one.title.removeprefix("cosine ")) for one in shown] == pytest.approx(
                scores[order], abs=6e-4
            )
            assert [one.right for one in shown] == [m == OWNERS[query] for m in order]
            assert [one.caption for one in shown] == [texts.first[m] for m in order]


def test_only_those_that_ask_are_shown(texts):
    asking = np.array([2, 3, 5])
    model = _model("A", 0, asking)
    gallery = items.retrieval("worst", [model], asking, texts, 1000, 9)
    order = [f"Caption {q}" for q in asking[np.argsort(-model.ranked.places, kind="stable")]]
    assert [item.title for item in gallery.items] == order
    missed = int((model.ranked.places > 1).sum())
    assert gallery.summary == (
        f"Captions whose picture A does not rank first, the worst first: {missed} of 3 captions."
    )
    # The gallery has six pictures only.
    assert [len(shown) for _, shown in gallery.items[0].rows] == [1, 6]


def test_no_such_query_is_said(texts):
    asking = np.arange(8)
    model = _model("A", 0, asking)
    gallery = items.retrieval("rescued", [model, model], asking, texts, 100, 3)
    assert gallery.items == ()
    assert gallery.summary.endswith(" 0 of 8 captions.")


def test_no_more_than_there_is_room_for(texts):
    asking = np.arange(8)
    models = [_model("A", 1, asking)]
    for most, shown in ((0, 0), (3, 0), (4, 1), (9, 2)):
        assert len(items.retrieval("worst", models, asking, texts, most, 3).items) == shown


def test_what_ties_leave_to_chance_is_neither_found_nor_missed(texts):
    asking = np.arange(8)
    a, b = _model("A", 1, asking), _model("B", 51, asking)
    tied = queries.Ranked(np.full(8, 1.5), np.ones(8, int), np.full(8, 0.5))
    for pair in ([a._replace(ranked=tied), b], [a, b._replace(ranked=tied)]):
        gallery = items.retrieval("rescued", pair, asking, texts, 100, 3)
        assert gallery.summary.endswith(" 0 of 8 captions.")
