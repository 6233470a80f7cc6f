"""Storages and tensors as a PyTorch pickle describes them, held to lie inside the file."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from hnclip_jax.weights import stored
from hnclip_jax.weights.containers import faults, opcodes, spans

_MOST_AXES = 32
# Steps of 0 show one value many times. So do harmless buffers, but not beyond this.
_MOST_REPEATED = 1 << 20

READABLE = "save plain float32, float16 or bfloat16 tensors"
"""What to do about tensors of other kinds."""

_DTYPES = {
    "torch.float32": np.dtype(np.float32),
    "torch.float16": np.dtype(np.float16),
    "torch.bfloat16": np.dtype(ml_dtypes.bfloat16),
    "torch.float64": np.dtype(np.float64),
    "torch.int64": np.dtype(np.int64),
    "torch.int32": np.dtype(np.int32),
    "torch.int16": np.dtype(np.int16),
    "torch.int8": np.dtype(np.int8),
    "torch.uint64": np.dtype(np.uint64),
    "torch.uint32": np.dtype(np.uint32),
    "torch.uint16": np.dtype(np.uint16),
    "torch.uint8": np.dtype(np.uint8),
    "torch.bool": np.dtype(np.bool_),
}

STORAGES = {
    "torch.FloatStorage": _DTYPES["torch.float32"],
    "torch.HalfStorage": _DTYPES["torch.float16"],
    "torch.BFloat16Storage": _DTYPES["torch.bfloat16"],
    "torch.DoubleStorage": _DTYPES["torch.float64"],
    "torch.LongStorage": _DTYPES["torch.int64"],
    "torch.IntStorage": _DTYPES["torch.int32"],
    "torch.ShortStorage": _DTYPES["torch.int16"],
    "torch.CharStorage": _DTYPES["torch.int8"],
    "torch.ByteStorage": _DTYPES["torch.uint8"],
    "torch.BoolStorage": _DTYPES["torch.bool"],
    "torch.storage.UntypedStorage": _DTYPES["torch.uint8"],
    "torch.storage._UntypedStorage": _DTYPES["torch.uint8"],
    "torch.UntypedStorage": _DTYPES["torch.uint8"],
}
"""Name of a class of storages -> type of the values."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """Values that lie outside of the pickle, one after the other.

    key: names them in the file.
    dtype: of the values.
    count: of all values under that key.
    first, length: which of them this storage shows.
    """

    key: str
    dtype: np.dtype
    count: int
    first: int
    length: int


Place: TypeAlias = Callable[[Storage], spans.Span]
"""Says where the values under a storage's key lie."""


def storage(identity: Any) -> Storage:
    """Returns what a persistent id stands for.

    Raises:
      faults.Refused: if that is no storage.
    """
    match identity:
        case ("storage", opcodes.Name(kind), str(key), _, int(count), *view) if kind in STORAGES:
            pass
        case _:
            raise faults.Refused("refers to things outside of its pickle that are no tensors")
    match view:
        case [] | [None]:
            first, length = 0, count
        case [(_, int(first), int(length))]:
            pass
        case _:
            raise faults.Refused("shows a part of a storage in a way of its own")
    if min(count, first, length) < 0 or first + length > count:
        raise faults.Refused(f"has a storage {faults.shown(key)} that reaches outside of itself")
    return Storage(key, STORAGES[kind], count, first, length)


def whole(held: Storage, place: Place, name: str) -> stored.Stored:
    """Returns all values of a storage."""
    return _array(held, held.dtype, (0, (held.length,), (1,)), place, name)


def rebuilt(args: tuple[Any, ...], version: int, place: Place, name: str) -> stored.Stored:
    """Returns the tensor that `torch._utils._rebuild_tensor` and its later forms would make.

    Args:
      args: storage, offset, size, stride; from version 2 on two things that play no part here;
        in version 3 the type of the values; then what is to be done to them, usually nothing.
      version: 1 to 3.
      place: where storages lie.
      name: of the tensor, for messages.

    Raises:
      faults.Refused: if it is not inside its storage, or of a kind that is not read.
    """
    held, *where = args[:4]
    if not isinstance(held, Storage):
        raise faults.Refused(f"has no storage for its tensor {name}")
    dtype, rest = held.dtype, list(args[6:])
    if version == 3:
        kind = rest.pop(0)
        kind = kind.name if isinstance(kind, opcodes.Name) else "no type"
        if kind not in _DTYPES:
            raise faults.Refused(f"has tensor {name} of {kind}, which is not read", READABLE)
        dtype = _DTYPES[kind]
    if any(rest):
        raise faults.Refused(f"has tensor {name} negated or conjugated", READABLE)
    return _array(held, dtype, tuple(where), place, name)


def is_shape(value: Any) -> bool:
    """Returns whether a value from a pickle is a tuple of a few whole numbers."""
    return (
        type(value) is tuple
        and len(value) <= _MOST_AXES
        and all(type(number) is int and abs(number) < 1 << 63 for number in value)
    )


def _array(
    held: Storage, dtype: np.dtype, where: tuple[Any, ...], place: Place, name: str
) -> stored.Stored:
    offset, shape, strides = where
    # Nothing from the file is printed before it is known to be short.
    if not is_shape(shape) or not is_shape(strides) or not is_shape((offset,)):
        raise faults.Refused(f"has tensor {name} whose shape or place is none")
    steps = f"has tensor {name} of shape {shape} with steps {strides}"
    if len(shape) != len(strides):
        raise faults.Refused(f"{steps}, which do not fit together")
    if any(number < 0 for number in (offset, *shape, *strides)):
        raise faults.Refused(f"{steps} from {offset}, of which one is negative")
    room = held.length * held.dtype.itemsize // dtype.itemsize
    reach = offset + spans.extent(shape, strides)
    if reach > room:
        raise faults.Refused(f"has tensor {name} that needs {reach} values of a storage of {room}")
    if math.prod(shape) > max(room, _MOST_REPEATED):
        raise faults.Refused(f"{steps}, which repeats {room} values too often")
    span, skipped = place(held), held.first * held.dtype.itemsize
    shown = dataclasses.replace(span, start=span.start + skipped, size=span.size - skipped)
    return spans.array(shown, dtype, shape, strides, offset)
