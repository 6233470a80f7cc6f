"""Reading of list files: containers, keys, paths, policies, and the ids of pairs."""

import hashlib
import json
import random

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import lists

ROWS = [
    {"filename": "a.jpg", "caption": "A red kite."},
    {"filename": "größe 1.jpg", "caption": "Zwei  Bäume\nam See. "},
    {"filename": "sub dir/寸 c.png", "caption": "A bridge."},
]


@pytest.fixture
def folder(tmp_path):
    """A list folder that holds the (empty) pictures of ROWS; reading a list opens none."""
    home = tmp_path / "listen für alle"
    (home / "sub dir").mkdir(parents=True)
    for row in ROWS:
        (home / row["filename"]).touch()
    return home


def _write(folder, content, name="list.json"):
    path = folder / name
    if isinstance(content, list):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def _captions(found: lists.PictureList) -> list[list[str]]:
    return [list(record.captions) for record in found.records]


def _lines(rows) -> str:
    return "\n".join(json.dumps(row) for row in rows)


CONTAINERS = {
    "array": json.dumps(ROWS),
    "indented array, no escapes": json.dumps(ROWS, indent=4, ensure_ascii=False),
    "lines": _lines(ROWS),
    "lines with blank ones and carriage returns": "\n\n" + _lines(ROWS).replace("\n", "\r\n\r\n"),
    "annotations": json.dumps({"info": 1, "annotations": ROWS}),
    "indented annotations": json.dumps({"annotations": ROWS}, indent=2),
    "after blanks": " \t\n " + json.dumps(ROWS),
}


@pytest.mark.parametrize("name", ["list.json", "list.jsonl", "list.csv", "list"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "byte-order mark"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_containers(container, mark, name, folder):
    content = mark + CONTAINERS[container].encode()
    found = lists.read(_write(folder, content, name))
    assert found.records == (
        lists.Record(0, str(folder / "a.jpg"), ("A red kite.",)),
        lists.Record(1, str(folder / "größe 1.jpg"), ("Zwei  Bäume\nam See.",)),
        lists.Record(2, str(folder / "sub dir/寸 c.png"), ("A bridge.",)),
    )
    assert found.report == lists.Report(3, 3, 0, 0, 0)
    assert found.path == str(folder / name)
    assert found.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "several lines"])
def test_single_record_without_a_list(indent, folder):
    found = lists.read(_write(folder, json.dumps(ROWS[0], indent=indent)))
    assert _captions(found) == [["A red kite."]]


def test_line_separators_inside_a_caption_do_not_cut_the_line(folder):
    text = '{"filename": "a.jpg", "caption": "one\u2028two\u0085three"}\n' * 2
    assert _captions(lists.read(_write(folder, text))) == [["one\u2028two\u0085three"]] * 2


@pytest.mark.parametrize("position", range(len(lists.IMAGE_KEYS)))
def test_first_image_key_wins(position, folder):
    keys = lists.IMAGE_KEYS[position:]
    names = ["a.jpg", *["not there.jpg"] * len(keys)]
    row = dict(reversed(list(zip(keys, names, strict=False)))) | {"caption": "c"}
    assert lists.read(_write(folder, [row])).records[0].image == str(folder / "a.jpg")


def test_image_keys_are_the_documented_ones():
    assert lists.IMAGE_KEYS == (
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
    found = lists.read(_write(folder, [{"filename": "a.jpg", **fields}]))
    assert _captions(found) == [expected]
    assert found.report.pairs == len(expected)


BLANKS = {
    "empty": {"caption": ""},
    "white space": {"caption": " \n\t\u3000"},
    "null": {"caption": None},
    "number": {"caption": 3},
    "not a number": {"caption": float("nan")},
    "object": {"caption": {"text": "a"}},
    "absent": {},
    "empty list": {"caption": []},
    "one of several": {"caption": ["fine", None]},
    "first key is null": {"original_caption": None, "caption": "second key"},
    "short conversation": {"conversations": [{"value": "a"}]},
    "conversation of strings": {"conversations": ["a", "b"]},
    "sentence without raw": {"sentences": [{"tokens": ["a"]}]},
}


@pytest.mark.parametrize("blank", BLANKS)
def test_empty_captions(blank, folder):
    rows = [ROWS[0], {"filename": "a.jpg", **BLANKS[blank]}, ROWS[2]]
    path = _write(folder, rows)
    with pytest.raises(
        types.UserError, match=r"1 of 3 rows have a caption that is blank.*\(row 1,"
    ):
        lists.read(path)
    fine = ["fine"] if blank == "one of several" else []
    skipped = lists.read(path, empty_caption="skip")
    assert _captions(skipped) == [["A red kite."], *([fine] if fine else []), ["A bridge."]]
    assert skipped.records[-1].index == 2
    assert skipped.report == lists.Report(3, 2 + len(fine), 0, 1, 0)
    kept = lists.read(path, empty_caption="keep")
    assert _captions(kept) == [["A red kite."], [*fine, ""], ["A bridge."]]
    assert kept.report == lists.Report(3, 3 + len(fine), 0, 0, 0)


def test_errors_give_the_count_and_five_rows_at_most(folder):
    rows = [{"filename": "a.jpg", "caption": "c" if row % 2 else ""} for row in range(20)]
    with pytest.raises(
        types.UserError, match=r"10 of 20 rows .* \(row 0, 2, 4, 6, 8, \.\.\.,"
    ) as e:
        lists.read(_write(folder, rows))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("value", [None, "", 7, ["a.jpg"]], ids=repr)
def test_late_row_without_a_picture(value, folder):
    rows = [*ROWS * 100, {"image": value, "caption": "c", "id": 5}]
    match = r"1 of 301 rows name no picture \(row 300,.*keys 'image', 'caption', 'id'.*filepath"
    with pytest.raises(types.UserError, match=match):
        lists.read(_write(folder, rows), missing="skip", empty_caption="skip")


def test_lines_whose_first_row_has_no_picture(folder):
    with pytest.raises(types.UserError, match=r"1 of 4 rows name no picture \(row 0,"):
        lists.read(_write(folder, _lines([{"caption": "c"}, *ROWS])))


def test_list_without_any_caption_key(folder):
    rows = [{"filename": "a.jpg", "text": "c"}]
    for policy in ("error", "skip", "keep"):
        with pytest.raises(types.UserError, match=r"keys 'filename', 'text', but one of .*title"):
            lists.read(_write(folder, rows), empty_caption=policy)


def test_path_resolution_order(tmp_path):
    places = {
        "list's folder": tmp_path / "home" / "lists",
        "its parent": tmp_path / "home",
        "image_root": tmp_path / "pictures",
        "bare name in image_root": tmp_path / "pictures",
    }
    name = "some dir/ä 1.jpg"
    files = [folder / name for folder in places.values()]
    files[3] = places["image_root"] / "ä 1.jpg"
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    path = _write(places["list's folder"], [{"filename": name, "caption": "c"}])
    for file in files:
        found = lists.read(path, image_root=str(places["image_root"]))
        assert found.records[0].image == str(file)
        file.unlink()
    with pytest.raises(types.UserError) as caught:
        lists.read(path, image_root=str(places["image_root"]))
    assert [str(file) in str(caught.value) for file in files] == [True] * 4


def test_absolute_paths(folder, tmp_path):
    absolute = tmp_path / "elsewhere.jpg"
    absolute.touch()
    path = _write(folder, [{"filename": str(absolute), "caption": "c"}])
    assert lists.read(path).records[0].image == str(absolute)
    gone = _write(folder, [{"filename": "/placeholder/dir/a.jpg", "caption": "c"}])
    with pytest.raises(types.UserError, match=r"is none of /placeholder/dir/a\.jpg;"):
        lists.read(gone)
    assert lists.read(gone, image_root=str(folder)).records[0].image == str(folder / "a.jpg")


def test_relative_arguments_give_absolute_pictures(folder, monkeypatch):
    _write(folder, [{"filename": "placeholder/a.jpg", "caption": "c"}])
    monkeypatch.chdir(folder.parent)
    found = lists.read(f"{folder.name}/list.json", image_root=folder.name)
    assert found.path == str(folder / "list.json")
    assert found.records[0].image == str(folder / "a.jpg")


def test_one_file_for_two_names_is_refused(folder):
    rows = [{"filename": f"{n}_results/a.jpg", "caption": str(n)} for n in range(2)]
    match = r"'0_results/a\.jpg' and '1_results/a\.jpg' would both be .*a\.jpg"
    with pytest.raises(types.UserError, match=match):
        lists.read(_write(folder, rows), image_root=str(folder))
    # One picture may well stand in many rows, and in more than one spelling that leads to it.
    names = ["0_results/a.jpg", "0_results/a.jpg", "a.jpg", str(folder / "a.jpg")]
    path = _write(folder, [{"filename": name, "caption": "c"} for name in names])
    found = lists.read(path, image_root=str(folder))
    assert [record.image for record in found.records] == [str(folder / "a.jpg")] * 4


def test_missing_pictures(folder):
    rows = [
        ROWS[0],
        {"filename": "gone ü.jpg", "caption": "c"},
        ROWS[2],
        {**ROWS[0], "filename": "x"},
    ]
    path = _write(folder, rows)
    with pytest.raises(types.UserError, match=r"2 of 4 pictures are missing \(row 1, 3,.*'gone ü"):
        lists.read(path)
    found = lists.read(path, missing="skip")
    assert [record.index for record in found.records] == [0, 2]
    assert found.report == lists.Report(4, 2, 2, 0, 0)


def test_a_folder_is_no_picture(folder):
    with pytest.raises(types.UserError, match="1 of 1 pictures are missing"):
        lists.read(_write(folder, [{"filename": "sub dir", "caption": "c"}]))


def test_nothing_left(folder):
    path = _write(folder, [{"filename": "gone.jpg", "caption": "c"}])
    with pytest.raises(types.UserError, match="all 1 rows were skipped"):
        lists.read(path, missing="skip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (b"\xef\xbb\xbf \n", "is empty"),
        ("[]", "holds no rows"),
        ('{"annotations": []}', "holds no rows"),
        (
            "filepath\ttitle\na.jpg\tA kite.",
            r"begins with 'filepath\\ttitle.*JSON array, JSON lines",
        ),
        ('[{"filename": "a.jpg"', "line 1, column 22"),
        ('[\n {"filename": "a.jpg",}\n]', "line 2, column"),
        (_lines(ROWS) + '\n{"filename": }', "line 4, column 14"),
        (_lines(ROWS[:1]) + "\n\n[1]\n7\n", r"2 of 3 rows are no objects \(row 1, 2,"),
        ('["a.jpg", {"filename": "a.jpg"}]', r"1 of 2 rows are no objects \(row 0,"),
        ('{"images": [], "annotations": []}', "one object with the keys 'images', 'annotations'"),
        ('{"data": [{"filename": "a.jpg"}]}', "one object with the keys 'data'"),
        (b'[\n{"filename": "a.jpg", "caption": "caf\xe9"}]', r"line 2, byte 39 .*\(0xe9\)"),
        (json.dumps(ROWS).encode("utf-16"), r"line 1, byte 0 .*0xff.* UTF-8"),
    ],
    ids=[
        "empty",
        "blank",
        "empty array",
        "empty annotations",
        "tab-separated",
        "cut",
        "trailing comma",
        "broken line",
        "lines of other values",
        "array of other values",
        "coco",
        "unknown object",
        "latin-1",
        "utf-16",
    ],
)
def test_unreadable_content(content, message, folder):
    path = _write(folder, content)
    with pytest.raises(types.UserError, match=message) as caught:
        lists.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_list_that_is_not_there(folder):
    _write(folder, ROWS, "docci_test.json")
    with pytest.raises(types.UserError, match=r"No such file.*did you mean 'docci_test\.json'"):
        lists.read(folder / "doci_test.json")
    with pytest.raises(types.UserError, match=r"No such file.*give the path of a list file"):
        lists.read(folder / "none" / "list.json")


def test_folder_instead_of_a_list(folder):
    with pytest.raises(types.UserError, match="Is a directory; give the path of a list file"):
        lists.read(folder)


@pytest.mark.parametrize("policy", [{"missing": "keep"}, {"empty_caption": "skp"}], ids=str)
def test_unknown_policy(policy, folder):
    with pytest.raises(types.UserError, match="unknown policy"):
        lists.read(_write(folder, ROWS), **policy)


def test_duplicate_captions_are_counted(folder):
    rows = [{"filename": "a.jpg", "caption": text} for text in ("x", "y", " x ", ["x", "z"])]
    assert lists.read(_write(folder, rows)).report.duplicates == 2


def test_pairs_are_captions_in_order():
    records = (lists.Record(4, "p", ("x", "y")), lists.Record(9, "q", ("z",)))
    assert lists.pairs(records) == [(0, "x"), (0, "y"), (1, "z")]


def test_pair_ids_by_hand():
    records = (
        lists.Record(0, "p", ("x", "y")),
        lists.Record(1, "q", ("z",)),
        lists.Record(2, "r", ("y",)),
        lists.Record(3, "q", ("w",)),
        lists.Record(4, "x", ("p",)),
    )
    ids = lists.pair_ids(records)
    # p and r share caption y; q stands twice; the picture named x is not the caption x.
    assert ids.tolist() == [0, 0, 1, 0, 1, 2]
    assert ids.dtype == np.int32
    assert lists.pair_ids(()).shape == (0,)


@pytest.mark.parametrize("seed", range(5))
def test_pair_ids_are_the_connected_groups(seed):
    rng = random.Random(seed)
    records = [
        lists.Record(
            row,
            f"p{rng.randrange(40)}",
            tuple(f"t{rng.randrange(60)}" for _ in range(rng.randint(1, 2))),
        )
        for row in range(40)
    ]
    pairs = lists.pairs(records)
    linked = np.array(
        [[records[i].image == records[j].image or a == b for j, b in pairs] for i, a in pairs]
    )
    for _ in range(len(pairs)):
        linked = (linked.astype(int) @ linked.astype(int)) > 0
    ids = lists.pair_ids(records)
    np.testing.assert_array_equal(ids[:, None] == ids[None, :], linked)
    assert 1 < len(set(ids.tolist())) < len(pairs)
