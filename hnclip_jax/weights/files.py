"""Files of weights: whichever container, a dict of arrays that still lie in it; and back."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors

from hnclip_jax import types
from hnclip_jax.weights import stored
from hnclip_jax.weights.containers import faults, header, kinds, pickles, shards

_NOTE = "hnclip"

# A run folder also has a config.json, so its weights/ come before what a model folder has.
_NAMES = (
    "weights/model.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
)
_ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")


@dataclasses.dataclass(frozen=True)
class Contents:
    """What lies in a file of weights; the arrays are read when they are asked for.

    paths: the files that were read, in order: an index and then its shards, or one file.
    container: "safetensors", "PyTorch zip", "TorchScript" or "PyTorch before 1.6".
    tree: dict of `Stored` arrays. Flat, but for what torch.save wrote: there it may hold dicts,
      lists and plain values. TorchScript's numbers are plain too.
    note: what `write` was given; {} for files of other programs.
    """

    paths: tuple[pathlib.Path, ...]
    container: str
    tree: dict[str, Any]
    note: dict[str, Any]


def read(path: str | pathlib.Path) -> Contents:
    """Returns what lies in a file, of whichever container its content shows it to be.

    Nothing in a file is ever executed, and torch is not needed.

    Args:
      path: a safetensors file, any file of tensors that torch wrote, or an index of such shards.

    Raises:
      types.UserError: if it is something else, is damaged, or names anything that could run code.
    """
    path = pathlib.Path(path)
    kind = kinds.of(path)
    return _shards(path) if kind == kinds.INDEX else _file(path, kind)


def find(path: str | pathlib.Path) -> pathlib.Path:
    """Returns the file of weights that a path leads to: itself, or the one in that folder.

    Args:
      path: a file, a run folder, or the folder of a model of Hugging Face, open_clip or our own.

    Raises:
      types.UserError: if it leads to none, or to several that cannot be told apart.
    """
    path = pathlib.Path(path)
    if path.is_file():
        return path
    if not path.is_dir():
        raise types.UserError(f"no weights at {path}: there is no such file or folder")
    candidates = [path / name for name in _NAMES]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    found = sorted(file for file in path.iterdir() if file.suffix in _ENDINGS and file.is_file())
    if len(found) > 1:
        names = types.at_most_ten(file.name for file in found)
        raise types.UserError(f"{path} holds several files of weights ({names}); name one of them")
    if found:
        return found[0]
    tried = ", ".join(map(str, candidates))
    raise types.UserError(f"no weights at {path}; tried {tried} and *{', *'.join(_ENDINGS)}")


def sha256(paths: str | pathlib.Path | Iterable[str | pathlib.Path]) -> str:
    """Returns the SHA-256 of a file's bytes, or of several files' one after the other, as hex."""
    digest = hashlib.sha256()
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()


def write(
    path: str | pathlib.Path,
    arrays: header.Arrays,
    note: dict[str, Any],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Writes our own kind of file: `write_safetensors` with a note of JSON values."""
    write_safetensors(path, arrays, {_NOTE: json.dumps(note, sort_keys=True)}, progress)


def write_safetensors(
    path: str | pathlib.Path,
    arrays: header.Arrays,
    metadata: Mapping[str, str],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Writes a safetensors file; the values of one tensor at a time are in memory.

    Equal contents give equal bytes. An existing file is replaced at once, when all is written.

    Args:
      path: the file; folders above it are made.
      arrays: name -> array of any shape, of floats (64, 32, 16 bits, bfloat16), integers or bools.
      metadata: what else the header says.
      progress: is told the number of bytes of each tensor, when it is written.

    Raises:
      types.UserError: if that is not possible; what was there before is untouched.
    """
    head, order = header.build(arrays, metadata)
    with _replacing(path) as scratch, open(scratch, "wb") as file:
        file.write(head)
        for name in order:
            size = file.write(_raw(name, arrays[name]))
            if progress:
                progress(size)


def write_torch(path: str | pathlib.Path, arrays: header.Arrays) -> None:
    """Writes a plain state dict with `torch.save`, in the order given.

    Args:
      path: the file; folders above it are made, an existing one is replaced when all is written.
      arrays: name -> array.

    Raises:
      types.UserError: if torch is not installed, or the file cannot be written.
    """
    try:
        import torch
    except ImportError as error:
        raise types.UserError(
            f"cannot write {path}: only torch writes such files; pip install 'hnclip_jax[torch]'"
        ) from error

    with _replacing(path) as scratch, open(scratch, "wb") as file, warnings.catch_warnings():
        # Arrays that lie in a file cannot be written to, and nobody does.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        tensors = {}
        for name, array in arrays.items():
            values = _values(name, array)
            # torch does not know the bfloat16 of numpy arrays.
            is_brain = values.dtype.name == "bfloat16"
            shared = torch.from_numpy(values.view(np.int16) if is_brain else values)
            tensors[name] = shared.view(torch.bfloat16) if is_brain else shared
        torch.save(tensors, file)


def _file(path: pathlib.Path, kind: str) -> Contents:
    if kind == kinds.SAFETENSORS:
        return _safetensors(path)
    if kind == kinds.INDEX:
        raise types.UserError(f"{path} is JSON, where the index promises tensors")
    container, tree = pickles.read(path)
    if not isinstance(tree, dict):
        kind = "tensor" if isinstance(tree, stored.Stored) else type(tree).__name__
        raise types.UserError(
            f"{path} holds one {kind}, not a dict of named tensors; save model.state_dict()"
        )
    return Contents((path,), container, tree, {})


def _safetensors(path: pathlib.Path) -> Contents:
    try:
        with safetensors.safe_open(path, framework="numpy"):
            arrays, metadata = header.read(path)
        note = json.loads(metadata.get(_NOTE, "{}"))
        if not isinstance(note, dict):
            raise TypeError("its note is no object")
    except types.UserError:
        raise
    except (safetensors.SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:
        raise faults.damaged(path, error) from error
    return Contents((path,), "safetensors", arrays, note)


def _shards(path: pathlib.Path) -> Contents:
    listed = shards.read(path)
    containers: set[str] = set()
    tree: dict[str, Any] = {}
    for shard, promised in listed.items():
        contents = _file(shard, kinds.of(shard))
        shards.check(shard, contents.tree, promised)
        containers.add(contents.container)
        tree |= contents.tree
    return Contents((path, *listed), ", ".join(sorted(containers)), tree, {})


def _raw(name: str, array: Any) -> np.ndarray:
    # numpy lends no buffer of bfloat16, but one of its bytes.
    return _values(name, array).reshape(-1).view(np.uint8)


def _values(name: str, array: Any) -> np.ndarray:
    values = np.asarray(array, order="C")
    if values.shape != tuple(array.shape) or values.dtype != array.dtype:
        raise ValueError(
            f"{name} was to be {array.dtype} {tuple(array.shape)}, but is {values.dtype} "
            f"{values.shape}"
        )
    little = values.dtype.newbyteorder("<")
    return values if values.dtype == little else values.astype(little)


@contextlib.contextmanager
def _replacing(path: str | pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a file to write, which becomes `path` at the end; a failure leaves no trace."""
    path = pathlib.Path(path)
    scratch = path.parent / f"{path.name}.part"
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield scratch
        os.replace(scratch, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()
        # torch reports a full disk as a RuntimeError.
        if isinstance(error, OSError | RuntimeError):
            raise types.UserError(f"cannot write {path}: {faults.shown(error)}") from error
        raise
