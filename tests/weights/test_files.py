"""Files of tensors: exact both ways, small in memory, and nothing half written."""

import errno
import hashlib
import json
import os
import struct
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch

from hnclip_jax import types
from hnclip_jax.weights import files, stored
from tests.weights import hostile

BRAIN = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype(np.float32), np.dtype(np.float16), BRAIN, np.dtype(np.float64))
OTHERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")
DTYPES = (*FLOATS, *map(np.dtype, OTHERS))

ARRAYS = {
    "text/proj": np.arange(6, dtype=np.float32).reshape(2, 3),
    "logit_scale": np.array(2.5, np.float32),
    "ids": np.array([3, 1], np.int32),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "empty": np.zeros((0, 4), np.float32),
    "half": np.array([1.5, -2], np.float16),
    "brain": np.array([[1.5], [-3]], BRAIN),
    "flag": np.array([True, False, True]),
}
NOTE = {"model": {"text_width": 16}, "step": 7, "list": "/data/übung.json", "best": None}


@pytest.fixture
def file(tmp_path):
    """A written file."""
    files.write(tmp_path / "model.safetensors", ARRAYS, NOTE)
    return tmp_path / "model.safetensors"


def _assert_same(found, wanted):
    found = np.asarray(found)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape  # A scalar is no vector of one.
    assert found.tobytes() == wanted.tobytes()


def _numpy(tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BRAIN)
    return tensor.numpy()


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


# Our own files and safetensors.


def test_a_round_trip_is_exact(file):
    contents = files.read(file)
    assert contents.paths == (file,)
    assert contents.container == "safetensors"
    assert contents.note == NOTE
    assert contents.tree.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (contents.tree[name].shape, contents.tree[name].dtype) == (array.shape, array.dtype)
        _assert_same(contents.tree[name], array)


def test_what_was_read_can_be_written_on(file, tmp_path):
    before = file.read_bytes()
    files.write(tmp_path / "again.safetensors", files.read(file).tree, NOTE)
    assert (tmp_path / "again.safetensors").read_bytes() == before
    files.write(file, files.read(file).tree, NOTE)  # Over the file that it is read from.
    assert file.read_bytes() == before


def test_the_official_library_reads_what_is_written(file):
    found = safetensors.torch.load_file(file)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        _assert_same(_numpy(found[name]), np.ascontiguousarray(array).reshape(array.shape))
    with safetensors.safe_open(file, framework="numpy") as opened:
        assert json.loads(opened.metadata()["hnclip"]) == NOTE


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_the_official_library_writes_is_read(tmp_path, dtype):
    values = np.random.default_rng(3).integers(0, 2, (3, 5)).astype(dtype)
    tensor = torch.from_numpy(values.view(np.int16)) if dtype == BRAIN else torch.from_numpy(values)
    tensor = tensor.view(torch.bfloat16) if dtype == BRAIN else tensor
    safetensors.torch.save_file(
        {"a": tensor, "b": torch.ones(3, dtype=torch.int8)}, tmp_path / "x", {"format": "pt"}
    )
    contents = files.read(tmp_path / "x")
    _assert_same(contents.tree["a"], values)
    assert contents.note == {}


def test_big_endian_values_are_turned(tmp_path):
    values = np.arange(3, dtype=">f4")
    files.write_safetensors(tmp_path / "x", {"a": values}, {})
    _assert_same(files.read(tmp_path / "x").tree["a"], values.astype("<f4"))


def test_the_header_is_aligned_and_sorted(tmp_path):
    arrays = {"b": np.ones(3, np.int8), "c": np.ones(1, np.float64), "a": np.ones(1, np.float32)}
    files.write_safetensors(tmp_path / "x", arrays, {"z": "1", "y": "2"})
    content = (tmp_path / "x").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert header == {
        "__metadata__": {"y": "2", "z": "1"},
        "c": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]},
        "b": {"dtype": "I8", "shape": [3], "data_offsets": [12, 15]},
    }
    assert len(content) == 8 + length + 15
    files.write_safetensors(tmp_path / "x", arrays, {"y": "2", "z": "1"})
    assert (tmp_path / "x").read_bytes() == content


def test_equal_contents_are_equal_bytes(file, tmp_path):
    again, other = tmp_path / "again", tmp_path / "other"
    files.write(again, dict(reversed(ARRAYS.items())), dict(reversed(NOTE.items())))
    assert again.read_bytes() == file.read_bytes()
    files.write(other, ARRAYS, {**NOTE, "step": 8})
    assert other.read_bytes() != file.read_bytes()


def test_writing_again_replaces_the_whole_file(file):
    files.write(file, {"a": np.ones(1, np.float32)}, {})
    contents = files.read(file)
    assert list(contents.tree) == ["a"]
    assert contents.note == {}
    assert _names(file.parent) == [file.name]


def test_progress_counts_the_bytes_of_the_tensors(tmp_path):
    told = []
    files.write(tmp_path / "x", ARRAYS, NOTE, told.append)
    assert sum(told) == sum(array.nbytes for array in ARRAYS.values())
    assert len(told) == len(ARRAYS)


def test_one_tensor_at_a_time_is_in_memory_when_writing(tmp_path):
    read = []

    def fresh():
        assert all(array() is None for array in read)
        values = np.ones(100, np.float32)
        read.append(weakref.ref(values))
        return values

    arrays = {name: stored.Stored((100,), np.dtype(np.float32), fresh) for name in "abc"}
    files.write(tmp_path / "x", arrays, {})
    assert len(read) == 3


def test_values_that_are_not_as_promised_are_not_written(tmp_path):
    wrong = stored.Stored((2,), np.dtype(np.float32), lambda: np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"a was to be float32 \(2,\), but is float32 \(3,\)"):
        files.write(tmp_path / "x", {"a": wrong}, {})
    assert _names(tmp_path) == []


@pytest.mark.parametrize(
    "arrays",
    [{"a": np.ones(1, np.complex64)}, {"a": np.array(["x"])}, {"__metadata__": np.ones(1)}],
    ids=["complex", "text", "reserved name"],
)
def test_what_the_format_cannot_hold_is_one_line(tmp_path, arrays):
    with pytest.raises(types.UserError, match=f"cannot hold {min(arrays)} of"):
        files.write(tmp_path / "x", arrays, {})
    assert _names(tmp_path) == []


# Reading maps, and only what is asked for.


def test_a_tensor_maps_its_own_bytes_until_it_dies(file):
    values = np.asarray(files.read(file).tree["text/proj"])
    mapped = values.base
    assert isinstance(mapped, np.memmap)
    assert mapped.nbytes == 24
    assert not values.flags.writeable
    gone = weakref.ref(mapped)
    del values, mapped
    assert gone() is None


def test_values_become_arrays_as_numpy_asks(file):
    array = files.read(file).tree["ids"]
    assert np.asarray(array, np.float64).tolist() == [3.0, 1.0]
    assert np.array(array).flags.writeable
    assert np.array(array, copy=False).base is not None
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, np.float64, copy=False)


def test_a_file_that_shrinks_is_one_line(file):
    contents = files.read(file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(types.UserError, match=f"{file} changed while it was read"):
        np.asarray(contents.tree["ids"])
    file.unlink()
    with pytest.raises(types.UserError, match=f"{file} changed while it was read"):
        np.asarray(contents.tree["ids"])


_MEGABYTES = 25
_COUNT = 8

_READ_ALL = """
import resource, sys
import numpy as np
from hnclip_jax.weights import files
unit = 1 << 20 if sys.platform == "darwin" else 1 << 10

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit

tree = files.read(sys.argv[1]).tree
before = peak()
total = sum(float(np.asarray(array).max()) for array in tree.values())
files.write(sys.argv[1] + ".copy", tree, {})
assert total == len(tree) == 8
assert not {"torch", "jax"} & set(sys.modules), "reading imports too much"
print(peak() - before)
"""


def _large(path, kind):
    shape = (_MEGABYTES << 18,)
    if kind == "safetensors":
        arrays = {str(i): np.broadcast_to(np.float32(1), shape) for i in range(_COUNT)}
        files.write(path, arrays, {})
    else:
        tensors = {str(i): torch.ones(shape) for i in range(_COUNT)}
        torch.save(tensors, path, _use_new_zipfile_serialization=kind == "zip")


@pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
def test_memory_stays_small(tmp_path, kind):
    _large(tmp_path / "large", kind)
    # The shell between them makes a process whose peak does not begin with that of this one.
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", _READ_ALL]
    done = subprocess.run([*command, tmp_path / "large"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 80  # MB, of a file of 200.


# Failures leave nothing behind.


def _fails_with(error):
    def read():
        raise error

    return {
        "a": np.ones(1000, np.float32),
        "b": stored.Stored((1,), np.dtype(np.float32), read),
    }


@pytest.mark.parametrize("write", [files.write_torch, lambda *a: files.write(*a, {})])
@pytest.mark.parametrize("place", ["model.pt", "new/folder/model.pt"])
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "cannot write .*No space left"),
        (types.UserError("the source is damaged"), "^the source is damaged$"),
        (KeyboardInterrupt(), None),
    ],
    ids=["full disk", "damaged source", "Ctrl-C"],
)
def test_a_failure_while_writing_leaves_nothing(tmp_path, write, place, error, seen):
    wanted = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else types.UserError
    with pytest.raises(wanted, match=seen):
        write(tmp_path / place, _fails_with(error))
    assert _names(tmp_path) == []


@pytest.mark.parametrize("write", [files.write_torch, lambda *a: files.write(*a, {})])
def test_a_failure_at_the_end_leaves_the_old_file(file, monkeypatch, write):
    before = file.read_bytes()

    def fail(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(types.UserError, match=f"cannot write {file}: .*Read-only") as caught:
        write(file, {"a": np.ones(1, np.float32)})
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before
    assert _names(file.parent) == [file.name]


def test_what_torch_says_of_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("PytorchStreamWriter failed writing file data/0\nfrom somewhere")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(types.UserError, match=r"cannot write .*failed writing file data/0 from"):
        files.write_torch(tmp_path / "x.pt", {"a": np.ones(1, np.float32)})
    assert _names(tmp_path) == []


def test_a_place_that_is_no_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for write in (files.write_torch, lambda *a: files.write(*a, NOTE)):
        with pytest.raises(types.UserError, match="cannot write"):
            write(tmp_path / "file" / "model.safetensors", ARRAYS)
    assert _names(tmp_path) == ["file"]


# Files for torch.


def test_torch_reads_what_is_written_for_it(tmp_path):
    arrays = {str(dtype): np.arange(6).reshape(3, 2).astype(dtype) for dtype in DTYPES} | ARRAYS
    files.write_torch(tmp_path / "x.pt", arrays)
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    assert type(found) is dict
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].is_contiguous()
        _assert_same(_numpy(found[name]), np.ascontiguousarray(array).reshape(array.shape))


def test_torch_files_do_not_depend_on_their_name(tmp_path):
    for name in ("a.pt", "b.bin"):
        files.write_torch(tmp_path / name, ARRAYS)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_torch_writes_the_arrays_themselves(tmp_path, monkeypatch, file):
    saved = {}
    monkeypatch.setattr(torch, "save", lambda tensors, _: saved.update(tensors))
    arrays = {"a": np.ones(3, np.float32), "b": np.ones(3, BRAIN)}
    files.write_torch(tmp_path / "x.pt", arrays)
    for name, array in arrays.items():
        assert saved[name].data_ptr() == array.ctypes.data


def test_without_torch_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(types.UserError, match=r"pip install 'hnclip_jax\[torch\]'"):
        files.write_torch(tmp_path / "new" / "x.pt", ARRAYS)
    assert _names(tmp_path) == []


# Which file, and what it is.


def test_the_hash_is_that_of_the_bytes(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"abc")
    two.write_bytes(bytes(3 << 20))
    assert files.sha256(one) == hashlib.sha256(b"abc").hexdigest()
    assert files.sha256(str(one)) == files.sha256([one]) == files.sha256(one)
    assert files.sha256((one, two)) == hashlib.sha256(b"abc" + bytes(3 << 20)).hexdigest()


@pytest.mark.parametrize("name", ["model.pt", "model", "model.bin.index.json"])
def test_the_name_of_a_file_says_nothing(tmp_path, name):
    files.write(tmp_path / name, ARRAYS, NOTE)
    assert files.read(tmp_path / name).container == "safetensors"
    files.write_torch(tmp_path / name, ARRAYS)
    assert files.read(str(tmp_path / name)).container == "PyTorch zip"
    torch.save({"a": torch.ones(2)}, tmp_path / name, _use_new_zipfile_serialization=False)
    assert files.read(tmp_path / name).container == "PyTorch before 1.6"


@pytest.mark.parametrize("header_size", [123, int.from_bytes(b"PK\x03\x04", "little")])
def test_a_header_may_have_any_size(tmp_path, header_size):
    head = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    content = struct.pack("<Q", header_size) + head.ljust(header_size) + b"\x07"
    (tmp_path / "x").write_bytes(content)
    _assert_same(files.read(tmp_path / "x").tree["a"], np.array([7], np.uint8))


def test_a_missing_file_and_a_folder_are_one_line(tmp_path):
    with pytest.raises(types.UserError, match=f"no weights at {tmp_path}/gone"):
        files.read(tmp_path / "gone")
    with pytest.raises(types.UserError, match=f"{tmp_path} is a folder"):
        files.read(tmp_path)


def test_a_file_is_found_as_itself(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    assert files.find(str(tmp_path / "notes.txt")) == tmp_path / "notes.txt"


_ORDER = [
    "weights/model.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
    "other.ckpt",
]


@pytest.mark.parametrize("first", range(len(_ORDER)), ids=_ORDER)
def test_a_folder_leads_to_the_first_name_it_has(tmp_path, first):
    for name in ("config.json", "training.log", *_ORDER[first:]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert files.find(tmp_path) == tmp_path / _ORDER[first]


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.pth", "a.bin", "a.ckpt"])
def test_the_only_file_of_weights_in_a_folder_is_found(tmp_path, name):
    for other in (name, "a.json", "a.pt.txt"):
        (tmp_path / other).write_text("")
    (tmp_path / "folder.pt").mkdir()
    assert files.find(tmp_path) == tmp_path / name


def test_several_files_are_listed(tmp_path):
    for name in ("b.pt", "a.ckpt", "c.txt"):
        (tmp_path / name).write_text("")
    with pytest.raises(types.UserError, match=r"several files of weights \(a.ckpt, b.pt\)"):
        files.find(tmp_path)


def test_what_was_tried_is_listed(tmp_path):
    with pytest.raises(types.UserError) as caught:
        files.find(tmp_path)
    message = str(caught.value)
    assert message.startswith(f"no weights at {tmp_path}; tried {tmp_path}/weights/model.safeten")
    assert all(str(tmp_path / name) in message for name in _ORDER[:-1])
    assert message.endswith("*.safetensors, *.pt, *.pth, *.bin, *.ckpt")
    with pytest.raises(types.UserError, match=r"gone: there is no such file or folder$"):
        files.find(tmp_path / "gone")


# Shards.


def _sharded(folder, names, write):
    for shard, held in names.items():
        write(folder / shard, {name: ARRAYS[name] for name in held})
    index = {name: shard for shard, held in names.items() for name in held}
    (folder / "index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder / "index.json"


@pytest.mark.parametrize(
    ("write", "container"),
    [
        (lambda *a: files.write_safetensors(*a, {"format": "pt"}), "safetensors"),
        (files.write_torch, "PyTorch zip"),
    ],
    ids=["safetensors", "torch"],
)
def test_shards_are_one(tmp_path, write, container):
    index = _sharded(tmp_path, {"b.x": ["ids", "half"], "a.x": ["brain"]}, write)
    contents = files.read(index)
    assert contents.paths == (index, tmp_path / "a.x", tmp_path / "b.x")
    assert contents.container == container
    assert contents.note == {}
    assert contents.tree.keys() == {"ids", "half", "brain"}
    for name, array in contents.tree.items():
        _assert_same(array, ARRAYS[name])


def test_an_index_is_not_taken_for_a_header(tmp_path):
    _sharded(tmp_path, {"a.x": ["ids"]}, files.write_torch)
    (tmp_path / "index.json").write_text('{"meta":{},"weight_map":{"ids":"a.x"}}')
    _assert_same(files.read(tmp_path / "index.json").tree["ids"], ARRAYS["ids"])


def test_a_shard_with_more_than_its_index_says_is_refused(tmp_path):
    index = _sharded(tmp_path, {"a.x": ["ids"]}, files.write_torch)
    files.write_torch(tmp_path / "a.x", {name: ARRAYS[name] for name in ("ids", "half")})
    with pytest.raises(types.UserError, match=r"a\.x also holds half, unlike its index says"):
        files.read(index)


def test_a_shard_that_is_an_index_is_refused(tmp_path):
    index = _sharded(tmp_path, {"a.x": ["ids"]}, files.write_torch)
    (tmp_path / "a.x").write_bytes(index.read_bytes())
    with pytest.raises(types.UserError, match=r"a\.x is JSON"):
        files.read(index)


# Everything that is broken.


@pytest.mark.parametrize("kind", hostile.BROKEN)
def test_what_is_broken_or_hostile_is_refused_in_one_line(tmp_path, kind):
    build, expected = hostile.BROKEN[kind]
    path = tmp_path / "model.safetensors"
    build(path)
    before = _names(tmp_path)
    with pytest.raises(types.UserError) as caught:
        files.read(path)
    message = str(caught.value)
    assert expected in message
    assert str(tmp_path) in message
    assert message.isprintable()
    assert len(message) < 500
    assert not hostile.marker(path).exists()
    assert _names(tmp_path) == before


@pytest.mark.parametrize("kind", hostile.LATE)
def test_damaged_values_are_refused_when_they_are_read(tmp_path, kind):
    build, expected = hostile.LATE[kind]
    build(tmp_path / "x")
    tree = files.read(tmp_path / "x").tree
    for _ in range(2):
        with pytest.raises(types.UserError, match=expected):
            np.asarray(tree["weight"])
    with pytest.raises(types.UserError, match=expected):
        files.write(tmp_path / "new" / "y", tree, {})
    assert _names(tmp_path) == ["x"]
