"""Tar shards: what is read where it lies, what is left alone, and which files a pattern names."""

import gzip
import io
import json
import tarfile

import pytest

from hnclip_jax import types
from hnclip_jax.data import blobs, lists
from hnclip_jax.data.formats import rows
from tests.data import writing

PICTURES = {f"{n}.jpg": bytes([n]) * (700 * n) for n in range(1, 5)}


def _tar(path, members, form=tarfile.USTAR_FORMAT):
    """Writes an archive of (name, bytes), and of TarInfo as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            entry = tarfile.TarInfo(member[0])
            entry.size = len(member[1])
            archive.addfile(entry, io.BytesIO(member[1]))
    return path


def _shard(path, *numbers):
    members = []
    for n in numbers:
        members += [(f"{n}.txt", f"caption {n}\n".encode()), (f"{n}.jpg", PICTURES[f"{n}.jpg"])]
    return _tar(path, members)


@pytest.mark.parametrize("name", ["a.tar", "a.json", "a"])
@pytest.mark.parametrize(
    "form",
    [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT],
    ids=["ustar", "gnu", "pax"],
)
def test_pictures_are_read_where_they_lie(form, name, tmp_path):
    long = "folder/" * 20 + "größe.PNG"
    note = {"caption": ["one", "two"], "url": "x"}
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE
    link = tarfile.TarInfo("9.jpg")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    members = [
        folder,
        ("2.jpg", PICTURES["2.jpg"]),
        ("2.txt", "\ufeffA kite. ".encode()),
        ("2.json", b'{"caption": "the text counts"}'),
        ("1.json", json.dumps(note).encode()),
        ("1.jpg", PICTURES["1.jpg"]),
        ("1.cls", b"7"),
        ("__MACOSX/2.jpg", b"no"),
        ("._1.jpg", b"no"),
        ("folder/._1.jpg", b"no"),
        link,
        *([] if form == tarfile.USTAR_FORMAT else [(long, b"x"), (long[:-3] + "txt", b"long")]),
    ]
    path = _tar(tmp_path / name, members, form)
    found = lists.read(path)
    assert writing.captions(found)[:2] == [["A kite."], ["one", "two"]]
    assert [r.image.read() for r in found.records[:2]] == [PICTURES["2.jpg"], PICTURES["1.jpg"]]
    assert found.records[0].image == blobs.Blob(
        str(path), found.records[0].image.offset, 1400, "2.jpg"
    )
    assert [record.id for record in found.records[:2]] == ["000000000002", "000000000001"]
    if form == tarfile.USTAR_FORMAT:
        assert len(found.records) == 2
    else:
        assert writing.captions(found)[2:] == [["long"]]
        assert found.records[2].image.read() == b"x"
        assert found.records[2].image.name == long
    assert found.path == str(path)


PATTERNS = {
    "folder": ("", [2, 10]),
    "stars": ("s-*.tar", [2, 10]),
    "question marks": ("s-??.tar", [10]),
    "words": ("s-{10,2}.tar", [10, 2]),
    "one": ("s-10.tar", [10]),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_several_shards(pattern, tmp_path):
    for number, picture in ((10, 3), (2, 1)):
        _shard(tmp_path / f"s-{number}.tar", picture, picture + 1)
    (tmp_path / "._s-3.tar").write_text("no")
    name, order = PATTERNS[pattern]
    expected = [n for shard in order for n in ((3, 4) if shard == 10 else (1, 2))]
    found = lists.read(tmp_path / name)
    assert writing.captions(found) == [[f"caption {n}"] for n in expected]
    assert [record.image.read() for record in found.records] == [
        PICTURES[f"{n}.jpg"] for n in expected
    ]


def test_a_range_of_shards(tmp_path):
    for number in (8, 9, 10):
        _shard(tmp_path / f"s-{number:03d}.tar", number - 7)
        _shard(tmp_path / f"t-{number}.tar", number - 7)
    for pattern in ("s-{008..010}.tar", "t-{8..10}.tar"):
        found = lists.read(tmp_path / pattern)
        assert writing.captions(found) == [["caption 1"], ["caption 2"], ["caption 3"]]
    found = lists.read(tmp_path / "s-{010..008}.tar")
    assert writing.captions(found) == [["caption 3"], ["caption 2"], ["caption 1"]]
    with pytest.raises(types.UserError, match=r"2 of 5 shards are missing: .*s-011\.tar, .*s-012"):
        lists.read(tmp_path / "s-{008..012}.tar")
    with pytest.raises(types.UserError, match="1 of 1 shards are missing"):
        lists.read(tmp_path / "u-*.tar")


def test_a_name_that_looks_like_a_pattern_is_a_name(tmp_path):
    path = _shard(tmp_path / "a{1..2}[x]*.tar", 1)
    assert writing.captions(lists.read(path)) == [["caption 1"]]
    path = writing.write(tmp_path, [{"filename": "[b]/*.jpg", "caption": "c"}], "{x,y}.json")
    writing.touch(tmp_path, "[b]/*.jpg")
    assert writing.captions(lists.read(path)) == [["c"]]


def test_the_hash_is_of_names_and_texts(tmp_path):
    hashes = {lists.read(_shard(tmp_path / "a.tar", 1, 2)).sha256}
    assert lists.read(_shard(tmp_path / "b.tar", 1, 2)).sha256 in hashes
    hashes.add(lists.read(_shard(tmp_path / "a.tar", 2, 1)).sha256)
    picture = ("1.jpg", PICTURES["1.jpg"])
    for text in (b"one", b"two"):
        hashes.add(lists.read(_tar(tmp_path / "a.tar", [picture, ("1.txt", text)])).sha256)
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.txt", b"a"), ("2.json", b"{}")], "1 of 1 pictures are missing"),
        ([("readme", b"a")], r"no picture in 1 tar shards; needed are members such as 7\.jpg"),
        ([("1.jpg", b"a"), ("1.txt", b"\ncaf\xe9")], r"1\.txt in a\.tar: line 2, byte 4 \(0xe9\)"),
        ([("1.jpg", b"a"), ("1.json", b"{")], "1 of 1 rows have a caption that is blank"),
        ([("1.jpg", b"a"), ("1.png", b"a")], r"'1\.jpg' and '1\.png' have one stem"),
        ([("1.jpg", b"a")], "1 of 1 rows have a caption that is blank"),
    ],
    ids=["no picture", "nothing", "latin-1", "broken note", "two pictures", "no text"],
)
def test_what_a_shard_lacks(members, message, tmp_path):
    with pytest.raises(types.UserError, match=message):
        lists.read(_tar(tmp_path / "a.tar", members))


@pytest.mark.parametrize("keep", [600, 1800, 2300], ids=["header", "picture", "picture's end"])
def test_a_shard_that_is_cut_off(keep, tmp_path):
    path = _tar(tmp_path / "a.tar", [("1.txt", b"a"), ("1.jpg", bytes(1200))])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(types.UserError, match=r"cannot read tar shard .*a\.tar: |are missing"):
        lists.read(path)


@pytest.mark.parametrize(
    ("magic", "message"),
    [
        (gzip.compress(b"x"), "is compressed with gzip; decompress it first"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"\xfd7zXZ\x00", "compressed with xz"),
        (b"(\xb5/\xfd\x00", "compressed with zstd"),
        (b"PK\x03\x04\x00", "is a zip archive; unpack it"),
    ],
    ids=["gzip", "bzip2", "xz", "zstd", "zip"],
)
@pytest.mark.parametrize("where", ["a.tar", "a.json", ""], ids=["tar", "list", "folder"])
def test_compressed_files_are_refused(magic, message, where, tmp_path):
    (tmp_path / (where or "a.tar")).write_bytes(magic)
    with pytest.raises(types.UserError, match=message) as caught:
        lists.read(tmp_path / where)
    assert "\n" not in str(caught.value)


def test_rows_of_shards_tell_their_kind(tmp_path):
    assert rows.read(_shard(tmp_path / "a.tar", 1)).kind == "tar shards"
