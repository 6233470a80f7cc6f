"""The two overlaps that matter: lists of the same files, and renamed files encoded anew."""

import json

import pytest
from PIL import Image

from hnclip_jax.data import lists
from hnclip_jax.data.checks import clean, leakage
from tests.data import drawing

SMALL = {"workers": 0}


def write(path, rows):
    path.write_text(json.dumps([{"filename": name, "caption": text} for name, text in rows]))
    return lists.read(path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number in range(6):
        drawing.photo(number, 320, 240).save(folder / f"sa_{number}.png")
    return folder


def test_a_test_list_that_holds_the_training_list(photos):
    # As Long-DCI of 7,444 pairs: DCI's training list and its test list, one after the other.
    rows = [(f"sa_{number}.png", f"caption {number}") for number in range(6)]
    train, whole = write(photos / "train.json", rows[:4]), write(photos / "long.json", rows)
    found = leakage.find(train, whole, **SMALL)
    assert [(m.a, m.b, m.kind) for m in found.pictures] == [(i, i, "same") for i in range(4)]
    assert [(m.a, m.b, m.kind) for m in found.captions] == [(i, i, "same") for i in range(4)]
    assert found.rest() == []
    back = leakage.find(whole, train, **SMALL)
    assert len(back.pictures) == 4
    clean.write(back.rest(), photos / "held_out.json", whole.path)
    held_out = lists.read(photos / "held_out.json")
    assert [record.captions for record in held_out.records] == [("caption 4",), ("caption 5",)]


@pytest.fixture(scope="module")
def renamed(photos, tmp_path_factory):
    """Pictures 1, 3 and 5 under other names, encoded anew; and one that is in no other list."""
    folder = tmp_path_factory.mktemp("urban")
    rows = []
    for name, (number, size, quality) in enumerate([(5, (240, 180), 80), (1, (320, 240), 60)], 1):
        picture = drawing.photo(number, 320, 240).resize(size, Image.Resampling.BICUBIC)
        picture.save(folder / f"{name}.jpg", quality=quality)
        rows.append((f"{name}.jpg", f"A long text about street {name}."))
    drawing.photo(3, 320, 240).save(folder / "3.webp", quality=90)
    drawing.photo(77, 320, 240).save(folder / "4.jpg")
    rows += [("3.webp", "CAPTION  two!"), ("4.jpg", "Nobody knows this street.")]
    return write(folder / "urban.json", rows)


def test_renamed_files_that_were_encoded_anew(photos, renamed):
    rows = [(f"sa_{number}.png", f"caption {number}") for number in range(6)]
    rows[2] = ("sa_2.png", "Caption two")
    train = write(photos / "vg.json", rows)
    found = leakage.find(train, renamed, **SMALL)
    assert [(m.a, m.b, m.kind) for m in found.pictures] == [
        (1, 1, "alike"),
        (3, 2, "alike"),
        (5, 0, "alike"),
    ]
    assert [(m.a, m.b, m.kind) for m in found.captions] == [(2, 2, "alike")]
    # Row 2 has another picture, but a caption that the test list asks with.
    assert [row.captions for row in found.rest()] == [("caption 0",), ("caption 4",)]
    text = found.text()
    assert "pictures of A that are in B: 3 (50.0% of A; 3 of the 4 of B)" in text
    assert "sa_1.png = 2.jpg" in text
    assert "captions of A that are in B: 1 (16.7% of A; 1 of the 4 of B)" in text
    assert "'Caption two' = 'CAPTION two!'" in text
    assert "2 of 6 rows of A have neither" in text
    content = json.loads(json.dumps(found.to_json()))
    assert content["rows_left"] == 2
    assert {"a": "sa_5.png", "b": "1.jpg", "kind": "alike"} in content["pictures"]
    assert content["captions"] == [{"a": "Caption two", "b": "CAPTION  two!", "kind": "alike"}]


def test_pictures_that_several_rows_name_count_once(photos):
    rows = [("sa_0.png", "one"), ("sa_0.png", "two"), ("sa_1.png", "three")]
    other = write(photos / "other.json", [("sa_0.png", "else")])
    found = leakage.find(write(photos / "twice.json", rows), other, **SMALL)
    assert len(found.pictures) == 1
    assert [row.captions for row in found.rest()] == [("three",)]


def test_pictures_that_cannot_be_decoded_are_counted(photos, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    broken = write(tmp_path / "list.json", [("a.png", "one")])
    other = write(photos / "other.json", [("sa_0.png", "else")])
    found = leakage.find(broken, other, **SMALL)
    assert found.undecodable == (1, 0)
    assert "1 pictures of A and 0 of B could not be decoded" in found.text()
