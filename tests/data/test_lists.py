"""Reading of lists: policies, counts, ids, splits, and the ids of pairs."""

import json
import pickle
import random

import numpy as np
import pytest

from hnclip_jax import types
from hnclip_jax.data import lists, pack
from tests.data import writing


@pytest.fixture
def folder(tmp_path):
    """A list folder that holds the pictures of the rows."""
    home = tmp_path / "listen für alle"
    writing.touch(home, *(row["filename"] for row in writing.ROWS))
    return home


BLANKS = {
    "empty": {"caption": ""},
    "white space": {"caption": " \n\t\u3000"},
    "null": {"caption": None},
    "number": {"caption": 3},
    "half a pair of surrogates": {"caption": "a \ud83d kite"},
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
    rows = [writing.ROWS[0], {"filename": "a.jpg", **BLANKS[blank]}, writing.ROWS[2]]
    path = writing.write(folder, rows)
    with pytest.raises(
        types.UserError, match=r"1 of 3 rows have a caption that is blank.*\(row 1,"
    ):
        lists.read(path)
    fine = ["fine"] if blank == "one of several" else []
    skipped = lists.read(path, empty_caption="skip")
    assert writing.captions(skipped) == [["A red kite."], *([fine] if fine else []), ["A bridge."]]
    assert skipped.records[-1].index == 2
    assert skipped.report == lists.Report(3, 2 + len(fine), 0, 1, 0)
    kept = lists.read(path, empty_caption="keep")
    assert writing.captions(kept) == [["A red kite."], [*fine, ""], ["A bridge."]]
    assert kept.report == lists.Report(3, 3 + len(fine), 0, 0, 0)


def test_errors_give_the_count_and_five_rows_at_most(folder):
    rows = [{"filename": "a.jpg", "caption": "c" if row % 2 else ""} for row in range(20)]
    with pytest.raises(
        types.UserError, match=r"10 of 20 rows .* \(row 0, 2, 4, 6, 8, \.\.\.,"
    ) as e:
        lists.read(writing.write(folder, rows))
    assert "\n" not in str(e.value)


def test_nothing_left(folder):
    path = writing.write(folder, [{"filename": "gone.jpg", "caption": "c"}])
    with pytest.raises(types.UserError, match="all 1 rows were skipped"):
        lists.read(path, missing="skip")


def test_list_that_is_not_there(folder):
    writing.write(folder, writing.ROWS, "docci_test.json")
    with pytest.raises(types.UserError, match=r"No such file.*did you mean 'docci_test\.json'"):
        lists.read(folder / "doci_test.json")
    with pytest.raises(types.UserError, match=r"No such file.*give the path of a list file"):
        lists.read(folder / "none" / "list.json")


def test_a_folder_without_pictures_names_the_lists_in_it(folder):
    with pytest.raises(types.UserError, match="is a folder without pictures that have a text"):
        lists.read(folder)
    writing.write(folder, "[]", "docci.json")
    with pytest.raises(types.UserError, match=r"did you mean a list in it: docci\.json\?"):
        lists.read(folder)


@pytest.mark.parametrize(
    "policy", [{"missing": "keep"}, {"empty_caption": "skp"}, {"repeats": "skip"}], ids=str
)
def test_unknown_policy(policy, folder):
    with pytest.raises(types.UserError, match="unknown policy"):
        lists.read(writing.write(folder, writing.ROWS), **policy)


def test_duplicate_captions_are_counted(folder):
    rows = [{"filename": "a.jpg", "caption": text} for text in ("x", "y", " x ", ["x", "z"])]
    assert lists.read(writing.write(folder, rows)).report.duplicates == 2


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


def test_ids_are_those_of_the_source_or_file_names_and_never_the_same_twice(folder):
    writing.touch(folder, "x/a.jpg", "a.jpg#2")
    rows = [
        {"id": "sa_7", "filename": "a.jpg", "caption": "c"},
        {"id": 12, "filename": "a.jpg", "caption": "c"},
        {"image_id": "3", "filename": "a.jpg", "caption": "c"},
        {"filename": "a.jpg", "caption": "c"},
        {"filename": "x/a.jpg", "caption": "c"},
        {"filename": "a.jpg#2", "caption": "c"},
        {"filename": "a.jpg", "caption": "c"},
        {"id": None, "filename": "sub dir/寸 c#100%.png", "caption": "c"},
    ]
    found = lists.read(writing.write(folder, rows))
    assert [record.id for record in found.records] == [
        "sa_7",
        "000000000012",
        "000000000003",
        "a.jpg",
        "a.jpg#3",
        "a.jpg#2",
        "a.jpg#4",
        "寸 c#100%.png",
    ]


SPLITS = [{"filename": "a.jpg", "caption": name, "split": name} for name in ("val", "test", "val")]


@pytest.mark.parametrize(
    ("split", "rows"), [("val", [0, 2]), ("test", [1]), ("test+val", [0, 1, 2])]
)
def test_a_split_is_read_by_name(split, rows, folder):
    found = lists.read(writing.write(folder, SPLITS), split=split)
    assert [record.index for record in found.records] == rows
    assert found.report.rows == len(rows)


def test_several_splits_need_a_name(folder):
    rows = [*SPLITS, {"filename": "a.jpg", "caption": "c"}]
    path = writing.write(folder, rows)
    with pytest.raises(
        types.UserError, match=r"several splits \(val 2, test 1, \(none\) 1\); name"
    ):
        lists.read(path)
    with pytest.raises(types.UserError, match=r"split 'vall'; did you mean 'val'\? \(.*val 2"):
        lists.read(path, split="vall")
    with pytest.raises(types.UserError, match="unknown split ''"):
        lists.read(path, split="val+")
    one = writing.write(folder, SPLITS[1:2])
    assert lists.read(one).report.rows == lists.read(one, split="test").report.rows == 1
    with pytest.raises(types.UserError, match="names no splits, so it has no 'test'"):
        lists.read(writing.write(folder, writing.ROWS), split="test")


def test_faults_in_other_splits_do_not_count(folder):
    rows = [*SPLITS, {"filename": "gone.jpg", "caption": "", "split": "train"}]
    assert lists.read(writing.write(folder, rows), split="val").report.pairs == 2


def test_repeated_pictures_are_kept_or_dropped(folder):
    writing.touch(folder, "x/a.jpg")
    names = ["a.jpg", "x/a.jpg", "a.jpg", "a.jpg"]
    path = writing.write(folder, [{"filename": n, "caption": f"{i}"} for i, n in enumerate(names)])
    assert len(lists.read(path).records) == 4
    found = lists.read(path, repeats="drop")
    assert [record.index for record in found.records] == [0, 1]
    assert found.report == lists.Report(4, 2, 0, 0, 0, dropped_repeats=2)


@pytest.fixture
def as_if_long(monkeypatch):
    monkeypatch.setattr(lists, "_TUPLE", 0)


def test_a_long_list_is_no_tuple_but_holds_the_same(folder, as_if_long, monkeypatch):
    rows = [{**writing.ROWS[n % 3], "caption": [f"{n}", "", "b"]} for n in range(300)]
    rows[5] = {"filename": "gone.jpg", "caption": "c"}
    path = writing.write(folder, rows)
    long = lists.read(path, missing="skip", empty_caption="skip")
    monkeypatch.undo()
    short = lists.read(path, missing="skip", empty_caption="skip")
    assert isinstance(short.records, tuple)
    assert not isinstance(long.records, tuple)
    assert tuple(long.records) == short.records
    assert long.records[:3] == short.records[:3]
    assert (len(long.records), long.records[-1]) == (299, short.records[298])
    assert long.report == short.report
    with pytest.raises(IndexError):
        long.records[299]
    assert lists.pairs(long.records) == lists.pairs(short.records)
    np.testing.assert_array_equal(lists.pair_ids(long.records), lists.pair_ids(short.records))


def test_a_packed_folder_is_read_as_such(folder, monkeypatch):
    expected = lists.read(writing.write(folder, writing.ROWS))
    monkeypatch.setattr(pack, "is_packed", lambda path: path == str(folder))
    monkeypatch.setattr(pack, "read", lambda path: expected)
    assert lists.read(folder) is expected
    with pytest.raises(types.UserError, match="is packed, without splits"):
        lists.read(folder, split="test")


def test_progress_counts_the_bytes(folder):
    path = writing.write(folder, writing.ROWS)
    size = path.stat().st_size
    seen = []
    lists.read(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[0][1] == size
    assert seen[-1] == (size, size)


@pytest.mark.parametrize("count", [3, 30_000], ids=["tuple", "compact"])
def test_views_are_the_pairs_looked_up(tmp_path, count):
    (tmp_path / "a.jpg").write_bytes(b"")
    rows = [
        {"image": "a.jpg", "caption": [f"{n}.{k}" for k in range(n % 3 + 1)]} for n in range(count)
    ]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    records = lists.read(tmp_path / "list.json").records
    expected = lists.pairs(records)
    images, captions = pickle.loads(pickle.dumps(lists.views(records)))
    assert len(images) == len(captions) == len(expected)
    for pair in {0, 1, len(expected) // 2, len(expected) - 1}:
        position, caption = expected[pair]
        assert images[pair] == records[position].image
        assert captions[pair] == caption
    assert [captions[n] for n in range(6)] == [caption for _, caption in expected[:6]]
