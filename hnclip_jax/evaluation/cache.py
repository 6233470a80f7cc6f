"""A folder of embeddings: two arrays, and a JSON file that says of what and by which protocol."""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np

from hnclip_jax import types

FORMAT = 1
DESCRIPTION = "embeddings.json"
_ARRAYS = ("image", "text")


@dataclasses.dataclass(frozen=True)
class Embedded:
    """A list that was embedded.

    image: [M, D] float32, unit norm.
    text: [T, D] float32, likewise.
    text_to_image: [T] int, the row of each caption's picture.
    ids: [M], of the pictures.
    groups: [M], of the pictures; "" = none.
    queries: rows of the pictures that ask; None = all.
    protocol: how it was done; JSON values.
    """

    image: np.ndarray
    text: np.ndarray
    text_to_image: np.ndarray
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    queries: tuple[int, ...] | None
    protocol: dict[str, Any]


def check_target(folder: str | os.PathLike, overwrite: bool) -> None:
    """Raises types.UserError if `folder` is there, unless it is one of ours and may go."""
    folder = pathlib.Path(folder)
    if not os.path.lexists(folder):
        return
    if not (folder / DESCRIPTION).is_file():
        raise types.UserError(f"{folder} is there and holds no embeddings; choose another --out")
    if not overwrite:
        raise types.UserError(f"already there: {folder}; choose another --out, or say --overwrite")


def write(
    folder: str | os.PathLike, embedded: Embedded, *, overwrite: bool = False, **source: Any
) -> None:
    """Writes image.npy, text.npy and embeddings.json; all of them, or nothing.

    Args:
      folder: made, with the folders above it.
      embedded: what to write.
      overwrite: an older folder of embeddings may go.
      **source: what it takes to read the list again; JSON values.

    Raises:
      types.UserError: if the folder is there already, or cannot be written.
    """
    check_target(folder, overwrite)
    folder = pathlib.Path(os.path.abspath(folder))
    scratch = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        _fill(scratch / "new", embedded, source)
        _swap(scratch, folder)
    except OSError as error:
        raise types.UserError(f"cannot write {folder}: {error.strerror}") from error
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _swap(scratch: pathlib.Path, folder: pathlib.Path) -> None:
    if not folder.exists():
        os.rename(scratch / "new", folder)
        return
    os.rename(folder, scratch / "old")
    try:
        os.rename(scratch / "new", folder)
    except OSError:
        os.rename(scratch / "old", folder)
        raise


def _fill(folder: pathlib.Path, embedded: Embedded, source: dict[str, Any]) -> None:
    folder.mkdir()
    digests = {}
    for name in _ARRAYS:
        np.save(folder / f"{name}.npy", np.asarray(getattr(embedded, name), np.float32))
        digests[name] = _digest(folder / f"{name}.npy")
    content = {
        "format": FORMAT,
        "protocol": embedded.protocol,
        "source": source,
        "sha256": digests,
        "queries": None if embedded.queries is None else [int(row) for row in embedded.queries],
        "ids": list(embedded.ids),
        "groups": list(embedded.groups),
        "text_to_image": [int(row) for row in embedded.text_to_image],
    }
    (folder / DESCRIPTION).write_text(json.dumps(content) + "\n")


def read(folder: str | os.PathLike) -> tuple[Embedded, dict[str, Any]]:
    """Returns what `write` was given: the embeddings, and what it takes to read the list again.

    Raises:
      types.UserError: if there are none, or a file is damaged or not the one that was written.
    """
    folder = pathlib.Path(folder)
    try:
        content = json.loads((folder / DESCRIPTION).read_text())
        if content["format"] != FORMAT:
            raise types.UserError(
                f"{folder} has format {content['format']}, but this version reads {FORMAT}; embed "
                "again"
            )
        arrays = {name: _array(folder / f"{name}.npy", content["sha256"][name]) for name in _ARRAYS}
        queries = content["queries"]
        embedded = Embedded(
            **arrays,
            text_to_image=np.array(content["text_to_image"], np.int64),
            ids=tuple(content["ids"]),
            groups=tuple(content["groups"]),
            queries=None if queries is None else tuple(queries),
            protocol=content["protocol"],
        )
    except OSError as error:
        raise types.UserError(
            f"no embeddings in {folder} ({error.filename}: {error.strerror}); `hnclip embed "
            f"--out={folder}` makes them"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, types.UserError):
            raise
        raise types.UserError(
            f"{folder / DESCRIPTION} is damaged ({type(error).__name__}); embed again"
        ) from error
    return embedded, content["source"]


def _array(path: pathlib.Path, digest: str) -> np.ndarray:
    if _digest(path) != digest:
        raise types.UserError(f"{path} is not the file that was written; embed again")
    return np.load(path, allow_pickle=False)


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
