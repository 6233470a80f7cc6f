"""What lists in JSON hold beside pictures and captions, and the pictures that it speaks of."""

import json
import pickle

import pytest

from hnclip_jax.data import fraction, lists, pack
from hnclip_jax.data.formats import fields
from tests.data import drawing, writing

SEGMENTS = [
    {"filename": "parts/1.png", "caption": "große Bäume", "similarity_score": 24.712345678901234},
    {"caption": "\ud83d", "similarity_score": float("inf"), "bbox_coordinates": None},
]
EXTRA = {
    "segment": SEGMENTS,
    "original_filename_structure": "edges/a.png",
    "negative_caption": ["A blue kite.", None],
}
ROWS = [
    {"original_filename": "a.jpg", "original_caption": "A red kite.", **EXTRA, "boxes": [1, 2]},
    {"original_filename": "b.jpg", "original_caption": ["x", "y"]},
    {"original_filename": "a.jpg", "original_caption": "z", "segment": None},
]


@pytest.fixture
def folder(tmp_path):
    """A list folder with two pictures and a part."""
    home = tmp_path / "home"
    writing.touch(home, "a.jpg", "b.jpg", "parts/1.png")
    return home


FORMS = {
    "array": lambda rows: rows,
    "lines": writing.lines,
    "annotations": lambda rows: {"annotations": rows},
    "one line": lambda rows: writing.lines(rows[:1]),
}


@pytest.mark.parametrize("form", FORMS)
def test_json_lists_keep_what_methods_read_as_it_is(folder, form):
    records = lists.read(writing.write(folder, FORMS[form](ROWS))).records
    assert records[0].extra == EXTRA
    assert dict(records[0].extra) == EXTRA
    assert records[0].extra["segment"] == SEGMENTS
    assert [*records[0].extra] == list(EXTRA)
    assert len(records[0].extra) == 3
    assert "boxes" not in records[0].extra
    assert records[0].extra.get("boxes") is None
    assert all(type(record.extra) is dict for record in records[1:2])
    assert [record.extra for record in records[1:]] == [{}, {"segment": None}][: len(records) - 1]


def test_long_lists_too(folder, monkeypatch):
    path = writing.write(folder, ROWS)
    short = lists.read(path).records
    monkeypatch.setattr(lists, "_TUPLE", 0)
    long = lists.read(path).records
    assert not isinstance(long, tuple)
    assert tuple(long) == short
    assert long[0].extra == EXTRA


def test_other_formats_have_none(folder):
    table = "filename\tcaption\tnegative_caption\na.jpg\tA kite.\tA dog.\n"
    (record,) = lists.read(writing.write(folder, table, "list.tsv")).records
    assert record.extra == {}
    writing.write(folder, "A tree.", "b.txt")
    assert all(one.extra == {} for one in lists.read(folder, empty_caption="skip").records)


def test_packing_leaves_it_out(tmp_path):
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(drawing.file(drawing.noise(9, 9), "JPEG"))
    found = lists.read(writing.write(tmp_path, ROWS))
    packed = pack.read(pack.write(found, tmp_path / "packed"))
    assert [one.extra for one in packed.records] == [{}] * 3
    assert packed.locate("a.jpg") is None


def test_it_is_small_and_survives_the_way_to_a_worker():
    segments = [
        {
            "filename": f"segments/train_{n:05d}.jpg_results/train_{n:05d}_max_{n}.png",
            "caption": "a medium plain pink arrow is in the bottom centre of the picture",
            "similarity_score": 20 + n / 7,
            "bbox_coordinates": dict.fromkeys(("x1", "y1", "x2", "y2", "width", "height"), n),
        }
        for n in range(10)
    ]
    extra = fields.Extra({"segment": segments})
    content = pickle.dumps(extra)
    assert pickle.loads(content) == extra == {"segment": segments}
    assert len(content) < len(json.dumps(segments)) / 4
    assert repr(extra) == repr({"segment": segments})
    assert extra != {"segment": segments[1:]}


def test_records_with_extra_can_be_keys():
    record = lists.Record(0, "a.jpg", ("c",), extra=fields.Extra(EXTRA))
    assert len({record, lists.Record(0, "a.jpg", ("c",), extra=EXTRA)}) == 1


@pytest.mark.parametrize("root", [False, True], ids=["from the list", "from image_root"])
def test_locate_follows_the_rule_of_the_pictures(folder, tmp_path, root):
    place = tmp_path / "lists" / "deep" if root else folder
    image_root = str(folder) if root else ""
    found = lists.read(writing.write(place, ROWS), image_root=image_root)
    assert found.records[0].image == str(folder / "a.jpg")
    assert found.locate("parts/1.png") == str(folder / "parts/1.png")
    assert found.locate(str(folder / "b.jpg")) == str(folder / "b.jpg")
    assert found.locate("parts/2.png") is None
    # A placeholder before the path is dropped where image_root says so.
    moved = found.locate("your/directory/parts/1.png")
    assert moved == (str(folder / "parts/1.png") if root else None)
    assert pickle.loads(pickle.dumps(found)).locate("parts/1.png") == str(folder / "parts/1.png")
    assert fraction.take(found, 0.4, 0).locate("parts/1.png") == found.locate("parts/1.png")


def test_lists_that_were_made_by_hand_locate_nothing():
    report = lists.Report(0, 0, 0, 0, 0)
    made = lists.PictureList((), report, "p", "s")
    assert made.locate("a.jpg") is None
    assert made == lists.PictureList((), report, "p", "s", locate=str)
