"""The official download of DCI: which picture, which caption, and what does not matter."""

import dataclasses
import json

import pytest

from hnclip_jax import types
from hnclip_jax.data import benchmarks, dci

MASKS = {
    "nested": {"topLeft": {"x": 12, "y": 40}, "bottomRight": {"x": 700, "y": 410}},
    "lists": [[12, 40], [700, 410]],
}

PICTURES = {
    # annotation number: picture, short caption, extra caption
    "112956": ("sa_1500009.jpg", "A bridge", " It has three arches.\nBehind it stand houses. "),
    "99": ("sa_1500001.jpg", " A kite ", "It is red."),
    "100": ("sa_1500100.jpg", "A wall", "   "),
    "7": ("sa_1500005.jpg", "A cat", "It sleeps, naïvely."),
}


def _annotation(image, short, extra, bounds, **more):
    mask = {"idx": "0", "outer_mask": "iVBOR", "label": "x", "parent": -1, "bounds": bounds}
    return {
        "image": image,
        "short_caption": short,
        "extra_caption": extra,
        "mask_data": {"0": mask},
        "mask_keys": ["0"],
        **more,
    }


@pytest.fixture
def folder(tmp_path):
    """Four annotations in both folders, bounds and summaries in both forms; photos; splits."""
    folder = tmp_path / "densely_captioned_images"
    for part in ("annotations", "complete", "photos"):
        (folder / part).mkdir(parents=True)
    forms = list(MASKS.values()) * 2
    summaries = [{"base": "s", "short": ["s"]}, {"base": ["s"], "m-0": "s"}] * 2
    for (number, texts), bounds, summary in zip(PICTURES.items(), forms, summaries, strict=True):
        (folder / "photos" / texts[0]).touch()
        for part, more in (("annotations", {}), ("complete", {"summaries": summary})):
            content = _annotation(*texts, bounds, **more)
            (folder / part / f"{number}-data.json").write_text(json.dumps(content))
    splits = {"train": ["99-data.json", "7-data.json"], "valid": ["100-data.json"], "test": []}
    (folder / "splits.json").write_text(json.dumps(splits))
    return folder


def _found(read):
    return [(row.image, *row.captions) for row in read.rows]


EXTRA = [
    ("sa_1500009.jpg", "It has three arches.\nBehind it stand houses."),
    ("sa_1500005.jpg", "It sleeps, naïvely."),
    ("sa_1500001.jpg", "It is red."),
]


def test_the_file_says_which_picture_and_empty_captions_are_left_out(folder):
    read = dci.read(folder)
    assert _found(read) == EXTRA
    assert [row.id.lstrip("0") for row in read.rows] == ["112956", "7", "99"]
    assert read.kind == "dci"


def test_short_and_extra_are_a_line_each_and_no_picture_is_left_out(folder):
    assert _found(dci.read(folder, "short_extra")) == [
        ("sa_1500100.jpg", "A wall"),
        ("sa_1500009.jpg", "A bridge\nIt has three arches.\nBehind it stand houses."),
        ("sa_1500005.jpg", "A cat\nIt sleeps, naïvely."),
        ("sa_1500001.jpg", "A kite\nIt is red."),
    ]
    assert [caption for _, caption in _found(dci.read(folder, "short"))] == [
        "A wall",
        "A bridge",
        "A cat",
        "A kite",
    ]


def test_annotations_alone_say_the_same(folder):
    complete = dci.read(folder)
    for path in (folder / "complete").iterdir():
        path.unlink()
    (folder / "complete").rmdir()
    assert dci.is_download(folder)
    assert dci.read(folder) == complete


def test_complete_annotations_come_first(folder):
    path = folder / "annotations" / "7-data.json"
    path.write_text(path.read_text().replace("sleeps", "wakes"))
    assert _found(dci.read(folder)) == EXTRA


def test_the_hash_is_that_of_what_was_read(folder):
    hashes = {dci.read(folder, recipe).sha256 for recipe in dci.RECIPES}
    path = folder / "complete" / "7-data.json"
    path.write_text(path.read_text().replace("sleeps", "wakes"))
    hashes.add(dci.read(folder).sha256)
    assert len(hashes) == 4
    assert {len(one) for one in hashes} == {64}


def test_splits_are_names_of_annotations(folder):
    assert [row.image for row in dci.read(folder, split="train").rows] == [
        "sa_1500005.jpg",
        "sa_1500001.jpg",
    ]
    assert len(dci.read(folder, "short", split="valid").rows) == 1
    with pytest.raises(types.UserError, match="did you mean 'train'"):
        dci.read(folder, split="tran")
    (folder / "complete" / "99-data.json").unlink()
    with pytest.raises(
        types.UserError, match=r"lacks 1 of the 2 files of 'train'.*: 99-data\.json"
    ):
        dci.read(folder, split="train")


def test_progress_counts_files(folder):
    seen = []
    dci.read(folder, progress=lambda done, files: seen.append((done, files)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def _resize(monkeypatch, name, size):
    small = dataclasses.replace(benchmarks.REGISTRY[name], pictures=(size,), captions=(size,))
    monkeypatch.setitem(benchmarks.REGISTRY, name, small)


@pytest.mark.parametrize("above", [False, True], ids=["its folder", "the folder above"])
@pytest.mark.parametrize(
    ("name", "size"), [("dci_extra_all", 3), ("long_dci_tulip", 3), ("dci_short_extra", 4)]
)
def test_benchmarks_from_the_download(name, size, above, folder, monkeypatch):
    _resize(monkeypatch, name, size)
    source = folder.parent if above else folder
    pictures, given = benchmarks.load(name, str(source))
    assert given == name
    assert len(pictures.records) == size
    # An empty extra caption is part of the definition, so nothing was skipped.
    assert pictures.report.skipped_empty == 0
    assert pictures.records[-1].image == str(folder / "photos" / "sa_1500001.jpg")
    assert pictures.path == str(folder)


def test_tulips_table_is_the_same_benchmark(folder, tmp_path, monkeypatch):
    _resize(monkeypatch, "long_dci_tulip", 3)
    rows = [f'{image}\t"{caption}"\n' for image, caption in EXTRA]
    table = tmp_path / "dci_long.csv"
    table.write_text("filepath\ttitle\n" + "".join(rows))
    listed, name = benchmarks.load("long_dci_tulip", str(table), image_root=str(folder / "photos"))
    assert name == "long_dci_tulip"
    official, _ = benchmarks.load("long_dci_tulip", str(folder))
    assert benchmarks.fingerprint(listed) == benchmarks.fingerprint(official)


def test_missing_photos_are_named(folder):
    for path in (folder / "photos").iterdir():
        path.unlink()
    with pytest.raises(types.UserError, match=r"3 of 3 pictures are missing .*'sa_1500009\.jpg'"):
        benchmarks.load("dci_extra_all", str(folder))


def test_progress_reaches_the_reader(folder):
    seen = []
    benchmarks.load("dci_extra_all", str(folder), progress=lambda *done: seen.append(done))
    assert seen[-1] == (4, 4)


BROKEN = {
    "no JSON": ("{", r"7-data\.json is no JSON file"),
    "no UTF-8": (b'{"image": "caf\xe9"}', r"7-data\.json is no JSON file in UTF-8"),
    "a list": ("[]", r"7-data\.json holds no JSON object"),
    "another record": ('{"image": "a.jpg", "caption": "x"}', "has the keys image, caption; needed"),
    "no picture": (json.dumps(_annotation("", "a", "b", [])), "needed are the fields image"),
    "a number": (json.dumps(_annotation("a.jpg", 1, "b", [])), "needed are the fields image"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_annotation_is_one_line_with_its_name(case, folder):
    content, message = BROKEN[case]
    path = folder / "complete" / "7-data.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(types.UserError, match=message) as caught:
        dci.read(folder)
    assert "\n" not in str(caught.value)


def test_folders_without_annotations(tmp_path):
    assert not dci.is_download(tmp_path)
    with pytest.raises(types.UserError, match="complete: No such file"):
        dci.read(tmp_path)
    (tmp_path / "annotations").mkdir()
    assert not dci.is_download(tmp_path)
    with pytest.raises(types.UserError, match=r"holds no <number>-data\.json"):
        dci.read(tmp_path)
    with pytest.raises(types.UserError, match="did you mean 'extra'"):
        dci.read(tmp_path, "extr")
    with pytest.raises(types.UserError, match="holds none of complete, annotations, dci_long"):
        benchmarks.load("long_dci_tulip", str(tmp_path))
