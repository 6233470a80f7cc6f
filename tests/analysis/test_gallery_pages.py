"""What galleries show of a list: numbers against plain loops, drawn as they are written."""

import json

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.analysis import (
    companions,
    gallery_duplicates,
    gallery_records,
    gallery_retrieval,
    gallery_top,
)
from hnclip_jax.data import images, lists


@pytest.fixture
def own(drawn, tmp_path):
    """A list of seven pictures; the second has three captions, the last one is a broken file."""
    rows = json.loads(drawn[1].read_text())[:7]
    for row in rows:
        name = next(key for key in row if key != "caption" and str(row[key]).endswith(".png"))
        row[name] = str(drawn[1].parent / row[name])
    rows[1]["caption"] = ["A red kite, above the hill", "One kite. Red!", "the of and"]
    rows[2]["caption"] = "hill with a red ball"
    (tmp_path / "broken.png").write_bytes(b"no picture")
    rows[6][name] = str(tmp_path / "broken.png")
    (tmp_path / "list.json").write_text(json.dumps(rows))
    return lists.read(tmp_path / "list.json").records


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def vectors(own):
    rng = np.random.default_rng(2)
    return unit(rng.normal(size=(7, 5))), unit(rng.normal(size=(9, 5)))


def captions_of(records):
    return lists.views(records)[1]


def test_the_numbers_of_duplicates_are_words_cosines_and_shares(own):
    captions = captions_of(own)
    found = companions.Companions(
        np.array([1, 3]), np.array([[4, 2], [4, -1]]), np.array([[0.5, 0.25], [0.125, -np.inf]])
    )
    one, other = gallery_duplicates.numbers(found, captions)
    assert (one["row"], one["picture"], one["id"]) == (1, 1, own[1].id)
    assert one["caption"] == "A red kite, above the hill"
    first, second = one["companions"]
    assert (first["row"], first["picture"], first["id"]) == (4, 2, own[2].id)
    assert (first["cosine"], second["cosine"]) == (0.5, 0.25)
    assert (first["shared"], first["share"]) == (["red", "hill"], 2 / 4)
    assert (second["shared"], second["share"]) == (["red", "kite"], 2 / 4)
    assert [item["row"] for item in other["companions"]] == [4]
    assert np.isnan(other["companions"][0]["share"])
    table = gallery_duplicates.table([one, other])
    assert [(row["row"], row["companion"], row["companion_row"]) for row in table] == [
        (1, 1, 4), (1, 2, 2), (3, 1, 4),
    ]  # fmt: skip
    assert table[0]["shared"] == "red hill"
    assert table[1]["companion_caption"] == "One kite. Red!"


def test_the_page_of_duplicates_shows_these_numbers(own):
    captions = captions_of(own)
    found = companions.Companions(np.array([1]), np.array([[4, 2]]), np.array([[0.5, 0.25]]))
    shown = gallery_duplicates.numbers(found, captions)
    load = gallery_records.Pictures(own, images.DEFAULT, print)
    (block,) = gallery_duplicates.blocks(shown, load)
    text = block.heading.caption
    assert [text[slice(*span)] for span in block.heading.marked] == ["red", "kite", "hill"]
    ((_, (first, second)),) = block.rows
    assert first.title == f"{own[2].id}\ncosine 0.500, 2 of 4 words"
    assert [first.caption[slice(*span)] for span in first.marked] == ["hill", "red"]
    assert [second.caption[slice(*span)] for span in second.marked] == ["kite", "Red"]
    np.testing.assert_array_equal(block.heading.picture, images.load_image(own[1].image, 224))
    np.testing.assert_array_equal(first.picture, images.load_image(own[2].image, 224))
    np.testing.assert_array_equal(second.picture, block.heading.picture)
    assert not any(cell.true for cell in (block.heading, first, second))


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_the_top_is_that_of_plain_loops(own, vectors, direction):
    image, text = vectors
    owner = captions_of(own).positions
    rows = np.array([5, 0, 1])
    found = gallery_top.top(image, text, owner, direction, rows, 4)
    for number, row in enumerate(rows):
        asks, gallery = (text[row], image) if direction == "t2i" else (image[row], text)
        scores = [
            sum(float(a) * float(b) for a, b in zip(asks, item, strict=True)) for item in gallery
        ]
        order = sorted(range(len(scores)), key=lambda item: -scores[item])[:4]
        assert found.found[number].tolist() == order
        np.testing.assert_allclose(
            found.cosines[number], [scores[item] for item in order], atol=1e-6
        )
        right = [owner[row] == item if direction == "t2i" else owner[item] == row for item in order]
        assert found.right[number].tolist() == right
    assert found.right.any()


def test_where_the_gallery_is_small_nothing_is_right_that_is_not_there(vectors):
    image, text = vectors
    for direction in ("t2i", "i2t"):
        found = gallery_top.top(image[:2], text[:2], np.array([0, 1]), direction, np.array([1]), 4)
        assert sorted(found.found[0].tolist()) == [-1, -1, 0, 1]
        assert found.right.sum() == 1


def test_the_hardness_of_a_picture_is_that_of_its_hardest_caption():
    nearest = np.array([0.1, 0.5, 0.3, 0.2], np.float32)
    owner = np.array([0, 1, 1, 2])
    rows = np.array([2, 1])
    assert gallery_top.hardness(nearest, owner, "t2i", rows).tolist() == nearest[[2, 1]].tolist()
    assert gallery_top.hardness(nearest, owner, "i2t", rows).tolist() == nearest[[3, 1]].tolist()


def answers(own, vectors, direction, rows):
    image, text = vectors
    owner = captions_of(own).positions
    top = gallery_top.top(image, text, owner, direction, rows, 3)
    places, equal = np.array([2.5, 7, 1]), np.array([3, 0, 0])
    return [gallery_retrieval.Answers(name, places, equal, top) for name in ("A: x", "B: y")], top


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_the_numbers_of_retrieval_name_the_queries_and_what_was_found(own, vectors, direction):
    rows, captions = np.array([2, 0, 1]), captions_of(own)
    models, top = answers(own, vectors, direction, rows)
    shown = gallery_retrieval.numbers(direction, rows, captions, models)
    assert [one["row"] for one in shown] == [2, 0, 1]
    of_text = direction == "t2i"
    assert [one["picture"] for one in shown] == ([1, 0, 1] if of_text else [2, 0, 1])
    assert [one["id"] for one in shown] == [own[one["picture"]].id for one in shown]
    assert shown[0]["captions"] == ["One kite. Red!" if of_text else "hill with a red ball"]
    assert len(shown[2]["captions"]) == (1 if of_text else 3)
    for number, one in enumerate(shown):
        assert [model["model"] for model in one["models"]] == ["A: x", "B: y"]
        for model in one["models"]:
            assert model["gallery"] == (7 if of_text else 9)
            assert (model["rank"], model["tied"]) == [(2.5, 3), (7, 0), (1, 0)][number]
            for place, item in enumerate(model["top"]):
                assert item["row"] == top.found[number, place]
                assert item["cosine"] == top.cosines[number, place]
                assert item["right"] == top.right[number, place]
                assert item["id"] == own[item["picture"]].id
                if not of_text:
                    assert item["caption"] == captions[item["row"]]
                    assert item["caption"] in own[item["picture"]].captions
    table = gallery_retrieval.table(shown)
    assert len(table) == 3 * 2 * 3
    assert [row["place"] for row in table[:4]] == [1, 2, 3, 1]
    assert table[4]["model"] == "B: y"
    assert table[4]["found_row"] == top.found[0, 1]
    assert table[4]["rank"] == 2.5


def test_the_page_of_retrieval_shows_these_numbers(own, vectors):
    rows, captions = np.array([0, 1, 5]), captions_of(own)
    models, top = answers(own, vectors, "t2i", rows)
    shown = gallery_retrieval.numbers("t2i", rows, captions, models)
    load = gallery_records.Pictures(own, images.DEFAULT, print)
    blocks = gallery_retrieval.blocks("t2i", shown, load)
    assert blocks[1].heading.caption == "A red kite, above the hill"
    assert blocks[1].heading.true
    labels = [label for label, _ in blocks[0].rows]
    tied = "true picture: rank 2.5 of 7, tied with 3"
    assert labels == [f"A: x\n{tied}", f"B: y\n{tied}"]
    assert blocks[1].rows[0][0] == "A: x\ntrue picture: rank 7 of 7"
    for number, block in enumerate(blocks):
        for _, cells in block.rows:
            assert [cell.true for cell in cells] == top.right[number].tolist()
            for place, cell in enumerate(cells):
                cosine = top.cosines[number, place]
                name = own[top.found[number, place]].id
                assert cell.title == f"{name}\n{place + 1}. cosine {cosine:.3f}"
                assert cell.caption == ""


def test_captions_that_are_found_have_their_pictures_and_the_words_of_right_ones(own, vectors):
    rows, captions = np.array([1]), captions_of(own)
    image, text = vectors
    top = gallery_top.top(image, text, captions.positions, "i2t", rows, 9)
    answer = gallery_retrieval.Answers("x", np.array([1.0]), np.array([0]), top)
    shown = gallery_retrieval.numbers("i2t", rows, captions, [answer])
    told = []
    load = gallery_records.Pictures(own, images.DEFAULT, told.append)
    (block,) = gallery_retrieval.blocks("i2t", shown, load)
    assert not block.heading.true
    assert block.heading.caption == "A red kite, above the hill / One kite. Red! / the of and"
    ((label, cells),) = block.rows
    assert label == "x\ntrue caption: rank 1 of 9"
    assert sum(cell.true for cell in cells) == 3
    by_caption = {cell.caption: cell for cell in cells}
    ball = by_caption["hill with a red ball"]
    assert [ball.caption[slice(*span)] for span in ball.marked] == ["hill", "red"]
    np.testing.assert_array_equal(ball.picture, images.load_image(own[2].image, 224))
    # The broken one is an empty box, and is told of in a line.
    assert by_caption[captions[8]].picture is None
    (line,) = told
    assert line.startswith("cannot decode picture ")
    assert line.endswith("; an empty box stands for it")


def test_a_broken_picture_is_told_once(own):
    told = []
    load = gallery_records.Pictures(own, images.DEFAULT, told.append)
    assert load(6) is None
    assert load(6) is None
    assert len(told) == 1
    assert load(0).shape == (224, 224, 3)
    assert len(told) == 1


def test_pictures_that_have_a_size_are_asked_for_that(own):
    class Ready:
        size = 24

        def pixels(self, size):
            assert size == 24
            return np.full((size, size, 3), 7, np.uint8)

    record = lists.Record(0, Ready(), ("x",), "ready")
    assert gallery_records.Pictures([record], images.DEFAULT, print)(0).shape == (24, 24, 3)


def test_options_say_how_files_become_pixels(own):
    tried = images.Options(max_pixels=5)
    told = []
    assert gallery_records.Pictures(own, tried, told.append)(0) is None
    assert "more than 5" in told[0]


def test_records_are_found_by_id(own):
    names = [own[4].id, own[0].id]
    assert list(gallery_records.positions(own, names).items()) == [(names[0], 4), (names[1], 0)]
    with pytest.raises(types.UserError, match=f"no picture .* '{own[3].id}x'; did you mean"):
        gallery_records.positions(own, [f"{own[3].id}x"])
    with pytest.raises(types.UserError, match="the id 'qqqqqqqqq'; there are "):
        gallery_records.positions(own, ["qqqqqqqqq"])
    with pytest.raises(types.UserError, match="is given twice; name each picture once"):
        gallery_records.positions(own, [names[0], names[1], names[0]])
