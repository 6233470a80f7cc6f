"""Broken and hostile files, each built by hand: name -> (builder, what the message must say).

A builder writes to the path that it is given, and other files only beside it. Whatever code is in
those would make the file `marker(path)`; nothing runs while they are built. They need neither torch
nor the package.
"""

import gzip
import json
import pickle
import struct
import zipfile

VALUES = struct.pack("<6f", 0, 1, 2, 3, 4, 5)


def marker(path):
    """The file that is there if a payload ran."""
    return path.with_name(path.name + ".ran")


def _shell(path):
    return f"echo ran > '{marker(path)}'"


def _statement(path):
    return f"open({str(marker(path))!r}, 'w').close()"


# Instructions of a pickle, as bytes.


def text(value):
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value):
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


def late_name(module, attribute):
    """As protocol 4 has it: dots in the attribute lead from one thing to the next."""
    return text(module) + text(attribute) + b"\x93"


def group(*parts):
    return b"(" + b"".join(parts) + b"t"


def call(function, *parts):
    return function + group(*parts) + b"R"


def mapping(**parts):
    return b"}(" + b"".join(text(key) + value for key, value in parts.items()) + b"u"


def storage(key="0", count=6, kind="FloatStorage"):
    return group(text("storage"), name("torch", kind), text(key), text("cpu"), number(count)) + b"Q"


def tensor(held=None, offset=0, shape=(2, 3), strides=(3, 1), version="_v2", end=b""):
    return call(
        name("torch._utils", f"_rebuild_tensor{version}"),
        storage() if held is None else held,
        number(offset),
        shape if isinstance(shape, bytes) else group(*map(number, shape)),
        group(*map(number, strides)),
        b"\x89",
        call(name("collections", "OrderedDict")),
        end,
    )


def numpy_array(kind=None, shape=None, core="_core"):
    """Six bytes as an array; `kind` and `shape` are instructions."""
    state = group(number(3), text("<"), b"N", b"N", b"N", number(-1), number(-1), number(0))
    kind = call(name("numpy", "dtype"), text("u1") if kind is None else kind) + state + b"b"
    shape = group(number(6)) if shape is None else shape
    data = call(name("_codecs", "encode"), text("abcdef"), text("latin1"))
    built = call(name(f"numpy.{core}.multiarray", "_reconstruct"), name("numpy", "ndarray"))
    return built + group(number(1), shape, kind, b"\x89", data) + b"b"


def program(value):
    return b"\x80\x04" + value + b"."


# Containers of such a value.


def as_zip(path, value, named=(), compression=zipfile.ZIP_STORED):
    records = {"data.pkl": program(value), "byteorder": b"little", "data/0": VALUES, **dict(named)}
    with zipfile.ZipFile(path, "w") as file:
        for key, data in records.items():
            file.writestr(f"model/{key}", data, compression if len(data) > 4096 else None)


def as_script(path, value):
    as_zip(path, value, {"constants.pkl": program(b")")})


def as_module(path, value):
    as_script(path, name("__torch__.model", "CLIP") + b")\x81" + mapping(weight=value) + b"b")


def as_legacy(path, value, keys=("0",), data=VALUES, is_little=True):
    system = {"protocol_version": 1001, "little_endian": is_little, "type_sizes": {}}
    heads = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, system)]
    tails = [pickle.dumps(list(keys), 2), struct.pack("<q", len(data) // 4), data]
    path.write_bytes(b"".join([*heads, program(value), *tails]))


def as_pickle(path, value):
    path.write_bytes(program(value))


def as_safetensors(path, header, data=VALUES, size=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if size is None else size) + raw + data)


def entry(start=0, end=24, dtype="F32", shape=(6,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


# Code that makes the marker when Python's own unpickler meets it: path -> value, and the name or
# instruction at which reading has to stop.

SYSTEM = name("posix", "system")


def _chained(path):
    imported = call(name("builtins", "__import__"), text("os"))
    return call(call(name("builtins", "getattr"), imported, text("system")), text(_shell(path)))


def _state(path):
    """Gives a class that may be named a `__setstate__` that runs what it is given."""
    space = name("argparse", "Namespace")
    changed = space + b"(N" + mapping(__setstate__=SYSTEM) + b"tb0"
    return changed + space + b")\x81" + text(_shell(path)) + b"b"


PAYLOADS = {
    "os.system": (lambda path: call(SYSTEM, text(_shell(path))), "posix.system"),
    "eval": (lambda path: call(name("builtins", "eval"), text(_statement(path))), "builtins.eval"),
    "exec": (lambda path: call(name("builtins", "exec"), text(_statement(path))), "builtins.exec"),
    "getattr": (_chained, "builtins.getattr"),
    "dotted": (
        lambda path: call(late_name("os", "path.os.system"), text(_shell(path))),
        "os.path.os.system",
    ),
    "object": (lambda path: b"(" + SYSTEM + text(_shell(path)) + b"o", "posix.system"),
    "instance": (
        lambda path: b"(" + text(_shell(path)) + b"iposix\nsystem\n",
        "the instruction INST",
    ),
    "setstate": (_state, "posix.system"),
}


def _hidden(write, payload):
    return lambda path: write(path, payload(path))


def _text_pickle(path):
    shell = _shell(path).replace("'", "")
    path.write_bytes(f"cposix\nsystem\n(S'{shell}'\ntR.".encode())


# Files that cannot be written in one line.


def _cut(write, size):
    def build(path):
        write(path, mapping(weight=tensor()))
        path.write_bytes(path.read_bytes()[:size])

    return build


def _edited(change, write=as_zip):
    """Writes a sound file and has its bytes (a bytearray) changed in place."""

    def build(path):
        write(path, mapping(weight=tensor()))
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(content)

    return build


def _flip_value(content):
    content[content.find(VALUES) + 3] ^= 1


def _flip_name(content):
    content[content.find(b"weight")] ^= 1


def _encrypt(content):
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for place in range(len(content)):
            if content.startswith(header, place):
                content[place + flags] |= 1


def _name_twice(content):
    content[:] = content.replace(b"model/byteorder", b"model/data/0".ljust(15, b"\0"))


def _promise_more(content):
    struct.pack_into("<2I", content, content.rfind(b"PK\x01\x02") + 20, 1 << 30, 1 << 30)


def _no_header(content):
    content[content.rfind(b"PK\x03\x04")] = 0


def _two_roots(path):
    as_zip(path, mapping(weight=tensor()))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("other/data.pkl", program(b"}"))


def _laughter(path):
    """Each list holds the one before it ten times: 10 ** 30 numbers in 800 bytes."""
    lists = (b"](" + b"h%c" % i * 10 + b"eq%c" % (i + 1) for i in range(30))
    as_zip(path, mapping(a=b"K\x01q\x000" + b"0".join(lists)))


def _laughing_key(path):
    """A pair of pairs of pairs ...: as a key, hashing it takes 2 ** 60 steps."""
    as_zip(path, b"}" + _pairs() + b"K\x01s")


def _pairs():
    return b")" + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))


def _index(names, *shards):
    def build(path):
        for shard in shards:
            as_safetensors(path.with_name(shard), {"a": entry()})
        path.write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": names}))

    return build


def _zip(value, **named):
    return lambda path: as_zip(path, mapping(weight=value), named)


def _bytes(content):
    return lambda path: path.write_bytes(content)


def _header(header, data=VALUES, size=None):
    return lambda path: as_safetensors(path, header, data, size)


_WHOLE = name("clip.model", "CLIP") + b")\x81" + mapping(_parameters=b"}", _modules=b"}") + b"b"
_OWN_MODULE = name("__torch__.m", "A") + b")\x81q\x00" + mapping(inner=b"h\x00") + b"b"
_RUNS, _DAMAGED = "could run code", "is truncated or damaged"

BROKEN = {
    **{
        f"{kind} in {where}": (_hidden(write, payload), stop)
        for kind, (payload, stop) in PAYLOADS.items()
        for where, write in {
            "a zip": as_zip,
            "TorchScript": as_module,
            "a legacy file": as_legacy,
            "a raw pickle": as_pickle,
        }.items()
    },
    "text pickle": (_text_pickle, "posix.system"),
    "pickle of tensors": (
        lambda path: as_pickle(path, mapping(a=name("torch.storage", "_load_from_bytes"))),
        "torch.storage._load_from_bytes",
    ),
    "harmless pickle": (lambda path: as_pickle(path, mapping(a=number(1))), "none that torch.save"),
    "attribute of a name": (
        lambda path: as_zip(path, late_name("torch._utils", "_rebuild_tensor_v2.__globals__")),
        "torch._utils._rebuild_tensor_v2.__globals__",
    ),
    "loading more": (lambda path: as_zip(path, name("torch.hub", "load")), "torch.hub.load"),
    "class of TorchScript": (lambda path: as_zip(path, _OWN_MODULE), "names __torch__.m.A"),
    "whole model": (lambda path: as_zip(path, _WHOLE), "a whole pickled model (clip.model.CLIP)"),
    "whole legacy model": (lambda path: as_legacy(path, _WHOLE), "a whole pickled model"),
    "whole layer": (
        lambda path: as_zip(path, name("torch.nn.modules.linear", "Linear")),
        "a whole pickled model (torch.nn.modules.linear.Linear)",
    ),
    "state of a class": (
        lambda path: as_zip(path, name("argparse", "Namespace") + mapping(x=number(1)) + b"b"),
        "sets attributes of a Name",
    ),
    "identity of a module": (
        lambda path: as_zip(path, group(text("module"), text("a.py"), text("import os")) + b"Q"),
        "no tensors",
    ),
    "identity of text": (lambda path: as_zip(path, b"Pmodule\n"), "instruction PERSID"),
    "extension": (lambda path: as_zip(path, b"\x82\x01"), "instruction EXT1"),
    "call of a value": (lambda path: as_zip(path, call(mapping(), number(1))), "is no name"),
    "call of a type": (
        lambda path: as_zip(path, call(name("torch", "float32"), number(1))),
        "torch.float32, which makes no tensor",
    ),
    "laughter": (_laughter, "too often"),
    "laughing key": (_laughing_key, "a key of type tuple"),
    "deep key": (
        lambda path: as_zip(path, b"})" + b"\x85" * 10**5 + b"K\x01s"),
        "a key of type tuple",
    ),
    "large key": (
        lambda path: as_zip(path, b"}" + number(1 << 60) + b"Ns"),
        "a key of type int",
    ),
    "deep list": (lambda path: as_zip(path, b"]" * 10**5 + b"a" * (10**5 - 1)), "too deep"),
    "list in itself": (lambda path: as_zip(path, b"]q\x00h\x00a"), "too deep"),
    "module in itself": (lambda path: as_script(path, _OWN_MODULE), "too deep"),
    "endless pickle": (lambda path: as_zip(path, b"N0" * 1_100_000), "instructions"),
    "large pickle": (lambda path: as_zip(path, b"N" * (65 << 20)), "65 MB"),
    "large legacy pickle": (
        lambda path: as_legacy(path, b"B" + struct.pack("<I", 65 << 20) + bytes(65 << 20)),
        "64 MB of pickle",
    ),
    "truncated zip": (_cut(as_zip, 300), _DAMAGED),
    "zip without its end": (_cut(as_zip, -30), _DAMAGED),
    "truncated legacy": (_cut(as_legacy, -1), "storage 0 is not whole"),
    "legacy of another size": (
        lambda path: as_legacy(path, mapping(a=tensor(storage(count=5), shape=(5,), strides=(1,)))),
        "storage 0 has another size",
    ),
    "legacy cut in its pickle": (_cut(as_legacy, 200), _DAMAGED),
    "changed pickle": (_edited(_flip_name), "checksum of record model/data.pkl"),
    "encrypted zip": (_edited(_encrypt), "is encrypted"),
    "record named twice": (_edited(_name_twice), "there twice: model/data/0"),
    "record larger than the file": (_edited(_promise_more), "model/data/0 is not whole"),
    "record without header": (_edited(_no_header), "model/data/0 has no header"),
    "zip bomb": (
        lambda path: as_zip(
            path, mapping(a=tensor()), {"data/0": bytes(1 << 26)}, zipfile.ZIP_DEFLATED
        ),
        "model/data/0 compressed",
    ),
    "compressed pickle": (
        lambda path: as_zip(path, b"N0" * 9999 + b"N", compression=zipfile.ZIP_DEFLATED),
        "model/data.pkl compressed",
    ),
    "other zip": (
        lambda path: zipfile.ZipFile(path, "w").writestr("a.npy", VALUES),
        "it has no data.pkl",
    ),
    "two roots": (_two_roots, "more than one data.pkl"),
    "other byte order": (_zip(tensor(), byteorder=b"big"), "other byte order"),
    "other byte order before 1.6": (
        lambda path: as_legacy(path, mapping(a=tensor()), is_little=False),
        "other byte order",
    ),
    "no record": (_zip(tensor(storage("7"))), "record model/data/7 is missing"),
    "record above the others": (_zip(tensor(storage("../data.pkl"))), "/../data.pkl is missing"),
    "short record": (_zip(tensor(storage(count=7))), "storage 0 is not whole"),
    "negative count": (_zip(tensor(storage(count=-6))), "reaches outside of itself"),
    "negative stride": (_zip(tensor(strides=(-3, 1), offset=3)), "one is negative"),
    "negative offset": (_zip(tensor(offset=-1)), "one is negative"),
    "negative size": (_zip(tensor(shape=(-2, 3))), "one is negative"),
    "offset outside": (_zip(tensor(offset=1)), "needs 7 values of a storage of 6"),
    "size outside": (_zip(tensor(shape=(3, 3))), "needs 9 values of a storage of 6"),
    "stride outside": (_zip(tensor(strides=(1 << 62, 1))), "values of a storage of 6"),
    "strides of other rank": (_zip(tensor(strides=(1,))), "do not fit together"),
    "repeated value": (
        _zip(tensor(shape=(1 << 30, 1 << 30), strides=(0, 0))),
        "repeats 6 values too often",
    ),
    "many axes": (_zip(tensor(shape=(1,) * 40, strides=(1,) * 40)), "shape or place is none"),
    "laughing shape": (_zip(tensor(shape=_pairs())), "shape or place is none"),
    "laughing type": (_zip(numpy_array(_pairs())), "no numbers"),
    "repeating shape": (
        _zip(numpy_array(None, group(number(1 << 40), group(number(1))))),
        "shape does not fit",
    ),
    "tensor of nothing": (_zip(tensor(held=number(0))), "no storage"),
    "conjugated": (_zip(tensor(end=mapping(conj=b"\x88"))), "conjugated"),
    "float8": (
        _zip(tensor(version="_v3", end=name("torch", "float8_e4m3fn"))),
        "tensor weight of torch.float8_e4m3fn",
    ),
    "complex": (_zip(tensor(storage(kind="ComplexFloatStorage"))), "torch.ComplexFloatStorage"),
    "sparse": (
        _zip(call(name("torch._utils", "_rebuild_sparse_tensor"))),
        "a kind that is not read (torch._utils._rebuild_sparse_tensor)",
    ),
    "quantized": (
        _zip(call(name("torch._utils", "_rebuild_qtensor"))),
        "a kind that is not read (torch._utils._rebuild_qtensor)",
    ),
    "bare tensor": (lambda path: as_zip(path, tensor()), "not a dict of named tensors"),
    "truncated safetensors": (_header({"a": entry()}, VALUES[:-1]), _DAMAGED),
    "longer safetensors": (_header({"a": entry()}, VALUES + b"x"), _DAMAGED),
    "huge header": (_header(b"{}", size=1 << 60), _DAMAGED),
    "header beyond the file": (_header({"a": entry()}, size=1 << 20), _DAMAGED),
    "overlapping tensors": (_header({"a": entry(), "b": entry()}), _DAMAGED),
    "hole between tensors": (
        _header({"a": entry(0, 8, shape=(2,)), "b": entry(16, 24, shape=(2,))}),
        _DAMAGED,
    ),
    "header that is no JSON": (_header(b'{"a": [}', b""), _DAMAGED),
    "safetensors of float8": (
        _header({"a": entry(0, 24, "F8_E4M3", (24,))}),
        "holds a as F8_E4M3",
    ),
    "damaged note": (_header({"__metadata__": {"hnclip": "{"}}, b""), _DAMAGED),
    "note of another kind": (_header({"__metadata__": {"hnclip": "[]"}}, b""), _DAMAGED),
    "index that leads out": (_index({"a": "../a.safetensors"}), "outside of its folder"),
    "index with an absolute path": (_index({"a": "/etc/passwd"}), "outside of its folder"),
    "index to its folder": (_index({"a": ".."}), "outside of its folder"),
    "no shard": (_index({"a": "one.st", "b": "two.st"}, "one.st"), "not there: two.st"),
    "shard that lacks a tensor": (_index({"a": "one.st", "b": "one.st"}, "one.st"), "lacks b"),
    "shard with another tensor": (
        _index({"a": "one.st", "b": "two.st"}, "one.st", "two.st"),
        "two.st lacks b",
    ),
    "index of numbers": (_index({"a": 1}), "no index of shards"),
    "index of nothing": (_index({}), "no index of shards"),
    "broken JSON": (_bytes(b'{"weight_map": '), _DAMAGED),
    "deep JSON": (_bytes(b"[" * 10**6), _DAMAGED),
    "empty": (_bytes(b""), "is empty"),
    "pointer": (
        _bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"),
        "git lfs pull",
    ),
    "page": (_bytes(b"\n<!DOCTYPE html><html><body>404</body></html>"), "the download failed"),
    "HDF5": (_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64)), "HDF5"),
    "msgpack": (_bytes(b"\x81\xa6params\x81\xa1a\x01"), "msgpack"),
    "gzip": (lambda path: path.write_bytes(gzip.compress(VALUES)), "unpack it"),
    "tar": (_bytes(b"a.pt".ljust(257, b"\0") + b"ustar\x0000" + bytes(300)), "unpack it"),
    "ONNX": (_bytes(b"\x08\x07\x12\x07pytorch" + bytes(64)), "ONNX"),
    "GGUF": (_bytes(b"GGUF\x03\0\0\0" + bytes(64)), "GGUF"),
    "array": (_bytes(b"\x93NUMPY\x01\0v\0" + b"{'descr': '<f4'}"), "one numpy array"),
    "text": (_bytes(b"epoch 1 loss 2.0\x1b[2J\n"), "neither safetensors nor a file of torch"),
}
"""Refused as soon as they are opened."""

LATE = {
    "changed values": (_edited(_flip_value), "checksum of record model/data/0"),
}
"""Refused when their tensors are read."""
