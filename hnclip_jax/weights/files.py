"""Containers: a file <-> a flat dict of numpy arrays. Tensors only, nothing that could run code."""

import contextlib
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from hnclip_jax import types

_META = "hnclip"


def read(path: str | pathlib.Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the arrays of a safetensors file and what this package noted in it.

    Args:
      path: the file.

    Returns:
      {name: array} and the note that `write` was given; {} for files of other programs.

    Raises:
      types.UserError: if the file is missing, no safetensors file, or damaged.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise types.UserError(f"no weights at {path}: no such file")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            note = json.loads((file.metadata() or {}).get(_META, "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, note  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError) as error:
        raise types.UserError(
            f"{path} is not a whole safetensors file ({error}); give the weights/ of a run"
        ) from error


def write(path: str | pathlib.Path, arrays: dict[str, np.ndarray], note: dict[str, Any]) -> None:
    """Writes `arrays` and `note` (JSON values) to `path`; an existing file is replaced at once.

    Raises:
      types.UserError: if that is not possible; what was there before is untouched.
    """
    path = pathlib.Path(path)
    scratch = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.numpy.save_file(
            {name: np.asarray(array, order="C") for name, array in arrays.items()},
            scratch,
            metadata={_META: json.dumps(note)},
        )
        os.replace(scratch, path)
    except (OSError, safetensors.SafetensorError) as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise types.UserError(f"cannot write {path}: {error}") from error


def sha256(path: str | pathlib.Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
