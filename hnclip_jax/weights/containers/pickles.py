"""The three containers that torch writes, read without torch; nothing in them is ever executed."""

import pathlib
from collections.abc import Callable
from typing import Any, BinaryIO

from hnclip_jax import types
from hnclip_jax.weights.containers import archive, faults, meanings, opcodes, spans, tensors

ZIP = "PyTorch zip"
TORCHSCRIPT = "TorchScript"
LEGACY = "PyTorch before 1.6"

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001

# What a damaged pickle comes to: each step of reading trusts the one before it.
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def read(path: str | pathlib.Path) -> tuple[str, Any]:
    """Returns which container a PyTorch file is, and what lies in it.

    Args:
      path: a file that `torch.save` (version 0.4 or later) or `torch.jit.save` wrote.

    Returns:
      ZIP, TORCHSCRIPT or LEGACY; and dicts, lists and tuples of numbers, strings and `Stored`
      arrays. A TorchScript module is one flat dict: dotted name -> array or plain number. In
      training checkpoints an argparse.Namespace becomes a dict, a set a list, a dtype a string.

    Raises:
      types.UserError: if the file is no such container, is damaged, holds tensors of kinds that
        are not read, or names anything that could run code.
    """
    path = pathlib.Path(path)
    try:
        with open(path, "rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            return _zip(path) if is_zip else (LEGACY, _legacy(path, file))
    except faults.Refused as error:
        raise types.UserError(f"{path} {error}") from error
    except types.UserError:
        raise
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}") from error
    except _DAMAGE as error:
        raise faults.damaged(path, error) from error


def _zip(path: pathlib.Path) -> tuple[str, Any]:
    records = archive.Archive(path)
    roots = [name.split("/")[0] for name in records.names if name.split("/")[1:] == ["data.pkl"]]
    if len(roots) != 1:
        raise faults.Refused(
            "is a zip archive, but none that torch.save or torch.jit.save wrote: it has "
            f"{'more than one' if roots else 'no'} data.pkl",
            "unpack it, or give another file",
        )
    (root,) = roots
    if f"{root}/byteorder" in records.names:
        _check_order(records.read(f"{root}/byteorder", 64).getvalue() == b"little")

    def place(held: tensors.Storage) -> spans.Span:
        return _holding(held, records.span(f"{root}/data/{held.key}"))

    is_script = f"{root}/constants.pkl" in records.names
    program = opcodes.Bounded(records.read(f"{root}/data.pkl", opcodes.MOST_BYTES))
    value = _run(program, modules=is_script)
    values = meanings.Values(place)
    return (TORCHSCRIPT, values.attributes(value)) if is_script else (ZIP, values.of(value))


def _legacy(path: pathlib.Path, file: BinaryIO) -> Any:
    """Reads five pickles (magic number, version, system, value, keys); the storages follow them."""
    storages: dict[str, tensors.Storage] = {}

    def note(identity: Any) -> tensors.Storage:
        held = tensors.storage(identity)
        storages.setdefault(held.key, held)
        return held

    program = opcodes.Bounded(file)
    if _run(program) != _MAGIC:
        raise faults.Refused("is a pickle, but none that torch.save wrote", meanings.RESAVE)
    if _run(program) != _VERSION:
        raise faults.damaged(path, "no version of torch wrote this")
    _check_order(_run(program)["little_endian"])
    value = _run(program, persistent=note)
    places: dict[str, spans.Span] = {}
    for key in _run(program):
        if type(key) is not str or key not in storages:
            raise faults.damaged(path, "a storage that no tensor has")
        size = storages[key].count * storages[key].dtype.itemsize
        if int.from_bytes(file.read(8), "little") != storages[key].count:
            raise faults.damaged(path, f"storage {faults.shown(key)} has another size")
        places[key] = spans.Span(path, file.tell(), size)
        file.seek(size, 1)

    def place(held: tensors.Storage) -> spans.Span:
        return _holding(held, places[held.key])

    return meanings.Values(place).of(value)


def _run(
    program: opcodes.Bounded,
    *,
    modules: bool = False,
    persistent: Callable[[Any], tensors.Storage] = tensors.storage,
) -> Any:
    try:
        return opcodes.run(program, lambda name: meanings.allow(name, modules), persistent)
    except meanings.Forbidden as error:
        ahead = program.ahead()
        if error.name.startswith("torch.nn.") or (b"_parameters" in ahead and b"_modules" in ahead):
            raise faults.Refused(
                f"holds a whole pickled model ({faults.shown(error.name)}), which could run code",
                meanings.RESAVE,
            ) from error
        raise


def _check_order(is_little: Any) -> None:
    if is_little is not True:
        raise faults.Refused(
            "was written on a machine with the other byte order",
            "load it with torch and save it again on a usual one",
        )


def _holding(held: tensors.Storage, span: spans.Span) -> spans.Span:
    """Returns `span` if it lies in its file and is as large as the storage says."""
    end = span.start + held.count * held.dtype.itemsize
    if end > span.start + span.size or end > span.path.stat().st_size:
        raise faults.damaged(span.path, f"storage {faults.shown(held.key)} is not whole")
    return span
