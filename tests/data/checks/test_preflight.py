"""Preflight finds every fault of a list that has them all, and writes the list without them."""

import json

import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import blobs, images, lists, tokenizer
from hnclip_jax.data.checks import clean, findings, kinds, preflight
from tests.data import drawing

TOKENIZE = tokenizer.default()
LONG = "kite " * 80

ROWS = [
    ("train/a.png", "A red kite."),
    ("train/same.bmp", "A blue kite."),
    ("train/gone.png", "A lost kite."),
    ("gone.png", "Lost as well."),
    ("train/broken.jpg", "A broken kite."),
    ("train/b.jpg", " "),
    ("train/b.jpg", None),
    ("train/b.jpg", 7),
    ("train/b.jpg", "half \ud83d"),
    ("train/b.jpg", ["  A red kite. ", "", "Two kites."]),
    ("train/grey.png", LONG + "red"),
    ("train/c.png", LONG + "blue"),
    ("train/huge.png", "A huge kite."),
    ("train/gone too.png", "Lost, too."),
    ("train/broken.jpg", "Broken again."),
]
"""Picture and caption of every row."""


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spoilt") / "set"
    (folder / "train").mkdir(parents=True)
    files = {
        "a.png": drawing.file(drawing.noise(5, 4, 1), "PNG"),
        "same.bmp": drawing.file(drawing.noise(5, 4, 1), "BMP"),
        "b.jpg": drawing.file(drawing.noise(5, 4, 2), "JPEG"),
        "c.png": drawing.file(drawing.noise(5, 4, 3), "JPEG"),
        "grey.png": drawing.file(drawing.noise(5, 4, 4).convert("L"), "PNG"),
        "broken.jpg": drawing.file(drawing.noise(39, 39), "JPEG")[:900],
        "huge.png": drawing.file(Image.new("RGB", (40, 40)), "PNG"),
    }
    for name, content in files.items():
        (folder / "train" / name).write_bytes(content)
    rows = [{"filename": name, "caption": caption} for name, caption in ROWS]
    rows[0]["id"] = "first"
    (folder / "list.json").write_text(json.dumps(rows))
    return folder / "list.json"


@pytest.fixture(scope="module")
def found(spoilt):
    return preflight.check(
        spoilt, TOKENIZE, options=images.Options(max_pixels=1599), size=8, workers=0
    )


def test_what_was_read(found, spoilt):
    assert (found.rows, found.pictures, found.captions) == (15, 7, 12)
    assert found.kind == "JSON array"
    assert found.sha256 == lists.read(spoilt, missing="skip", empty_caption="skip").sha256


def test_missing_pictures_by_folder(found):
    assert found.missing == {
        "": findings.Folder(1, 1, ("gone.png",)),
        "train": findings.Folder(2, 14, ("train/gone.png", "train/gone too.png")),
    }


def test_undecodable_pictures(found):
    (broken, huge) = sorted(found.undecodable)
    assert broken[:2] == (4, "train/broken.jpg")
    assert "truncated" in broken.reason
    assert huge == (
        12,
        "train/huge.png",
        "40 x 40 pixels are more than 1599, the limit that max_pixels sets",
    )


def test_captions_that_cannot_be_used(found):
    assert found.unusable == {"empty": (5, 6, 9), "no text": (7,), "broken text": (8,)}


def test_what_repeats(found):
    assert found.same_pictures == (("train/a.png", "train/same.bmp"),)
    assert found.same_captions == ((0, 9),)
    assert found.shared_pictures == 2
    assert found.cut == {77: 2, 128: 0, 248: 0}
    assert found.same_cut == {77: 1, 128: 0, 248: 0}


def test_kinds_and_large_pictures(found, spoilt, monkeypatch):
    assert found.kinds == {"JPEG named .png": 1, "grey": 1}
    assert found.large == ()
    monkeypatch.setattr(kinds, "LARGE", 1599)
    again = preflight.check(spoilt, TOKENIZE, size=8, workers=0)
    assert again.large == (("train/huge.png", 40, 40),)


def test_the_faults_in_one_line(found):
    assert found.faults() == {
        "missing pictures": 3,
        "undecodable pictures": 2,
        "empty captions": 3,
        "captions that are no text": 1,
        "captions of broken text": 1,
    }


def test_the_text(found):
    text = found.text()
    faults, notes = text.split("\nnotes\n")
    assert "15 rows, 7 pictures, 12 captions" in faults
    for part in (
        "train: 2 of 14, train/gone.png, train/gone too.png",
        ".: 1 of 1, gone.png",
        "row 4, train/broken.jpg: ",
        "row 12, train/huge.png: 40 x 40",
        "rows 5, 6, 9",
    ):
        assert part in faults
    for part in ("train/a.png = train/same.bmp", "16.7% of the captions", "rows 0, 9", "grey"):
        assert part in notes
    assert "none" not in faults


def test_everything_is_json(found):
    content = json.loads(json.dumps(found.to_json()))
    assert content["missing"]["train"]["missing"] == 2
    assert content["undecodable"][0]["row"] in (4, 12)
    assert content["clean_rows"] == 5
    assert content["faults"] == found.faults()


def test_the_clean_list_is_read_without_a_word(found, spoilt):
    out = spoilt.parent / "clean.json"
    clean.write(found.clean, out, spoilt)
    rows = json.loads(out.read_text())
    assert rows == [
        {"filename": "train/a.png", "caption": "A red kite.", "id": "first"},
        {"filename": "train/same.bmp", "caption": "A blue kite."},
        {"filename": "train/b.jpg", "caption": ["A red kite.", "Two kites."]},
        {"filename": "train/grey.png", "caption": LONG + "red"},
        {"filename": "train/c.png", "caption": LONG + "blue"},
    ]
    read = lists.read(out)
    assert len(read.records) == 5
    assert preflight.check(out, TOKENIZE, size=8, workers=0).faults() == {}


def test_a_clean_list_elsewhere_has_whole_paths(found, spoilt, tmp_path):
    clean.write(found.clean, tmp_path / "clean.json", spoilt)
    rows = json.loads((tmp_path / "clean.json").read_text())
    assert rows[0]["filename"] == str(spoilt.parent / "train" / "a.png")
    assert len(lists.read(tmp_path / "clean.json").records) == 5


def test_more_processes_find_the_same(found, spoilt):
    seen = []
    again = preflight.check(
        spoilt,
        TOKENIZE,
        options=images.Options(max_pixels=1599),
        size=8,
        workers=2,
        picture_progress=lambda *at: seen.append(at),
    )
    assert again == found
    assert seen[-1] == (7, 7)


def test_lines_that_are_not_utf_8_stop_the_rest(tmp_path):
    content = b'[\n{"filename": "a.jpg", "caption": "caf\xe9"}\n]'
    (tmp_path / "list.json").write_bytes(content)
    found = preflight.check(tmp_path / "list.json", TOKENIZE)
    assert found.faults() == {"lines that are not UTF-8": 1}
    byte = content.index(b"\xe9")
    assert f"line 2, byte {byte} of the file (0xe9)" in found.text()
    assert found.to_json()["not_utf8"][0]["line"] == 2


def test_a_list_in_order(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a kite")
    found = preflight.check(tmp_path, TOKENIZE)
    assert found.faults() == {}
    assert "faults\n  none" in found.text()
    assert found.clean == (findings.Clean(str(tmp_path / "a.png"), ("a kite",), "a"),)


def test_two_names_for_one_file_are_a_fault(tmp_path):
    (tmp_path / "root").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "root" / "1.png")
    Image.new("RGB", (2, 2), "red").save(tmp_path / "root" / "2.png")
    rows = [{"filename": f"{name}.png", "caption": "a"} for name in ("x/1", "y/1", "x/2", "x/2")]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    found = preflight.check(tmp_path / "list.json", TOKENIZE, image_root=str(tmp_path / "root"))
    assert found.clashes == {"root/1.png": ("x/1.png", "y/1.png")}
    assert found.faults() == {"pictures with several names": 1}
    assert "root/1.png: x/1.png, y/1.png" in found.text()
    assert {row.image for row in found.clean} == {str(tmp_path / "root" / "2.png")}


def test_a_clean_list_keeps_what_methods_read(tmp_path):
    (tmp_path / "there").mkdir()
    drawing.noise(3, 3).save(tmp_path / "there" / "a.png")
    row = {
        "filename": "a.png",
        "caption": "A kite.",
        "segment": [{"caption": "A kite", "similarity_score": 1.0, "filename": "crops/a.png"}],
        "original_filename_structure": "edges/a.png",
    }
    path = tmp_path / "there" / "list.json"
    path.write_text(json.dumps([row]))
    found = preflight.check(path, TOKENIZE, size=8, workers=0)
    clean.write(found.clean, tmp_path / "there" / "clean.json", path)
    assert json.loads((tmp_path / "there" / "clean.json").read_text()) == [row]
    with pytest.raises(types.UserError, match="write the clean list into that folder"):
        clean.write(found.clean, tmp_path / "clean.json", path)


def test_pictures_inside_of_archives_are_looked_at_but_not_listed(tmp_path):
    (tmp_path / "shard").write_bytes(b"12" + drawing.file(drawing.noise(3, 3), "PNG"))
    size = (tmp_path / "shard").stat().st_size - 2
    blob = blobs.Blob(str(tmp_path / "shard"), 2, size, "a.png")
    with pytest.raises(types.UserError, match=r"1 pictures are no files.*a\.png in shard"):
        clean.write([findings.Clean(blob, ("a",))], tmp_path / "clean.json", tmp_path / "list")
    assert not (tmp_path / "clean.json").exists()


def test_nothing_left_writes_nothing(tmp_path):
    with pytest.raises(types.UserError, match="no row is left"):
        clean.write([], tmp_path / "clean.json", tmp_path / "list")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("list.json", "is the list"),
        ("link.json", "is the list"),
        ("folder", "is no file in a folder"),
        ("gone/clean.json", "is no file in a folder"),
        ("clean.json", ""),
    ],
)
def test_where_a_clean_list_may_go(tmp_path, out, message):
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "link.json").symlink_to(tmp_path / "list.json")
    (tmp_path / "folder").mkdir()
    if message:
        with pytest.raises(types.UserError, match=message):
            clean.check_target(tmp_path / out, tmp_path / "list.json")
    else:
        clean.check_target(tmp_path / out, tmp_path / "list.json")


def test_a_full_disk_is_one_line_and_spoils_nothing(tmp_path, monkeypatch):
    (tmp_path / "clean.json").write_text("before")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(types.UserError, match=r"cannot write .*clean\.json: No space left"):
        clean.write([findings.Clean("/a.png", ("a",))], tmp_path / "clean.json", tmp_path)
    assert (tmp_path / "clean.json").read_text() == "before"
