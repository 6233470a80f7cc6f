"""Files of tensors: a round trip, and one line about anything that is not whole."""

import errno
import json
import os
import struct

import numpy as np
import pytest
import safetensors.numpy

from hnclip_jax import types
from hnclip_jax.weights import files

ARRAYS = {
    "text/proj": np.arange(6, dtype=np.float32).reshape(2, 3),
    "logit_scale": np.array(2.5, np.float32),
    "ids": np.array([3, 1], np.int32),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "empty": np.zeros((0, 4), np.float32),
}
NOTE = {"model": {"text_width": 16}, "step": 7, "list": "/data/übung.json", "best": None}


@pytest.fixture
def file(tmp_path):
    """A written file."""
    files.write(tmp_path / "model.safetensors", ARRAYS, NOTE)
    return tmp_path / "model.safetensors"


def test_a_round_trip_is_exact(file):
    arrays, note = files.read(file)
    assert note == NOTE
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape  # A scalar is no vector of one.
        np.testing.assert_array_equal(arrays[name], array)


def test_writing_again_replaces_the_whole_file(file):
    files.write(file, {"a": np.ones(1, np.float32)}, {})
    arrays, note = files.read(file)
    assert list(arrays) == ["a"]
    assert note == {}
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_equal_contents_are_equal_bytes(file, tmp_path):
    files.write(tmp_path / "again.safetensors", ARRAYS, NOTE)
    assert files.sha256(file) == files.sha256(tmp_path / "again.safetensors")
    files.write(tmp_path / "other.safetensors", ARRAYS, {**NOTE, "step": 8})
    assert files.sha256(file) != files.sha256(tmp_path / "other.safetensors")


def test_the_hash_is_that_of_the_bytes(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert files.sha256(tmp_path / "x").startswith("ba7816bf8f01cfea")


def test_the_file_of_another_program_has_no_note(tmp_path):
    safetensors.numpy.save_file(ARRAYS, tmp_path / "other.safetensors", {"format": "pt"})
    arrays, note = files.read(tmp_path / "other.safetensors")
    assert arrays.keys() == ARRAYS.keys()
    assert note == {}


def _header(text):
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:4],
        lambda whole: whole[:100],
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        lambda whole: b"PK\x03\x04" + whole,
        lambda whole: b"\x80\x02}q\x00.",
        lambda whole: _header(b'{"__metadata__": {"hnclip": "{"}}'),
        lambda whole: struct.pack("<Q", 2**60) + whole,
    ],
    ids=[
        "empty",
        "no header",
        "in the header",
        "truncated",
        "longer",
        "zip",
        "pickle",
        "note",
        "size",
    ],
)
def test_a_damaged_or_foreign_file_is_one_line(file, damage):
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(types.UserError, match="is not a whole safetensors file") as caught:
        files.read(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    for path in (tmp_path / "gone.safetensors", tmp_path):
        with pytest.raises(types.UserError, match=f"no weights at {path}"):
            files.read(path)


@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(file, monkeypatch, step):
    before = file.read_bytes()

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail_half_way(arrays, path, metadata):
        path.write_bytes(b"half")
        raise safetensors.SafetensorError("I/O error: No space left on device")

    if step == "write":
        monkeypatch.setattr(safetensors.numpy, "save_file", fail_half_way)
    else:
        monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(types.UserError, match=f"cannot write {file}: .*No space left on device"):
        files.write(file, {"a": np.ones(1, np.float32)}, {})
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_place_that_is_no_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(types.UserError, match="cannot write"):
        files.write(tmp_path / "file" / "model.safetensors", ARRAYS, NOTE)


def test_the_note_is_json_in_the_header(file):
    content = file.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    assert json.loads(header["__metadata__"]["hnclip"]) == NOTE
