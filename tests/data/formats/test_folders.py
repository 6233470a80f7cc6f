"""Folders of pictures and texts: numeric order, one stem, first lines."""

import pytest

from hnclip_jax import types
from hnclip_jax.data import lists
from hnclip_jax.data.formats import folders, rows
from tests.data import writing


def _fill(folder, texts, image="", caption=""):
    for stem, text in texts.items():
        writing.touch(folder / image, f"{stem}.jpg")
        writing.write(folder / caption, text, f"{stem}.txt")


def _names(found, folder):
    return [record.image.removeprefix(f"{folder}/") for record in found.records]


@pytest.mark.parametrize(
    ("image", "caption"), [("", ""), ("image", "caption"), ("images", "captions")]
)
def test_numbers_are_in_order(image, caption, tmp_path):
    _fill(tmp_path, {n: f"c{n}" for n in ("10", "2", "1", "b2", "b10", "ü#%")}, image, caption)
    found = lists.read(tmp_path)
    stems = ["1", "2", "10", "b2", "b10", "ü#%"]
    place = f"{image}/" if image else ""
    assert _names(found, tmp_path) == [f"{place}{stem}.jpg" for stem in stems]
    assert writing.captions(found) == [[f"c{stem}"] for stem in stems]
    ids = [record.id for record in found.records]
    assert ids == ["000000000001", "000000000002", "000000000010", *stems[3:]]
    assert found.path == str(tmp_path)


def test_a_relative_folder(tmp_path, monkeypatch):
    _fill(tmp_path / "set", {"1": "c"})
    monkeypatch.chdir(tmp_path)
    assert lists.read("set/").records[0].image == str(tmp_path / "set" / "1.jpg")


def test_only_the_first_line_on_demand(tmp_path):
    texts = {"1": "\ufeffA café — red.\nMore.", "2": "One\r\nTwo", "3": "\u2028one line\x85"}
    _fill(tmp_path, texts, "image", "caption")
    whole = lists.read(tmp_path)
    first = lists.read(tmp_path, first_line=True)
    assert writing.captions(whole) == [["A café — red.\nMore."], ["One\r\nTwo"], ["one line"]]
    assert writing.captions(first) == [["A café — red."], ["One"], ["one line"]]
    assert whole.sha256 != first.sha256


def test_other_files_are_left_alone(tmp_path):
    _fill(tmp_path, {"1": "c"})
    writing.touch(tmp_path, "._1.jpg", "._2.txt", "list.json", "deep/3.jpg", "4.TXT.bak", "5.PNG")
    writing.write(tmp_path, "upper case", "5.TXT")
    found = lists.read(tmp_path)
    assert _names(found, tmp_path) == ["1.jpg", "5.PNG"]
    assert rows.read(tmp_path).kind == "folder"


def test_a_text_without_a_picture(tmp_path):
    _fill(tmp_path, {"6": "c", "8": "c"}, "image", "caption")
    writing.write(tmp_path, "lost", "caption/7.txt")
    match = r"1 of 3 pictures are missing \(row 1.*'image/7\.jpg'"
    with pytest.raises(types.UserError, match=match):
        lists.read(tmp_path)
    assert len(lists.read(tmp_path, missing="skip").records) == 2


def test_a_picture_without_a_text(tmp_path):
    _fill(tmp_path, {"6": "c"})
    writing.touch(tmp_path, "7.jpg")
    with pytest.raises(types.UserError, match=r"1 of 2 rows have a caption that is blank.*row 1"):
        lists.read(tmp_path)


def test_one_stem_of_two_pictures(tmp_path):
    _fill(tmp_path, {"6": "c"})
    writing.touch(tmp_path, "6.png")
    with pytest.raises(types.UserError, match=r"'6\.jpg' and '6\.png' have one stem"):
        lists.read(tmp_path)


def test_a_text_in_another_encoding(tmp_path):
    _fill(tmp_path, {"6": "c"})
    path = writing.write(tmp_path, b"one\ncaf\xe9", "6.txt")
    with pytest.raises(types.UserError, match=r"line 2, byte 7 \(0xe9\), is not UTF-8") as caught:
        lists.read(tmp_path)
    assert str(path) in str(caught.value)


def test_the_hash_changes_with_every_text_and_name(tmp_path):
    hashes = set()
    for stem, text in (("6", "c"), ("6", "d"), ("7", "d")):
        home = tmp_path / f"{stem}{text}"
        _fill(home, {stem: text})
        hashes.add(lists.read(home).sha256)
    assert len(hashes) == 3


def test_natural_order_is_total():
    names = ["a10b2", "a9", "a", "10", "9", "09", "²", "a10b10"]
    expected = ["09", "9", "10", "a", "a9", "a10b2", "a10b10", "²"]
    assert sorted(names, key=folders.natural) == expected
