"""The header of a safetensors file: names, types and places of the tensors behind it."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import stored
from hnclip_jax.weights.containers import faults, spans

Arrays: TypeAlias = Mapping[str, stored.Stored | np.ndarray]

_METADATA = "__metadata__"

_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def read(path: pathlib.Path) -> tuple[dict[str, stored.Stored], dict[str, str]]:
    """Returns the tensors of a file that the safetensors library found valid, and its metadata.

    Raises:
      types.UserError: if a tensor is of a type that is not read.
    """
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    metadata = header.pop(_METADATA, None) or {}
    arrays = {}
    for name, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            raise types.UserError(
                f"{path} holds {faults.shown(name)} as {entry['dtype']}, which is not read; save "
                "float32, float16 or bfloat16 tensors"
            )
        start, end = entry["data_offsets"]
        shape = entry["shape"]
        span = spans.Span(path, 8 + size + start, end - start)
        arrays[name] = spans.array(span, _DTYPES[entry["dtype"]], shape, spans.rows(shape))
    return arrays, metadata


def build(arrays: Arrays, metadata: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """Returns the bytes before the tensors, and the order in which these follow.

    Both depend on the contents alone. Large types come first, so that every value is aligned.

    Raises:
      types.UserError: if a tensor is of a type that the format does not have.
    """
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = dict(sorted(metadata.items()))
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    place = 0
    for name in order:
        array = arrays[name]
        code = _CODES.get(array.dtype.newbyteorder("="))
        if code is None or name == _METADATA:
            raise types.UserError(
                f"a safetensors file cannot hold {name} of {array.dtype}; convert or leave it out"
            )
        header[name] = {
            "dtype": code,
            "shape": list(array.shape),
            "data_offsets": [place, place := place + array.nbytes],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order
