"""What a file is, by its first bytes; and in one line, what it is if it holds no weights."""

import pathlib
import re

from hnclip_jax import types
from hnclip_jax.weights.containers import faults

SAFETENSORS = "safetensors"
PICKLE = "pickle"
INDEX = "index"

_LOOK = 512

_OTHERS: tuple[tuple[bytes, str], ...] = (
    (
        rb"version https://git-lfs",
        "is a pointer that Git LFS left in place of a file; run `git lfs pull` where it lies",
    ),
    (
        rb"\s*<[!?a-z]",
        "is a page of HTML or XML, not weights: the download failed; log in if need be, and "
        "download it again",
    ),
    (
        rb"\x89HDF\r\n",
        "is an HDF5 file (Keras, TensorFlow); give PyTorch or safetensors weights of that model",
    ),
    (
        rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!|.{257}ustar",
        "is a compressed file or an archive; unpack it and give the file of weights in it",
    ),
    (rb"GGUF|ggml|ggjt", "is a GGUF file; give PyTorch or safetensors weights of that model"),
    (rb"\x93NUMPY", "is one numpy array; give a file that names its tensors"),
    (
        rb"\x08[\x01-\x1f]\x12|.{4}TFL3",
        "is an ONNX or TensorFlow graph; give PyTorch or safetensors weights of that model",
    ),
    (
        rb"[\x81-\x8f][\xa1-\xbf\xd9]|\xde..[\xa1-\xbf\xd9]|\xdf....[\xa1-\xbf\xd9]",
        "is a msgpack file (Flax); give PyTorch or safetensors weights of that model",
    ),
)


def of(path: pathlib.Path) -> str:
    """Returns SAFETENSORS, PICKLE (any file of torch) or INDEX (of shards).

    Raises:
      types.UserError: if it is something else; it says what, and what to do.
    """
    if path.is_dir():
        raise types.UserError(f"{path} is a folder; name the file of weights in it")
    if not path.is_file():
        raise types.UserError(f"no weights at {path}: no such file")
    try:
        with open(path, "rb") as file:
            start = file.read(_LOOK)
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}") from error
    if not start:
        raise types.UserError(f"{path} is empty; download or copy it again")
    # The first eight bytes are the size of the header, which no text can be.
    if start[8:9] == b"{" and not re.fullmatch(rb"[\t\n\r -~]{8}", start[:8]):
        return SAFETENSORS
    if re.match(rb"PK\x03\x04|\x80[\x02-\x05]|\(?[ci][\w.]+\n[\w.]+\n|\(?[dl]p\d", start):
        return PICKLE
    for pattern, what in _OTHERS:
        if re.match(pattern, start, re.DOTALL | re.IGNORECASE):
            raise types.UserError(f"{path} {what}")
    if re.match(rb"\s*[\[{]", start):
        return INDEX
    raise types.UserError(
        f"{path} is neither safetensors nor a file of torch; it starts with "
        f"{faults.shown(start[:16])}"
    )
