"""What galleries show: companions and queries, against loops over all pairs."""

import numpy as np
import pytest

from hnclip_jax.analysis import companions, queries
from hnclip_jax.analysis.report import items

SEEDS = (13, 16, 43, 57)
"""With them, each of two models finds something that the other does not, in both directions."""
OWNERS = np.array([0, 0, 1, 2, 3, 4, 5, 5])


def _unit(rng, rows, width=5):
    found = rng.normal(size=(rows, width)) + 0.5
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def texts():
    captions = [f"A red kite number {n} & the <b>boat</b>" for n in range(8)]
    first = [captions[int(np.searchsorted(OWNERS, record))] for record in range(6)]
    return items.Texts(captions, OWNERS, first)


def _places(image, text, direction, asking):
    """Returns the rank of each query's best right answer, by loops."""
    found = []
    for row in asking:
        scores = _scores(image, text, direction, row)
        own = max(score for n, score in enumerate(scores) if _right(direction, row, n))
        found.append(1 + sum(score > own for score in scores))
    return np.array(found, float)


def _scores(image, text, direction, row):
    ask, answers = (text, image) if direction == "t2i" else (image, text)
    return [float(one.astype(float) @ ask[row].astype(float)) for one in answers]


def _right(direction, row, answer):
    return OWNERS[row] == answer if direction == "t2i" else OWNERS[answer] == row


def _model(name, seed, asking, direction="t2i"):
    rng = np.random.default_rng(seed)
    image, text = _unit(rng, 6), _unit(rng, 8)
    places = _places(image, text, direction, asking)
    ranked = queries.Ranked(places, np.zeros(len(asking), int), (places <= 1).astype(float))
    return items.Model(name, image, text, {direction: ranked})


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
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_queries_that_one_model_finds_and_the_other_does_not(texts, direction, by, seed):
    ask, answer = {"t2i": ("Caption", "picture"), "i2t": ("Picture", "caption")}[direction]
    asking = np.arange(8 if direction == "t2i" else 6)
    a, b = (_model(name, seed + more, asking, direction) for name, more in (("A", 0), ("B", 50)))
    gallery = items.retrieval(by, direction, [a, b], asking, texts, 1000, 3)
    fails, finds = (
        model.ranked[direction].places for model in ((a, b) if by == "rescued" else (b, a))
    )
    expected = [q for q in asking if fails[q] > 1 and finds[q] == 1]
    assert expected, "choose other seeds"
    assert sorted(item.title for item in gallery.items) == [f"{ask} {q}" for q in expected]
    worst = [fails[int(item.title.split()[1])] for item in gallery.items]
    assert worst == sorted(worst, reverse=True)
    assert gallery.title == f"{ask}s {by} by B, against A"
    first, second = ("B", "A") if by == "rescued" else ("A", "B")
    assert gallery.summary.startswith(f"{ask}s whose {answer} {first} ranks first and {second} ")
    assert f" {len(expected)} of {len(asking)} {ask.lower()}s." in gallery.summary
    for item in gallery.items:
        query = int(item.title.split()[1])
        (_, (truth,)), *rows = item.rows
        if direction == "t2i":
            assert item.caption == texts.captions[query]
            assert (truth.record, truth.right) == (OWNERS[query], True)
        else:
            assert (truth.record, truth.caption, truth.told) == (query, texts.first[query], True)
        for (label, shown), model in zip(rows, (a, b), strict=True):
            place = model.ranked[direction].places[query]
            assert label == f"{model.name} ranks its {answer} {place:.0f}"
            scores = _scores(model.image, model.text, direction, query)
            order = sorted(range(len(scores)), key=lambda n: -scores[n])[:3]
            assert [float(one.title.removeprefix("cosine ")) for one in shown] == pytest.approx(
                [scores[n] for n in order], abs=6e-4
            )
            assert [one.right for one in shown] == [_right(direction, query, n) for n in order]
            if direction == "t2i":
                assert [one.record for one in shown] == order
                assert [one.caption for one in shown] == [texts.first[n] for n in order]
            else:
                assert [one.record for one in shown] == [OWNERS[n] for n in order]
                assert [one.caption for one in shown] == [texts.captions[n] for n in order]


def test_captions_that_a_picture_finds_have_the_words_of_its_own_marked():
    captions = ["a red boat", "a blue boat", "the red kite of Ann"]
    texts = items.Texts(captions, np.arange(3), captions)
    image = np.eye(3, dtype=np.float32)
    text = np.roll(image, 1, axis=0)
    ranked = queries.Ranked(np.full(3, 3.0), np.zeros(3, int), np.zeros(3))
    model = items.Model("A", image, text, {"i2t": ranked})
    gallery = items.retrieval("worst", "i2t", [model], np.arange(3), texts, 100, 3)
    assert gallery.summary == (
        "Pictures whose caption A does not rank first, the worst first: 3 of 3 pictures. "
        "Content words that a caption shares with the picture's own are marked."
    )
    first = gallery.items[0]
    assert first.caption == ""
    shown = {one.caption: one for one in first.rows[1][1]}
    marked = {
        caption: [caption[start:end] for start, end in one.spans] for caption, one in shown.items()
    }
    assert marked == {
        "a red boat": ["red", "boat"],
        "a blue boat": ["boat"],
        "the red kite of Ann": ["red"],
    }
    assert [one.right for one in shown.values()] == [caption == "a red boat" for caption in shown]


def test_only_those_that_ask_are_shown(texts):
    asking = np.array([2, 3, 5])
    model = _model("A", 0, asking)
    gallery = items.retrieval("worst", "t2i", [model], asking, texts, 1000, 9)
    order = [f"Caption {q}" for q in asking[np.argsort(-model.ranked["t2i"].places, kind="stable")]]
    assert [item.title for item in gallery.items] == order
    missed = int((model.ranked["t2i"].places > 1).sum())
    assert gallery.summary == (
        f"Captions whose picture A does not rank first, the worst first: {missed} of 3 captions."
    )
    # The gallery has six pictures only.
    assert [len(shown) for _, shown in gallery.items[0].rows] == [1, 6]


def test_no_such_query_is_said(texts):
    asking = np.arange(8)
    model = _model("A", 0, asking)
    gallery = items.retrieval("rescued", "t2i", [model, model], asking, texts, 100, 3)
    assert gallery.items == ()
    assert gallery.summary.endswith(" 0 of 8 captions.")


def test_no_more_than_there_is_room_for(texts):
    asking = np.arange(8)
    models = [_model("A", 1, asking)]
    for most, shown in ((0, 0), (3, 0), (4, 1), (9, 2)):
        assert len(items.retrieval("worst", "t2i", models, asking, texts, most, 3).items) == shown


def test_what_ties_leave_to_chance_is_neither_found_nor_missed(texts):
    asking = np.arange(8)
    a, b = _model("A", 1, asking), _model("B", 51, asking)
    tied = queries.Ranked(np.full(8, 1.5), np.ones(8, int), np.full(8, 0.5))
    for pair in ([a._replace(ranked={"t2i": tied}), b], [a, b._replace(ranked={"t2i": tied})]):
        gallery = items.retrieval("rescued", "t2i", pair, asking, texts, 100, 3)
        assert gallery.summary.endswith(" 0 of 8 captions.")
