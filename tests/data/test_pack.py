"""A packed list gives what the list gives: every record, byte, pixel and batch."""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image

from hnclip_jax import types
from hnclip_jax.data import images, lists, pack, pipeline, tokenizer
from hnclip_jax.data.packed import shards
from tests.data import drawing

ROWS = [
    {"filename": "a.jpg", "caption": ["A red kite.", "Ein Drachen über Köln."]},
    {"filename": "größe 1.png", "caption": "Two trees\nby a lake."},
    {"filename": "a.jpg", "caption": "The kite again."},
    {"filename": "grey.jpg", "caption": "A grey bird."},
    {"filename": "clear.png", "caption": "Two trees\nby a lake."},
    {"filename": "tall.jpg", "caption": "A tower."},
    {"filename": "dark.jpg", "caption": "Night."},
]
SIZE = 24


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A list of pictures of many kinds; two rows show one picture, two have one caption."""
    folder = tmp_path_factory.mktemp("listed")
    clear = drawing.noise(40, 30, 1).convert("RGBA")
    clear.putalpha(drawing.noise(40, 30, 2).convert("L"))
    for name, picture in {
        "a.jpg": drawing.noise(40, 31),
        "größe 1.png": drawing.noise(33, 25, 3),
        "grey.jpg": drawing.noise(50, 30, 4).convert("L"),
        "clear.png": clear,
        "tall.jpg": drawing.noise(25, 61, 6),
        "dark.jpg": Image.new("RGB", (30, 30)),
    }.items():
        picture.save(folder / name)
    (folder / "list.json").write_text(json.dumps(ROWS))
    return lists.read(folder / "list.json")


@pytest.fixture(scope="module", params=[0, SIZE], ids=["files", "cropped"])
def packed(request, listed, tmp_path_factory):
    """The folder of the packed list, in three shards, and the size it was cropped to."""
    out = tmp_path_factory.mktemp("packed") / "new" / "set"
    assert pack.write(listed, out, size=request.param, shard_count=3) == str(out)
    return out, request.param


def loads(pictures):
    """Returns what loads a pair of a list as the command does, and how many pairs there are."""
    positions, captions = zip(*lists.pairs(pictures.records), strict=True)
    load = pipeline.LoadPair(
        pipeline.LoadImage([pictures.records[at].image for at in positions], SIZE),
        pipeline.LoadText(captions, tokenizer.default(), 20),
        lists.pair_ids(pictures.records),
    )
    return load, len(captions)


def assert_same_batches(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert ours[name].dtype == theirs[name].dtype
            np.testing.assert_array_equal(ours[name], theirs[name], name)


def test_records_report_and_sha256_are_those_of_the_list(listed, packed):
    found = pack.read(packed[0])
    assert found.path == str(packed[0])
    assert found.sha256 == listed.sha256
    assert found.report == listed.report
    assert found.queries is None
    assert [dataclasses.replace(record, image="") for record in found.records] == [
        dataclasses.replace(record, image="") for record in listed.records
    ]


def test_the_list_reader_takes_the_folder(packed):
    assert pack.is_packed(packed[0])
    assert lists.read(packed[0]) == pack.read(packed[0])


def test_groups_and_queries_survive(listed, tmp_path):
    records = [
        # Names of files need not be UTF-8.
        dataclasses.replace(record, id=f"id {at}\udce9", group=f"group {at // 2}")
        for at, record in enumerate(listed.records)
    ]
    given = dataclasses.replace(listed, records=tuple(records[::-1]), queries=(2, 0))
    found = pack.read(pack.write(given, tmp_path / "set"))
    assert found.queries == (2, 0)
    assert [(r.id, r.group, r.index, r.captions) for r in found.records] == [
        (r.id, r.group, r.index, r.captions) for r in given.records
    ]


def test_a_picture_gives_the_same_pixels(listed, packed):
    for ours, theirs in zip(pack.read(packed[0]).records, listed.records, strict=True):
        np.testing.assert_array_equal(
            images.load_image(ours.image, SIZE), images.load_image(theirs.image, SIZE)
        )


def test_pixels_belong_to_the_caller(packed):
    image = pack.read(packed[0]).records[0].image
    images.load_image(image, SIZE)[:] = 7
    assert not (images.load_image(image, SIZE) == 7).all()


def test_files_are_stored_unchanged(listed, tmp_path):
    found = pack.read(pack.write(listed, tmp_path / "set"))
    for ours, theirs in zip(found.records, listed.records, strict=True):
        stored = hashlib.sha256(ours.image.read()).hexdigest()
        assert stored == hashlib.sha256(pathlib.Path(theirs.image).read_bytes()).hexdigest()


def test_batches_are_the_same(listed, packed):
    (ours, count), (theirs, expected) = loads(pack.read(packed[0])), loads(listed)
    assert count == expected == 8
    options = {"seed": 3, "batch_size": 4, "start_step": 1}
    assert_same_batches(
        itertools.islice(pipeline.training(ours, count, **options), 6),
        itertools.islice(pipeline.training(theirs, count, **options), 6),
    )
    assert_same_batches(
        pipeline.once(ours, count, batch_size=3), pipeline.once(theirs, count, batch_size=3)
    )


@pytest.mark.slow
def test_batches_are_the_same_from_workers(listed, packed, parsed_flags):
    (ours, count), (theirs, _) = loads(pack.read(packed[0])), loads(listed)
    options = {"seed": 3, "batch_size": 4}
    assert_same_batches(
        itertools.islice(pipeline.training(ours, count, workers=2, **options), 5),
        itertools.islice(pipeline.training(theirs, count, **options), 5),
    )


def test_pairs_of_one_picture_or_one_caption_are_no_negatives(packed):
    ids = lists.pair_ids(pack.read(packed[0]).records)
    assert ids.tolist() == [0, 0, 1, 0, 2, 1, 3, 4]


def test_a_picture_of_several_rows_is_stored_once(packed):
    records = pack.read(packed[0]).records
    assert records[0].image == records[2].image
    header = json.loads((packed[0] / "pictures.jsonl").read_text().splitlines()[0])
    assert [length for _, length, _ in header["shards"]] == [2, 2, 2]


def test_tensorflow_datasets_reads_the_folder_without_tensorflow(listed, packed):
    import tensorflow_datasets as tfds

    folder, size = packed
    source = tfds.builder_from_directory(folder).as_data_source("train")
    rows = list(source)
    assert [row["index"] for row in rows] == [0, 1, 3, 4, 5, 6]
    assert [row["id"].decode() for row in rows] == [
        listed.records[i].id for i in (0, 1, 3, 4, 5, 6)
    ]
    texts = [[text.decode() for text in row["captions"]] for row in rows]
    assert texts[0] == ["A red kite.", "Ein Drachen über Köln.", "The kite again."]
    assert texts[2] == ["A grey bird."]
    picture = images.load_image(listed.records[5].image, SIZE) if size else None
    expected = picture if size else np.asarray(Image.open(listed.records[5].image))
    np.testing.assert_array_equal(rows[4]["image"], expected)
    assert not rows[5]["image"].any()
    assert "tensorflow" not in sys.modules


def test_reading_needs_neither_tensorflow_datasets_nor_tensorflow(packed):
    script = (
        "import sys\n"
        "sys.modules['tensorflow_datasets'] = sys.modules['tensorflow'] = None\n"
        "from hnclip_jax.data import images, pack\n"
        f"records = pack.read({str(packed[0])!r}).records\n"
        f"print(sum(int(images.load_image(r.image, {SIZE}).sum()) for r in records))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    records = pack.read(packed[0]).records
    expected = sum(int(images.load_image(record.image, SIZE).sum()) for record in records)
    assert done.stdout.strip() == str(expected), done.stderr


def test_a_reference_is_small_and_survives_pickling(packed):
    image = pack.read(packed[0]).records[1].image
    images.load_image(image, SIZE)
    content = pickle.dumps(image)
    assert len(content) < 600
    assert pickle.loads(content) == image
    np.testing.assert_array_equal(
        images.load_image(pickle.loads(content), SIZE), images.load_image(image, SIZE)
    )
    assert "größe 1.png" in str(image)
    assert str(packed[0]) in str(image)


def test_threads_that_begin_together_read_what_one_reads(packed):
    records = pack.read(packed[0]).records
    expected = [images.load_image(record.image, SIZE) for record in records]
    shards._reader.cache_clear()
    start, faults = threading.Barrier(8), []

    def work():
        start.wait()
        for _ in range(20):
            for record, pixels in zip(records, expected, strict=True):
                if not np.array_equal(images.load_image(record.image, SIZE), pixels):
                    faults.append(record)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not faults


def test_many_records_are_held_compressed_and_equal(listed, packed, monkeypatch):
    expected = pack.read(packed[0])
    monkeypatch.setattr(pack, "_IN_FULL", 3)
    found = pack.read(packed[0])
    assert not isinstance(found.records, tuple)
    assert tuple(found.records) == expected.records


def test_a_packed_list_is_packed_once_more(listed, packed, tmp_path):
    folder, size = packed
    again = pack.write(pack.read(folder), tmp_path / "again", size=SIZE)
    records = pack.read(again).records
    for ours, theirs in zip(records, listed.records, strict=True):
        np.testing.assert_array_equal(
            images.load_image(ours.image, SIZE), images.load_image(theirs.image, SIZE)
        )
    assert str(folder) not in str(records[0].image)
    if size:
        with pytest.raises(types.UserError, match="is ready-cropped, so its file is gone"):
            pack.write(pack.read(folder), tmp_path / "files")


def test_one_shard_unless_there_is_much(listed, tmp_path, monkeypatch):
    def names(folder):
        return sorted(path.name[-14:] for path in pathlib.Path(folder).glob("*array_record*"))

    assert names(pack.write(listed, tmp_path / "one")) == ["00000-of-00001"]
    monkeypatch.setattr(shards, "_SHARD_BYTES", 2 * 3 * SIZE**2)
    several = pack.write(listed, tmp_path / "several", size=SIZE)
    assert names(several) == ["00000-of-00003", "00001-of-00003", "00002-of-00003"]


def test_another_size_than_it_was_cropped_to(listed, tmp_path):
    image = pack.read(pack.write(listed, tmp_path / "set", size=SIZE)).records[0].image
    with pytest.raises(types.UserError, match="cropped to 24 pixels, but 32 are needed") as caught:
        images.load_image(image, 32)
    assert "--size=32" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_options_of_cropped_pictures_are_kept(listed, tmp_path):
    black = images.Options(background="black")
    folder = pack.write(listed, tmp_path / "set", size=SIZE, options=black)
    found = pack.read(folder, black)
    assert found == pack.read(folder)
    clear = listed.records[4].image
    np.testing.assert_array_equal(
        found.records[4].image.pixels(SIZE), images.load_image(clear, SIZE, black)
    )
    with pytest.raises(types.UserError, match="background='black', not 'white'"):
        pack.read(folder, images.DEFAULT)
    with pytest.raises(types.UserError, match="exif_orientation='ignore', not 'apply'"):
        pack.read(folder, images.Options(exif_orientation="apply", background="black"))
    # What is decided when a picture is loaded is free.
    files = pack.write(listed, tmp_path / "files", options=black)
    assert pack.read(files, images.DEFAULT).records


def test_a_folder_in_use_is_left_alone(listed, tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(types.UserError, match="is in use"):
        pack.write(listed, tmp_path)
    with pytest.raises(types.UserError, match="is in use"):
        pack.write(listed, tmp_path / "mine")
    assert os.listdir(tmp_path) == ["mine"]
    (tmp_path / "empty").mkdir()
    assert pack.is_packed(pack.write(listed, tmp_path / "empty"))


@pytest.mark.parametrize("shard_count", [-1, 7])
def test_a_number_of_shards_that_cannot_be(shard_count, listed, tmp_path):
    with pytest.raises(types.UserError, match=rf"{shard_count} shards .* can be 1 to 6"):
        pack.write(listed, tmp_path / "set", shard_count=shard_count)


@pytest.mark.parametrize(
    ("fault", "size", "message"),
    [
        (lambda path: path.write_bytes(b"no picture"), SIZE, "cannot decode picture .*bad.jpg"),
        (lambda path: path.unlink(), 0, "cannot read picture .*bad.jpg: No such file"),
    ],
    ids=["broken", "gone"],
)
def test_a_bad_picture_leaves_nothing(fault, size, message, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    rows = [{"filename": name, "caption": name} for name in ("good.jpg", "bad.jpg")]
    for row in rows:
        drawing.noise(30, 30).save(source / row["filename"])
    (source / "list.json").write_text(json.dumps(rows))
    found = lists.read(source / "list.json")
    fault(source / "bad.jpg")
    with pytest.raises(types.UserError, match=message):
        pack.write(found, tmp_path / "set", size=size)
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_packing_leaves_nothing(stop, listed, tmp_path):
    def progress(done, total):
        assert total == 6
        if done == 4:
            raise stop

    with pytest.raises(stop):
        pack.write(listed, tmp_path / "set", progress=progress)
    assert os.listdir(tmp_path) == []


def test_a_killed_packing_leaves_nothing_that_looks_complete(listed, tmp_path):
    script = (
        "import os, signal, sys\n"
        "from hnclip_jax.data import lists, pack\n"
        "def progress(done, total):\n"
        "    if done == total:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"pack.write(lists.read({listed.path!r}), {str(tmp_path / 'set')!r}, progress=progress)\n"
    )
    done = subprocess.run([sys.executable, "-c", script])
    assert done.returncode == -signal.SIGKILL
    assert not any(pack.is_packed(path) for path in tmp_path.rglob("*"))
    assert not (tmp_path / "set").exists()


def test_a_full_disk_is_one_line(listed, tmp_path, monkeypatch):
    def full(*arguments):
        raise RuntimeError("write() failed: No space left on device;\nwriting x")

    monkeypatch.setattr(shards.Writer, "_end_shard", full)
    with pytest.raises(types.UserError, match=r"cannot write .*: write\(\) failed: No space"):
        pack.write(listed, tmp_path / "set")
    assert os.listdir(tmp_path) == []


def _cut(path, count):
    path.write_bytes(path.read_bytes()[:-count])


def _drop_last_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda folder: _cut(next(folder.glob("*-00001-of-*")), 1), "00001-of-.* bytes are there"),
        (lambda folder: next(folder.glob("*-00002-of-*")).unlink(), "00002-of-.*0 of .* bytes"),
        (lambda folder: _cut(folder / "pictures.jsonl", 4), "pictures.jsonl is no whole part"),
        (lambda folder: _drop_last_line(folder / "pictures.jsonl"), "6 of 7 records are there"),
        (lambda folder: (folder / "pictures.jsonl").write_text("{}\n"), "'format'"),
        (lambda folder: (folder / "pictures.jsonl").write_text('{"format": 99}\n'), "format is 99"),
    ],
    ids=["cut shard", "missing shard", "cut line", "missing line", "no header", "newer"],
)
def test_a_set_that_is_not_whole(fault, message, listed, tmp_path):
    folder = pathlib.Path(pack.write(listed, tmp_path / "set", shard_count=3))
    fault(folder)
    with pytest.raises(types.UserError, match=message) as caught:
        pack.read(folder)
    assert "\n" not in str(caught.value)


def test_a_damaged_record_is_one_line(listed, tmp_path):
    folder = pathlib.Path(pack.write(listed, tmp_path / "set"))
    records = pack.read(folder).records
    (shard,) = folder.glob("*array_record*")
    content = bytearray(shard.read_bytes())
    picture = pathlib.Path(listed.records[0].image).read_bytes()
    at = content.index(picture)
    content[at + 10] ^= 255
    shard.write_bytes(content)
    with pytest.raises(types.UserError, match="cannot read row 0 of") as caught:
        images.load_image(records[0].image, SIZE)
    assert "\n" not in str(caught.value)


def test_other_folders_are_not_packed_lists(tmp_path):
    assert not pack.is_packed(tmp_path)
    assert not pack.is_packed(tmp_path / "nothing")


def test_the_command_packs_and_says_where(listed, tmp_path, hnclip):
    out = tmp_path / "set"
    ran = hnclip("data", "pack", listed.path, out, f"--size={SIZE}", "--shards=2")
    assert (ran.code, ran.out) == (0, f"{out}\n")
    assert "packed 7 records" in ran.err
    assert len(list(out.glob("*array_record*"))) == 2
    assert pack.read(out).sha256 == listed.sha256
    ran = hnclip("data", "pack", listed.path, out)
    assert "is in use" in ran.one_line("data")
    ran = hnclip("data", "pack", listed.path)
    assert "needs LIST and OUT" in ran.one_line("data")
