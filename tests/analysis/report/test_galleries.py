"""Galleries: as many pictures as there is room for, and captions that are always text."""

import pytest

from hnclip_jax.analysis.report import galleries
from hnclip_jax.data import thumbnails
from tests.analysis.report import reading

HOSTILE = """<script>alert("x")</script> 'a' <img src=x onerror="alert(1)">"""


def _picture(record, **options):
    return galleries.Picture(record, f"0.{record}", f"caption of {record}", **options)


def _item(*records, title="An item", **options):
    return galleries.Item(title, "", (("row", tuple(_picture(r, **options) for r in records)),))


def _gallery(*items):
    return galleries.Gallery("A gallery", "Of items.", items)


def _copies(*records):
    return {r: thumbnails.Thumbnail(f"{r}.jpg", 200 + r, 100) for r in records}


def _sizes(fitted):
    return [[item.count for item in one.items] for one in fitted]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (100, [[3, 3, 3], [2], [4, 4, 4]]),
        (23, [[3, 3, 3], [2], [4, 4, 4]]),
        (22, [[3, 3, 3], [2], [4, 4]]),
        (12, [[3], [2], [4]]),
        (11, [[3], [2], [4]]),
        (9, [[3], [2], [4]]),
        (5, [[], [], [4]]),
        (1, [[], [], []]),
    ],
)
def test_pictures_are_shared_out(most, expected):
    found = [
        _gallery(_item(1, 2, 3), _item(1, 2, 4), _item(5, 6, 7)),
        _gallery(_item(1, 2)),
        _gallery(*(_item(1, 2, 3, 4) for _ in range(3))),
    ]
    fitted = galleries.fit(found, most)
    assert sum(map(sum, _sizes(fitted))) <= most
    assert _sizes(fitted) == expected
    assert [one.title for one in fitted] == ["A gallery"] * 3


def test_each_record_is_wanted_once():
    found = [_gallery(_item(5, 2), _item(2)), _gallery(_item(9, 5))]
    assert galleries.records(found) == [2, 5, 9]


def test_pictures_come_with_their_size_and_load_late():
    tree = reading.read(galleries.render([_gallery(_item(1, 2))], _copies(1, 2)))
    first, second = tree.all("img")
    assert first.attributes == {
        "src": "pictures/1.jpg",
        "width": "201",
        "height": "100",
        "alt": "Picture with the caption: caption of 1",
        "loading": "lazy",
        "decoding": "async",
    }
    assert second.attributes["src"] == "pictures/2.jpg"
    assert [node.text for node in tree.all("h3")] == ["A gallery"]
    assert [node.text for node in tree.all("h4")] == ["An item"]
    assert [node.text for node in tree.all("figcaption")] == ["0.1", "0.2"]


def test_the_right_picture_is_told_and_framed():
    row = (_picture(1), _picture(2, right=True))
    item = galleries.Item("t", "c", (("by hn", row),))
    tree = reading.read(galleries.render([_gallery(item)], _copies(1, 2)))
    assert tree.one("li", class_="right").text == "0.2 right picture"
    assert tree.one("p", class_="label").text == "by hn"
    assert tree.one("p", class_="caption").text == "c"


def test_the_right_caption_is_told_and_its_picture_framed():
    row = (_picture(1, told=True), _picture(2, told=True, right=True))
    item = galleries.Item("t", "", (("by hn", row),))
    tree = reading.read(galleries.render([_gallery(item)], _copies(1, 2)))
    assert tree.one("li", class_="right").text == "0.2 right captioncaption of 2"


def test_captions_beside_pictures_have_their_words_marked():
    shown = galleries.Picture(3, "cosine 0.9", "A red & blue kite", ((2, 5), (8, 12)), told=True)
    item = galleries.Item("t", "", (("", (shown,)),))
    tree = reading.read(galleries.render([_gallery(item)], _copies(3)))
    assert [node.text for node in tree.all("mark")] == ["red", "blue"]
    assert tree.one("span", dir="auto").text == "A red & blue kite"
    assert tree.one("ol").attributes["class"] == "pictures texts"
    assert tree.one("img").attributes["alt"]


def test_captions_are_text():
    told = galleries.Picture(1, HOSTILE, HOSTILE, ((0, 8), (9, 14)), told=True)
    untold = galleries.Picture(2, "x", HOSTILE)
    item = galleries.Item(HOSTILE, HOSTILE, ((HOSTILE, (told,)), ("", (untold,))))
    made = galleries.render([galleries.Gallery(HOSTILE, HOSTILE, (item,))], _copies(1, 2))
    tree = reading.read(made)
    assert not tree.all("script")
    assert len(tree.all("img")) == 2
    for node in (tree.one("h3"), tree.one("h4"), tree.one("p", class_="caption")):
        assert node.text == HOSTILE
    assert tree.all("img")[1].attributes["alt"] == f"Picture with the caption: {HOSTILE}"
    assert {name for node in tree.all() for name in node.attributes} <= {
        "class", "dir", "src", "width", "height", "alt", "loading", "decoding",
    }  # fmt: skip


def test_long_captions_are_read_out_in_part():
    text = "word " * 100
    cut = galleries.shortened(text)
    assert len(cut) <= 164
    assert cut.endswith("word ...")
    assert galleries.shortened("short") == "short"
    assert len(galleries.shortened("x" * 500)) <= 164
    assert galleries.shortened("y" * 160) == "y" * 160


@pytest.mark.parametrize("spans", [(), ((0, 3),), ((0, 1), (1, 2)), ((2, 5), (7, 9))])
def test_marking_leaves_the_text_as_it_is(spans):
    tree = reading.read(galleries.marked("ab<d&f hij", spans))
    assert tree.text == "ab<d&f hij"
    assert [node.text for node in tree.all("mark")] == ["ab<d&f hij"[a:b] for a, b in spans]
