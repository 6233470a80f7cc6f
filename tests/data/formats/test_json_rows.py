"""Rows of JSON: containers, keys, and the forms that published lists have."""

import hashlib
import json

import pytest

from hnclip_jax import types
from hnclip_jax.data import lists
from hnclip_jax.data.formats import fields
from tests.data import writing


@pytest.fixture
def folder(tmp_path):
    """A list folder that holds the pictures of the rows."""
    home = tmp_path / "listen für alle"
    writing.touch(home, *(row["filename"] for row in writing.ROWS))
    return home


CONTAINERS = {
    "array": json.dumps(writing.ROWS),
    "indented array, no escapes": json.dumps(writing.ROWS, indent=4, ensure_ascii=False),
    "lines": writing.lines(writing.ROWS),
    "lines with blank ones and carriage returns": (
        "\n\n" + writing.lines(writing.ROWS).replace("\n", "\r\n\r\n")
    ),
    "objects one after the other": "".join(json.dumps(row, indent=1) for row in writing.ROWS),
    "annotations": json.dumps({"info": 1, "annotations": writing.ROWS}),
    "indented annotations": json.dumps({"annotations": writing.ROWS}, indent=2),
    "after blanks": " \t\n " + json.dumps(writing.ROWS),
}


@pytest.mark.parametrize("name", ["list.json", "list.jsonl", "list.csv", "list"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "byte-order mark"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_containers(container, mark, name, folder):
    content = mark + CONTAINERS[container].encode()
    found = lists.read(writing.write(folder, content, name))
    assert found.records == (
        lists.Record(0, str(folder / "a.jpg"), ("A red kite.",), "a.jpg"),
        lists.Record(1, str(folder / "größe 1.jpg"), ("Zwei  Bäume\nam See.",), "größe 1.jpg"),
        lists.Record(2, str(folder / "sub dir/寸 c#100%.png"), ("A bridge.",), "寸 c#100%.png"),
    )
    assert found.report == lists.Report(3, 3, 0, 0, 0)
    assert found.path == str(folder / name)
    assert found.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "several lines"])
def test_single_record_without_a_list(indent, folder):
    found = lists.read(writing.write(folder, json.dumps(writing.ROWS[0], indent=indent)))
    assert writing.captions(found) == [["A red kite."]]


def test_line_separators_inside_a_caption_do_not_cut_the_line(folder):
    text = '{"filename": "a.jpg", "caption": "one\u2028two\u0085three"}\n' * 2
    found = lists.read(writing.write(folder, text))
    assert writing.captions(found) == [["one\u2028two\u0085three"]] * 2


@pytest.mark.parametrize("position", range(len(fields.IMAGE_KEYS)))
def test_first_image_key_wins(position, folder):
    keys = fields.IMAGE_KEYS[position:]
    names = ["a.jpg", *["not there.jpg"] * len(keys)]
    row = dict(reversed(list(zip(keys, names, strict=False)))) | {"caption": "c"}
    assert lists.read(writing.write(folder, [row])).records[0].image == str(folder / "a.jpg")


def test_image_keys_are_the_documented_ones():
    assert fields.IMAGE_KEYS == (
        "original_filename", "filename", "filepath", "image_file", "image", "file_name",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"caption": "no", "original_caption": "yes"}, ["yes"]),
        ({"title": "no", "caption": "yes"}, ["yes"]),
        ({"description": "no", "title": "yes"}, ["yes"]),
        ({"paragraph": "no", "description": "yes"}, ["yes"]),
        ({"sentences": [{"raw": "no"}], "conversations": [{}, {"value": "yes"}]}, ["yes"]),
        ({"conversations": [{"value": "no"}, {"value": "no"}], "paragraph": "yes"}, ["yes"]),
        ({"conversations": [{"value": "<image>\nDescribe."}, {"value": " yes "}]}, ["yes"]),
        ({"sentences": [{"raw": "one"}, {"raw": "two", "tokens": ["two"]}]}, ["one", "two"]),
        ({"caption": ["one", " two\n", "three"]}, ["one", "two", "three"]),
        ({"caption": "yes", "segment": [{"filename": "x", "caption": "no"}]}, ["yes"]),
    ],
    ids=[
        "original_caption",
        "caption",
        "title",
        "description",
        "conversations before sentences",
        "paragraph before conversations",
        "conversations",
        "sentences",
        "list of strings",
        "segments are ignored",
    ],
)
def test_text_keys(fields, expected, folder):
    found = lists.read(writing.write(folder, [{"filename": "a.jpg", **fields}]))
    assert writing.captions(found) == [expected]
    assert found.report.pairs == len(expected)


@pytest.mark.parametrize("value", [None, "", 7, ["a.jpg"]], ids=repr)
def test_late_row_without_a_picture(value, folder):
    rows = [*writing.ROWS * 100, {"image": value, "caption": "c", "id": 5}]
    match = r"1 of 301 rows name no picture \(row 300,.*keys 'image', 'caption', 'id'.*filepath"
    with pytest.raises(types.UserError, match=match):
        lists.read(writing.write(folder, rows), missing="skip", empty_caption="skip")


def test_lines_whose_first_row_has_no_picture(folder):
    with pytest.raises(types.UserError, match=r"1 of 4 rows name no picture \(row 0,"):
        lists.read(writing.write(folder, writing.lines([{"caption": "c"}, *writing.ROWS])))


def test_list_without_any_caption_key(folder):
    rows = [{"filename": "a.jpg", "text": "c"}]
    for policy in ("error", "skip", "keep"):
        with pytest.raises(types.UserError, match=r"keys 'filename', 'text', but one of .*title"):
            lists.read(writing.write(folder, rows), empty_caption=policy)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (b"\xef\xbb\xbf \n", "is empty"),
        ("[]", "holds no rows"),
        ('{"annotations": []}', "holds no rows"),
        ("a.jpg\nb.jpg", r"begins with 'a\.jpg\\nb\.jpg'.*JSON array, JSON lines.*table"),
        ('[{"filename": "a.jpg"', "line 1, column 22"),
        ('[\n {"filename": "a.jpg",}\n]', "line 2, column"),
        (writing.lines(writing.ROWS) + '\n{"filename": }', "line 4, column 14"),
        (
            writing.lines(writing.ROWS[:1]) + "\n\n[1]\n7\n",
            r"2 of 3 rows are no objects \(row 1, 2,",
        ),
        ('["a.jpg", {"filename": "a.jpg"}]', r"1 of 2 rows are no objects \(row 0,"),
        ("[]x", "line 1, column 3: Extra data"),
        ('[{"filename": "a.jpg"} {', "line 1, column 24: Expecting ',' delimiter"),
        ('{"annotations": [1, }', "line 1, column 21"),
        ('{"annotations": [], 3: 4}', "line 1, column 21: Expecting property name"),
        ('{"annotations" []}', "line 1, column 16: Expecting ':' delimiter"),
        ("[" * 100_000, "no valid JSON at line 1, column 2: .*recursion"),
        ('{"images": [], "annotations": []}', "one object with the keys 'images', 'annotations'"),
        ('{"data": [{"filename": "a.jpg"}]}', "one object with the keys 'data'"),
        (b'[\n{"filename": "a.jpg", "caption": "caf\xe9"}]', r"line 2, byte 39 .*\(0xe9\)"),
        (json.dumps(writing.ROWS).encode("utf-16"), r"line 1, byte 0 .*0xff.* UTF-8"),
    ],
    ids=[
        "empty",
        "blank",
        "empty array",
        "empty annotations",
        "names only",
        "cut",
        "trailing comma",
        "broken line",
        "lines of other values",
        "array of other values",
        "rest behind the array",
        "no comma",
        "no element",
        "no key",
        "no colon",
        "deep",
        "coco",
        "unknown object",
        "latin-1",
        "utf-16",
    ],
)
def test_unreadable_content(content, message, folder):
    path = writing.write(folder, content)
    with pytest.raises(types.UserError, match=message) as caught:
        lists.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
