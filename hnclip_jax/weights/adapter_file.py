"""An adapter in a file of its own: flat arrays by path, and a note of what they belong to."""

import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import files, rules

FILE_NAME = "adapter.safetensors"
VERSION = 1
"""Number of this kind of file; raised when older versions could not read it."""

_NOTE = "adapter"


class Contents(NamedTuple):
    """What a file of LoRA or DoRA holds.

    arrays: path -> float32 array, one block per layer: ``image/blocks_03/attn/out/kernel/a``
      [in, r], ``.../b`` [r, out], and with DoRA ``.../magnitude`` [out].
    rank: r.
    alpha: the product A B counts alpha / r.
    dora: whether there are magnitudes.
    base_sha256: SHA-256 of the weights that it was made for; empty if unknown.
    note: what else the file says.
    """

    arrays: dict[str, np.ndarray]
    rank: int
    alpha: float
    dora: bool
    base_sha256: str = ""
    note: Mapping[str, Any] = {}


def write(
    path: str | pathlib.Path,
    arrays: rules.Arrays,
    *,
    rank: int,
    alpha: float,
    dora: bool,
    base_sha256: str,
    note: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes an adapter; returns the file. What is there goes.

    Args:
      path: a .safetensors file, or a folder for adapter.safetensors.
      arrays, rank, alpha, dora, base_sha256: see `Contents`.
      note: further JSON values to keep.

    Raises:
      types.UserError: if these are no whole adapter, or the place cannot be written.
    """
    path = pathlib.Path(path)
    file = path if path.suffix == ".safetensors" and not path.is_dir() else path / FILE_NAME
    ours = check(arrays, rank, dora, "the adapter")
    about = {
        "version": VERSION,
        "kind": "dora" if dora else "lora",
        "rank": rank,
        "alpha": alpha,
        "base_sha256": base_sha256,
    }
    files.write(file, ours, {**(note or {}), _NOTE: about})
    return file


def locate(path: str | pathlib.Path) -> pathlib.Path | None:
    """Returns the file of an adapter of ours that a path leads to, None if to no such file.

    Args:
      path: the file, or the folder of an adapter.safetensors.
    """
    path = pathlib.Path(path)
    file = path / FILE_NAME if path.is_dir() else path
    if file.suffix != ".safetensors" or not file.is_file():
        return None
    return file if _NOTE in files.read(file).note else None


def read(path: str | pathlib.Path) -> Contents:
    """Returns the adapter that `write` wrote at `path`.

    Raises:
      types.UserError: if there is none, it is damaged, or a later version wrote it.
    """
    file = locate(path)
    if file is None:
        raise types.UserError(f"no adapter at {path}; give an {FILE_NAME} or its folder")
    contents = files.read(file)
    note = dict(contents.note)
    about = note.pop(_NOTE)
    version = about.get("version") if isinstance(about, dict) else None
    if version != VERSION:
        raise types.UserError(
            f"{file} is an adapter of version {version}, this version reads {VERSION}; "
            "update hnclip_jax"
        )
    kind, rank, alpha = (about.get(key) for key in ("kind", "rank", "alpha"))
    is_number = type(alpha) in (int, float) and math.isfinite(alpha)
    if kind not in ("lora", "dora") or type(rank) is not int or not is_number:
        raise types.UserError(
            f"{file} does not say what adapter it is; its header was changed by another program"
        )
    arrays = check(contents.tree, rank, kind == "dora", str(file))
    return Contents(
        arrays, rank, float(alpha), kind == "dora", str(about.get("base_sha256", "")), note
    )


def check(arrays: rules.Arrays, rank: int, dora: bool, source: str) -> dict[str, np.ndarray]:
    """Returns the arrays as float32, read and checked.

    Args:
      arrays, rank, dora: see `Contents`.
      source: what to call them in messages.

    Raises:
      types.UserError: if a kernel lacks a part, a part has another rank or no finite numbers, or
        there is anything else.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    wrong = []
    for name, array in arrays.items():
        match = re.fullmatch(r"((?:image|text)/.+/kernel)/(a|b|magnitude)", name)
        if not match:
            wrong.append(f"{name} is no part of an adapter")
        elif array.dtype.kind in "biuc":
            wrong.append(f"{name} holds {array.dtype}, but weights are floating")
        else:
            values = np.array(array, np.float32, order="C")
            found.setdefault(match[1], {})[match[2]] = values
            if not np.isfinite(values).all():
                wrong.append(f"{name} has values that are not finite")
    for path, parts in sorted(found.items()):
        wrong += _faults(path, {name: x.shape for name, x in parts.items()}, rank, dora)
    if wrong or not found:
        why = types.at_most_ten(wrong, "; ") or "there are no arrays"
        kind = "DoRA" if dora else "LoRA"
        raise types.UserError(f"{source} is no whole {kind} adapter of rank {rank}: {why}")
    return {f"{path}/{name}": x for path, parts in found.items() for name, x in parts.items()}


def rounding(base: rules.Arrays, merged: rules.Arrays, dtype: np.dtype) -> float:
    """Returns what storing merged weights in `dtype` loses, as a share of what the adapter changed.

    |stored - W| / |W - W0|, Frobenius norms over all arrays that changed; 0 if none did. Near 1
    the file would hold little of the adapter but noise.

    Args:
      base: path -> W0.
      merged: path -> W, the same paths.
      dtype: of the file.
    """
    lost = moved = 0.0
    for path, after in merged.items():
        after, before = (np.asarray(x, np.float32) for x in (after, base[path]))
        change = _square(after - before)
        if change:
            moved += change
            lost += _square(after.astype(dtype).astype(np.float32) - after)
    return math.sqrt(lost / moved) if moved else 0.0


def _square(values: np.ndarray) -> float:
    return float(np.sum(np.square(values), dtype=np.float64))


def _faults(path: str, shapes: dict[str, tuple[int, ...]], rank: int, dora: bool) -> list[str]:
    needed = {"a", "b", "magnitude"} if dora else {"a", "b"}
    if shapes.keys() != needed:
        return [f"{path} has {', '.join(sorted(shapes))}, but needs {', '.join(sorted(needed))}"]
    a, b = shapes["a"], shapes["b"]
    if len(a) != 2 or len(b) != 2 or a[1] != rank or b[0] != rank:
        return [f"{path} has a {a} and b {b}, but needs (in, {rank}) and ({rank}, out)"]
    if dora and shapes["magnitude"] != (b[1],):
        return [f"{path} has magnitude {shapes['magnitude']}, but needs ({b[1]},)"]
    return []
