"""Weights meet models: file -> model and parameters, and back; the one place that knows both."""

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np

from hnclip_jax import config, types
from hnclip_jax.models import dual_encoder, presets, transformer
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import files

FILE_NAME = "model.safetensors"
_LAYOUT = 1


def create_model(preset: str, **options: Any) -> dual_encoder.DualEncoder:
    """Returns the model of a preset, without parameters.

    Args:
      preset: a name from `list_presets`.
      **options: fields of `config.ModelGroup` (dtype, scan_layers, remat, context_length, ...).
    """
    return from_group(config.ModelGroup(preset=preset, **options))


def from_group(group: config.ModelGroup) -> dual_encoder.DualEncoder:
    """Returns the model that the config group `model` describes, without parameters."""
    return _build(presets.from_group(group), group)


def load(
    path: str | pathlib.Path, group: config.ModelGroup | None = None
) -> tuple[dual_encoder.DualEncoder, types.Params]:
    """Returns the model of a file of weights, and its parameters as float32 numpy arrays.

    Args:
      path: a run folder, a weights folder, or a .safetensors file written by this package.
      group: how to compute (dtype, scan_layers, remat) and, where not 0, a shorter context_length.
        Its preset is not looked at: the file says what it is.

    Raises:
      types.UserError: if there is no such file, it is not ours, or the context asked for is longer
        than the file's positions.
    """
    group = config.ModelGroup() if group is None else group
    file = find(path)
    arrays, note = files.read(file)
    if "model" not in note:
        raise types.UserError(
            f"{file} was not written by hnclip_jax; it holds {len(arrays)} tensors such as "
            f"{min(arrays, default='none')!r}"
        )
    if note["layout"] != _LAYOUT:
        raise types.UserError(
            f"{file} has layout {note['layout']}, this version reads {_LAYOUT}; update hnclip_jax"
        )
    numbers = presets.ModelConfig(**note["model"])
    params = _nest(arrays)
    if group.image_size not in (0, numbers.image_size):
        raise types.UserError(
            f"model.image_size asks for {group.image_size}, but {file} was trained at "
            f"{numbers.image_size}; leave it at 0"
        )
    if group.context_length not in (0, numbers.context_length):
        numbers, params = _shorten(numbers, params, group.context_length, file)
    model = _build(numbers, group)
    _check(params, jax.eval_shape(transformer.unstack_blocks, model.abstract_params()), file)
    return model, transformer.stack_blocks(params) if group.scan_layers else params


def save(
    path: str | pathlib.Path,
    model: dual_encoder.DualEncoder,
    params: types.Params,
    *,
    note: dict[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a model and its parameters so that `load` gives them back; returns the file.

    Args:
      path: a .safetensors file, or a folder in which model.safetensors is written.
      model: the model.
      params: its parameters; arrays on devices are fetched.
      note: JSON values to keep with them (provenance).
    """
    path = pathlib.Path(path)
    file = path if path.suffix == ".safetensors" else path / FILE_NAME
    # One block per layer in files, whatever the run used: names then never depend on scan_layers.
    flat = {
        sharding.path_of(key): np.asarray(leaf)
        for key, leaf in jax.tree_util.tree_leaves_with_path(transformer.unstack_blocks(params))
    }
    header = {"layout": _LAYOUT, "model": dataclasses.asdict(model.config), **(note or {})}
    files.write(file, flat, header)
    return file


def find(path: str | pathlib.Path) -> pathlib.Path:
    """Returns the file of weights that `path` (a run, a weights folder, a file) leads to.

    Raises:
      types.UserError: if it leads to none.
    """
    path = pathlib.Path(path)
    candidates = [path, path / FILE_NAME, path / "weights" / FILE_NAME]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    tried = ", ".join(str(candidate) for candidate in candidates)
    raise types.UserError(f"no weights at {path}; tried {tried}")


def _build(numbers: presets.ModelConfig, group: config.ModelGroup) -> dual_encoder.DualEncoder:
    return dual_encoder.create(
        numbers, dtype=group.dtype, scan_layers=group.scan_layers, remat=group.remat
    )


def _shorten(
    numbers: presets.ModelConfig, params: dict, length: int, file: pathlib.Path
) -> tuple[presets.ModelConfig, dict]:
    if length > numbers.context_length:
        raise types.UserError(
            f"model.context_length asks for {length} tokens, but {file} has "
            f"{numbers.context_length} positions; ask for at most that many"
        )
    text = dict(params["text"])
    text["position_embedding"] = text["position_embedding"][:length]
    return dataclasses.replace(numbers, context_length=length), {**params, "text": text}


def _nest(flat: dict[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, array in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = array
    return tree


def _check(params: types.Params, wanted: Any, file: pathlib.Path) -> None:
    def shapes(tree: Any) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {sharding.path_of(key): tuple(leaf.shape) for key, leaf in leaves}

    found, needed = shapes(params), shapes(wanted)
    wrong = sorted(
        path for path in found.keys() | needed.keys() if found.get(path) != needed.get(path)
    )
    if wrong:
        raise types.UserError(
            f"{file} does not fit its own description at {types.at_most_ten(wrong)}"
        )
