"""What torch writes, read without it: equal to what torch itself reads, and nothing ever runs."""

import argparse
import collections
import pathlib
import random
import subprocess
import sys
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest
import torch

from hnclip_jax import types
from hnclip_jax.weights import stored
from hnclip_jax.weights.containers import archive, pickles
from tests.weights import hostile

CONTAINERS = {"PyTorch zip": True, "PyTorch before 1.6": False}

DTYPES = [
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]
# torch itself cannot read back what it writes of these in the old format.
NEW_DTYPES = [torch.uint16, torch.uint32, torch.uint64]


@pytest.fixture(params=CONTAINERS)
def save(request, tmp_path):
    """Saves with torch and reads without it: (value, **options) -> (tree, path)."""

    def run(value, **options):
        path = tmp_path / "x.pt"
        is_zip = CONTAINERS[request.param]
        torch.save(value, path, _use_new_zipfile_serialization=is_zip, **options)
        container, tree = pickles.read(path)
        assert container == request.param
        return tree, path

    return run


def _numpy(tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _assert_same(found, tensor):
    assert isinstance(found, stored.Stored)
    wanted = _numpy(tensor)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    values = np.asarray(found)
    assert (values.shape, values.dtype) == (wanted.shape, wanted.dtype)
    assert values.tobytes() == wanted.tobytes()


def _assert_all_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        _assert_same(found[name], tensor)


# Tensors.


@pytest.mark.parametrize("dtype", DTYPES + NEW_DTYPES, ids=str)
def test_every_type_is_what_torch_reads(save, dtype):
    bits = torch.randint(0, 256, (4, 24), dtype=torch.uint8, generator=torch.manual_seed(1))
    values = bits % 2 == 1 if dtype == torch.bool else bits.view(dtype)
    value = {"a": values, "b": values[0, 0], "c": values[:0].clone()}
    found, path = save(value)
    _assert_all_same(found, value)
    if dtype not in NEW_DTYPES:
        _assert_all_same(found, torch.load(path, weights_only=True))
    assert found["b"].shape == ()
    assert found["c"].nbytes == 0


VIEWS = {
    "transposed": lambda x: x.T,
    "rows": lambda x: x[1:3],
    "columns": lambda x: x[:, 2:5],
    "steps": lambda x: x[::2, 1::3],
    "one": lambda x: x[3, 4],
    "last": lambda x: x[-1:, -1:],
    "repeated": lambda x: x[:, :1].expand(4, 1000),
    "axes": lambda x: x.reshape(2, 2, 3, 2).permute(3, 1, 0, 2),
    "nothing": lambda x: x[4:],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with its base"])
def test_every_view_is_what_torch_reads(save, view, alone):
    base = torch.arange(24.0).reshape(4, 6)
    found, path = save({"view": VIEWS[view](base)} | ({} if alone else {"base": base}))
    _assert_all_same(found, torch.load(path, weights_only=True))
    _assert_same(found["view"], VIEWS[view](base))


def test_a_view_maps_no_more_than_its_span(save):
    found, _ = save({"a": torch.arange(24.0).reshape(4, 6)[1:3, 2:4]})
    values = np.asarray(found["a"])
    np.testing.assert_array_equal(values, [[8, 9], [14, 15]])
    assert values.base.nbytes == 4 * 8  # From the 8 to the 15.


def test_shared_values_are_read_wherever_they_are(save):
    held = torch.arange(6.0)
    found, _ = save({"a": held, "b": held, "c": held[2:], "d": [held, (held,)]})
    _assert_same(found["a"], held)
    _assert_same(found["b"], held)
    _assert_same(found["c"], held[2:])
    _assert_same(found["d"][0], held)
    _assert_same(found["d"][1][0], held)


def test_parameters_buffers_and_attributes_make_no_difference(save):
    plain, marked = torch.arange(3.0), torch.nn.Parameter(torch.arange(4.0))
    marked.sharding = "rows"
    noted = torch.arange(5.0)
    noted.note = {"a": 1}
    bare = torch.arange(3, dtype=torch.uint8)
    value = {
        "parameter": torch.nn.Parameter(plain),
        "marked": marked,
        "frozen": torch.nn.Parameter(torch.arange(3), requires_grad=False),
        "buffer": torch.nn.Buffer(plain * 2),
        "noted": noted,
    }
    found, _ = save({**value, "storage": bare.untyped_storage()})
    _assert_same(found.pop("storage"), bare)
    _assert_all_same(found, value)


def test_the_state_of_a_module_is_read(save):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    found, _ = save(module.state_dict())
    assert type(found) is dict
    assert found["1.num_batches_tracked"].shape == ()
    _assert_all_same(found, module.state_dict())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_is_read(save, protocol):
    value = {"a": torch.nn.Parameter(torch.arange(3.0)), "set": {3}, "text": "ü", "n": -(2**40)}
    found, _ = save(value, pickle_protocol=protocol)
    _assert_same(found.pop("a"), value["a"])
    assert found == {"set": [3], "text": "ü", "n": -(2**40)}


def test_a_training_checkpoint_is_read_whole(save):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = pathlib.PurePosixPath("/data/runs")
    order = np.arange(6, dtype=">u4").reshape(2, 3)
    value = {
        "epoch": 3,
        "best": np.float32(0.5),
        "count": np.int64(7),
        "done": np.bool_(True),
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 0},
        "args": argparse.Namespace(lr=1e-3, layers=[1, (2, None)], logs=path, dtype=torch.half),
        "orders": [order, order.T],
        "device": torch.device("cuda", 1),
        "size": torch.Size([2, 3]),
        "data": b"\x00\xff",
        "milestones": collections.Counter([30, 60, 60]),
        "groups": collections.defaultdict(list, {"a": [1]}),
        "seen": frozenset([5]),
    }
    found, _ = save(value)
    _assert_all_same(found.pop("state_dict"), model.state_dict())
    np.testing.assert_array_equal(found["orders"][0], order)
    np.testing.assert_array_equal(found.pop("orders")[1], order.T)
    moments = found["optimizer"].pop("state")
    for number, parameter in enumerate(model.parameters()):
        _assert_all_same(moments[number], optimizer.state[parameter])
    assert found.pop("optimizer") == {"param_groups": optimizer.state_dict()["param_groups"]}
    assert found == {
        "epoch": 3,
        "best": 0.5,
        "count": 7,
        "done": True,
        "scaler": value["scaler"],
        "args": {
            "lr": 1e-3,
            "layers": [1, (2, None)],
            "logs": "/data/runs",
            "dtype": "torch.float16",
        },
        "device": "cuda:1",
        "size": (2, 3),
        "data": b"\x00\xff",
        "milestones": {30: 1, 60: 2},
        "groups": {"a": [1]},
        "seen": [5],
    }


@pytest.mark.parametrize("core", ["core", "_core"])
def test_arrays_of_every_numpy_are_read(tmp_path, core):
    hostile.as_zip(tmp_path / "x", hostile.mapping(a=hostile.numpy_array(core=core)))
    np.testing.assert_array_equal(pickles.read(tmp_path / "x")[1]["a"], list(b"abcdef"))


# Containers.


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4:UserWarning")
def test_parts_of_storages_are_read_as_old_files_have_them(tmp_path):
    def part(view):
        held = hostile.group(
            *map(hostile.text, ["storage"]),
            hostile.name("torch", "FloatStorage"),
            *(hostile.text("0"), hostile.text("cpu"), hostile.number(6)),
            view,
        )
        return hostile.tensor(held + b"Q", offset=1, shape=(2,), strides=(1,))

    view = hostile.group(hostile.text("9"), hostile.number(2), hostile.number(3))
    value = hostile.mapping(part=part(view), whole=part(b"N"))
    hostile.as_legacy(tmp_path / "x", value)
    _, found = pickles.read(tmp_path / "x")
    np.testing.assert_array_equal(found["part"], [3, 4])
    np.testing.assert_array_equal(found["whole"], [1, 2])
    _assert_all_same(found, torch.load(tmp_path / "x", weights_only=True))

    beyond = hostile.group(hostile.text("9"), hostile.number(4), hostile.number(3))
    hostile.as_legacy(tmp_path / "x", hostile.mapping(part=part(beyond)))
    with pytest.raises(types.UserError, match="reaches outside of itself"):
        pickles.read(tmp_path / "x")
    short = hostile.group(hostile.text("9"), hostile.number(0), hostile.number(2))
    hostile.as_legacy(tmp_path / "x", hostile.mapping(part=part(short)))
    with pytest.raises(types.UserError, match="needs 3 values of a storage of 2"):
        pickles.read(tmp_path / "x")


def test_the_first_type_of_a_storage_says_its_size_in_old_files(tmp_path):
    raw = hostile.storage(count=24, kind="UntypedStorage")
    hostile.as_legacy(tmp_path / "x", hostile.mapping(a=hostile.tensor(), raw=raw))
    _, found = pickles.read(tmp_path / "x")
    np.testing.assert_array_equal(found["a"], [[0, 1, 2], [3, 4, 5]])
    assert np.asarray(found["raw"]).tobytes() == hostile.VALUES


def test_a_file_without_checksums_is_read(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(3.0)}, tmp_path / "x")
    finally:
        torch.serialization.set_crc32_options(True)
    with zipfile.ZipFile(tmp_path / "x") as file:
        assert all(info.CRC == 0 for info in file.infolist())
    _assert_same(pickles.read(tmp_path / "x")[1]["a"], torch.arange(3.0))


def test_a_file_that_says_no_byte_order_is_read(tmp_path):
    torch.save({"a": torch.arange(3.0)}, tmp_path / "x")
    with (
        zipfile.ZipFile(tmp_path / "x") as file,
        zipfile.ZipFile(tmp_path / "y", "w") as other,
    ):
        for record in file.namelist():
            if record != "x/byteorder":
                other.writestr(record, file.read(record))
    _assert_same(pickles.read(tmp_path / "y")[1]["a"], torch.arange(3.0))


def test_a_record_is_checked_once_and_when_it_is_read(tmp_path, monkeypatch):
    held = torch.arange(6.0)
    torch.save({"a": held, "b": held[1:], "c": torch.ones(2)}, tmp_path / "x")
    _, tree = pickles.read(tmp_path / "x")
    checked, real = [], zlib.crc32

    def count(part, *state):
        checked.append(len(part))
        return real(part, *state)

    monkeypatch.setattr(archive.zlib, "crc32", count)
    for name in "abab":
        np.asarray(tree[name])
    assert checked == [24]


class Net(torch.nn.Module):
    """Has of everything that a scripted module can keep."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.visual = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU()).to(dtype)
        self.scale = torch.nn.Parameter(torch.tensor(2.5, dtype=dtype))
        self.register_buffer("input_resolution", torch.tensor(224))
        self.register_buffer("mask", torch.zeros(2, 3).T)
        self.heads, self.rate, self.is_causal, self._hidden = 3, 0.5, True, 1
        self.sizes, self.title, self.groups = [1, 2], "net", {"a": 1}
        self.held = [torch.ones(2)]

    def forward(self, x):
        return self.visual(x) * self.scale + self.heads + self.sizes[0] + self.groups["a"]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("how", ["script", "trace"])
def test_torchscript_is_its_state(tmp_path, how, dtype):
    module, path = Net(dtype), tmp_path / "x.pt"
    if how == "script":
        torch.jit.save(torch.jit.script(module), path)
    else:
        torch.jit.save(torch.jit.trace(module, torch.ones(1, 3, dtype=dtype)), path)
    container, found = pickles.read(path)
    assert container == "TorchScript"
    wanted = torch.jit.load(path).state_dict()
    assert found.pop("input_resolution") == wanted.pop("input_resolution").item() == 224
    numbers = {"heads": 3, "rate": 0.5, "is_causal": True}
    for name, number in numbers.items() if how == "script" else ():
        assert found.pop(name) == number
    _assert_all_same(found, wanted)
    assert found["scale"].shape == ()


# What is refused.


@pytest.mark.parametrize("kind", hostile.PAYLOADS)
def test_the_payloads_would_run(tmp_path, kind):
    content = hostile.program(hostile.PAYLOADS[kind][0](tmp_path / "x"))
    # In a process of its own: one of them changes a class for good.
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    subprocess.run([sys.executable, "-c", code], input=content, check=False, capture_output=True)
    assert hostile.marker(tmp_path / "x").exists()


@pytest.mark.parametrize("is_zip", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_whole_model_is_told_from_its_tensors(tmp_path, is_zip, wrapped):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    value = {"epoch": 1, "model": model} if wrapped else model
    torch.save(value, tmp_path / "x", _use_new_zipfile_serialization=is_zip)
    with pytest.raises(types.UserError) as caught:
        pickles.read(tmp_path / "x")
    assert str(caught.value) == (
        f"{tmp_path}/x holds a whole pickled model (torch.nn.modules.container.Sequential), which "
        "could run code; nothing of it was loaded; where it came from, save the tensors alone: "
        "torch.save(model.state_dict(), PATH)"
    )


@pytest.mark.filterwarnings("ignore:.*torch.ao.quantization:DeprecationWarning")
@pytest.mark.parametrize(
    ("tensor", "named"),
    [
        (lambda: torch.eye(3).to_sparse(), "torch._utils._rebuild_sparse_tensor"),
        (lambda: torch.ones(2, device="meta"), "torch._utils._rebuild_meta_tensor_no_storage"),
        (lambda: torch.ones(2, dtype=torch.complex64), "torch.ComplexFloatStorage"),
        (lambda: torch.ones(2).to(torch.float8_e4m3fn), "torch.float8_e4m3fn"),
        (lambda: torch._neg_view(torch.ones(2)), "tensor a negated or conjugated"),
    ],
    ids=["sparse", "meta", "complex", "float8", "negated"],
)
def test_other_kinds_of_tensors_are_refused_by_name(save, tensor, named):
    with pytest.raises(types.UserError) as caught:
        save({"a": tensor()})
    assert named in str(caught.value)
    assert str(caught.value).endswith("; save plain float32, float16 or bfloat16 tensors")


def test_a_pickle_cannot_reserve_memory(tmp_path):
    """The usual unpickler makes a table of 2 ** 32 entries for this, which is 32 GB."""
    hostile.as_zip(tmp_path / "x", b"}r\xff\xff\xff\x7f")
    assert pickles.read(tmp_path / "x") == ("PyTorch zip", {})


def test_names_cannot_break_the_line(tmp_path):
    late = hostile.late_name("os\n\x1b[2J", "system" * 100)
    hostile.as_zip(tmp_path / "x", late)
    with pytest.raises(types.UserError) as caught:
        pickles.read(tmp_path / "x")
    assert r"names os \x1b[2J.systemsystem" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


def _damaged(content, generator):
    content = bytearray(content)
    for _ in range(generator.choice([1, 1, 2, 5])):
        place = generator.randrange(len(content))
        match generator.randrange(3):
            case 0:
                content[place] = generator.randrange(256)
            case 1:
                del content[place : place + generator.randrange(1, 9)]
            case 2:
                other = generator.randrange(len(content))
                content[place:place] = content[other : other + generator.randrange(1, 40)]
    return bytes(content)


def _read_all(value):
    if isinstance(value, stored.Stored):
        np.asarray(value).tobytes()
    elif isinstance(value, dict):
        for held in value.values():
            _read_all(held)


def _refusal(path):
    """Returns why a file is not read, or nothing if it is."""
    try:
        _read_all(pickles.read(path)[1])
    except types.UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["zip", "TorchScript", "legacy", "raw bytes"])
def test_damage_anywhere_is_one_line_or_harmless(tmp_path, kind):
    path = tmp_path / "x"
    generator = random.Random(kind)
    dtype = hostile.call(hostile.name("torch", "device"), hostile.text("cpu"))
    value = hostile.mapping(a=hostile.tensor(), b=hostile.numpy_array(), c=dtype, d=b"G" + bytes(8))
    module = hostile.name("__torch__.m", "A") + b")\x81" + value + b"b"
    hostile.as_zip(path, value)
    whole = path.read_bytes()
    refused = 0
    for _ in range(300):
        if kind == "raw bytes":
            path.write_bytes(_damaged(whole, generator))
        elif kind == "legacy":
            hostile.as_legacy(path, _damaged(value, generator))
        elif kind == "zip":
            hostile.as_zip(path, _damaged(value, generator))
        else:
            hostile.as_script(path, _damaged(module, generator))
        message = _refusal(path)
        refused += message != ""
        assert message.isprintable()
        assert message == "" or str(path) in message
    assert 100 < refused < 300
