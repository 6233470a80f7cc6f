"""Adapters meet weights: files of LoRA and DoRA put on the weights that they were made for."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from hnclip_jax import adapters, groups, types
from hnclip_jax.weights import adapter_file, files, peft, stored

_GROUP = ("stretch", "context_length", "image_size", "preset", "activation")


def save(
    path: str | pathlib.Path,
    adapter: adapters.Adapter,
    *,
    alpha: float,
    logit_scale: float,
    base: Mapping[str, str],
    group: groups.ModelGroup,
    note: Mapping[str, Any],
) -> pathlib.Path:
    """Writes a trained adapter, which `read` finds its base for; returns the file.

    Args:
      path: a .safetensors file, or a folder for adapter.safetensors.
      adapter: its tree.
      alpha: the product A B counts alpha / r.
      logit_scale: of the run; it may have been trained as well.
      base: provenance of the weights below it.
      group: how these were read.
      note: further JSON values.
    """
    arrays = adapters.flatten(adapter)
    return adapter_file.write(
        path,
        arrays,
        rank=next(array.shape[1] for name, array in arrays.items() if name.endswith("/a")),
        alpha=alpha,
        dora=any(name.endswith("/magnitude") for name in arrays),
        base_sha256=base.get("weights_sha256", ""),
        note={
            **note,
            "base": dict(base),
            "logit_scale": float(logit_scale),
            "model": {name: getattr(group, name) for name in _GROUP},
        },
    )


def base_of(
    path: str | pathlib.Path, group: groups.ModelGroup
) -> tuple[pathlib.Path, groups.ModelGroup] | None:
    """Returns the weights that an adapter of ours lies on, and how to read both; None: no adapter.

    Raises:
      types.UserError: if it was trained on random weights, or they are not where they were.
    """
    file = adapter_file.locate(path) if _leads_to_adapter(pathlib.Path(path)) else None
    if file is None:
        return None
    note = adapter_file.read(file).note
    named = note.get("base", {}).get("weights", "")
    if named == "random":
        raise types.UserError(
            f"{file} is an adapter on random weights, which no file holds; load the merged model "
            "that the run wrote beside it"
        )
    base = pathlib.Path(named)
    if not named or not base.exists():
        raise types.UserError(
            f"{file} is an adapter, and the weights that it lies on are not at {base}; name them, "
            f"and give it as their adapter={file} (--adapter in commands)"
        )
    told = {
        name: value
        for name, value in note.get("model", {}).items()
        if name in _GROUP and not getattr(group, name)
    }
    return base, dataclasses.replace(group, adapter=str(file), **told)


def _leads_to_adapter(path: pathlib.Path) -> bool:
    # A folder that also holds the merged model means that.
    return not path.is_dir() or [file.name for file in path.glob("*.safetensors")] == [
        adapter_file.FILE_NAME
    ]


def put_on(
    arrays: dict[str, stored.Stored], path: str | pathlib.Path, sha256: str
) -> tuple[dict[str, stored.Stored], str, str]:
    """Returns what an adapter changes of the weights, a sentence about it, and its SHA-256.

    Kernels are read and merged, in float32, when they are asked for.

    Args:
      arrays: path -> array, one block per layer.
      path: an adapter file of ours, its folder, or a folder that peft wrote.
      sha256: of the weights.

    Raises:
      types.UserError: if there is no adapter, it does not fit, or was made for other weights.
    """
    path = pathlib.Path(path).expanduser()
    is_peft = peft.locate(path) is not None
    contents = peft.read(path) if is_peft else adapter_file.read(path)
    if contents.base_sha256 and contents.base_sha256 != sha256:
        raise types.UserError(
            f"{path} was trained on weights of SHA-256 {contents.base_sha256}, but these have "
            f"{sha256}; put it on those that it was trained on"
        )
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, values in contents.arrays.items():
        kernel, _, part = name.rpartition("/")
        parts.setdefault(kernel, {})[part] = values
    _check(arrays, parts, path)
    changed = {
        kernel: _merged(arrays[kernel], values, contents.alpha) for kernel, values in parts.items()
    }
    scale = contents.note.get("logit_scale")
    if scale is not None:
        changed["logit_scale"] = _constant(np.asarray(scale, np.float32))
    kind = "DoRA" if contents.dora else "LoRA"
    said = f"{kind} of rank {contents.rank} on {len(parts)} kernels, from {path}"
    file = peft.locate(path) if is_peft else adapter_file.locate(path)
    return changed, said, files.sha256(file)


def _check(
    arrays: Mapping[str, stored.Stored], parts: Mapping[str, Mapping[str, Any]], path: pathlib.Path
) -> None:
    """Raises types.UserError unless every kernel of an adapter is there and has its shape."""
    wrong = []
    for kernel, of in parts.items():
        shape = (of["a"].shape[0], of["b"].shape[1])
        if kernel not in arrays:
            wrong.append(f"there is no {kernel}")
        elif arrays[kernel].shape != shape:
            wrong.append(f"{kernel} is {arrays[kernel].shape}, not {shape}")
    if wrong:
        raise types.UserError(
            f"{path} does not fit these weights: {types.at_most_ten(wrong, '; ')}; it belongs to "
            "another model"
        )


def _merged(kernel: stored.Stored, parts: Mapping[str, np.ndarray], alpha: float) -> stored.Stored:
    def read() -> np.ndarray:
        base = {"image": {"kernel": np.asarray(kernel, np.float32)}}
        merged = adapters.apply(base, {"image": {"kernel": parts}}, alpha)
        return merged["image"]["kernel"]

    return stored.Stored(kernel.shape, np.dtype(np.float32), read)


def _constant(value: np.ndarray) -> stored.Stored:
    return stored.Stored((), np.dtype(np.float32), lambda: value)
