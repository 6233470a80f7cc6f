"""CIFAR-10 and CIFAR-100 from their python files, which are pickles: read without running any.

A pickle may name any function and have it called. Here it may name what numpy arrays are made of,
and even these names stand for functions of this file.
"""

import hashlib
import io
import os
import pathlib
import pickle
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax import types

_SIDE = 32
_KINDS = (
    # Folder as published, test file, file of the names, key of labels, key of names.
    ("cifar-10-batches-py", "test_batch", "batches.meta", b"labels", b"label_names"),
    ("cifar-100-python", "test", "meta", b"fine_labels", b"fine_label_names"),
)


class Batch(NamedTuple):
    """The test pictures.

    pixels: [N, 32, 32, 3] uint8.
    labels: [N] int64.
    names: of the classes.
    sha256: of the test file.
    """

    pixels: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]
    sha256: str


def find(folder: str | os.PathLike) -> pathlib.Path | None:
    """Returns the test file in a folder, or in the published folder inside of it; None if none."""
    for name, test, meta, *_ in _KINDS:
        for place in (pathlib.Path(folder), pathlib.Path(folder) / name):
            if (place / test).is_file() and (place / meta).is_file():
                return place / test
    return None


def read(test: pathlib.Path) -> Batch:
    """Returns the pictures of a test file that `find` found.

    Raises:
      types.UserError: if a file holds anything else, or wants to run something.
    """
    _, _, meta, labels_key, names_key = next(kind for kind in _KINDS if kind[1] == test.name)
    content = _bytes(test)
    batch = _load(test, content)
    words = _load(test.parent / meta, _bytes(test.parent / meta)).get(names_key)
    pixels, labels = batch.get(b"data"), batch.get(labels_key)
    pixels = pixels.array if isinstance(pixels, _Array) else None
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != 3 * _SIDE**2:
        raise types.UserError(f"{test} has no pictures of {_SIDE} x {_SIDE}; download CIFAR again")
    names = tuple(word.decode() for word in words or () if isinstance(word, bytes))
    fitting = isinstance(labels, list) and all(
        isinstance(label, int) and 0 <= label < len(names) for label in labels
    )
    if not fitting or len(labels) != len(pixels):
        raise types.UserError(
            f"{test} has {len(pixels)} pictures, but its labels do not fit them and the "
            f"{len(names)} names in {meta}; download CIFAR again"
        )
    pixels = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    digest = hashlib.sha256(content).hexdigest()
    return Batch(np.ascontiguousarray(pixels), np.array(labels, np.int64), names, digest)


def _bytes(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}") from error


def _load(path: pathlib.Path, content: bytes) -> dict[bytes, Any]:
    try:
        found = _Unpickler(path, content).load()
    except types.UserError:
        raise
    # A broken pickle fails with whatever its next instruction meets.
    except Exception as error:
        raise types.UserError(
            f"{path} is damaged ({type(error).__name__}); download it again"
        ) from (error)
    if not isinstance(found, dict):
        raise types.UserError(f"{path} holds no table; download CIFAR again")
    return {key.encode() if isinstance(key, str) else key: value for key, value in found.items()}


class _Unpickler(pickle.Unpickler):
    """Reads plain values and uint8 arrays; refuses every other name."""

    def __init__(self, path: pathlib.Path, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        """Returns our own for what arrays are made of."""
        module = module.replace("numpy._core", "numpy.core")
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise types.UserError(
            f"{self._path} is refused: it wants to run {module}.{name}, and CIFAR's files hold "
            "arrays only; download it again from where it is published"
        )


class _Array:
    """Stands for numpy.ndarray."""

    array: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        shape, kind, fortran, raw = state[-4:]
        self.fill(raw, kind, shape, "F" if fortran else "C")

    def fill(self, raw: bytes, kind: "_Dtype", shape: tuple, order: str) -> "_Array":
        """Takes the bytes of an array; returns itself."""
        if not isinstance(kind, _Dtype) or not isinstance(raw, bytes | bytearray):
            raise ValueError("not an array of bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order=order)
        return self


class _Dtype:
    """Stands for numpy.dtype; of uint8 only."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        if code not in ("u1", b"u1", "uint8", b"uint8"):
            raise ValueError("not uint8")

    def __setstate__(self, state: tuple) -> None:
        """Takes byte order and the like, which mean nothing for one byte."""


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(raw: bytes, kind: _Dtype, shape: tuple, order: str) -> _Array:
    """Stands for what newer pickle protocols make arrays by."""
    return _Array().fill(raw, kind, shape, order)


def _encode(text: str | bytes, *_: object) -> bytes:
    """Stands for _codecs.encode, by which Python 3 writes bytes in old protocols."""
    return text.encode("latin1") if isinstance(text, str) else bytes(text)


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}
