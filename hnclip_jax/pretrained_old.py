"""Weights meet models: file -> model and parameters, and back; the one place that knows both."""

import dataclasses
import math
import pathlib
import warnings
from typing import Any

import jax
import numpy as np

from hnclip_jax import groups, types
from hnclip_jax.data import tokenizer
from hnclip_jax.models import dual_encoder, presets, transformer
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import (
    account,
    architecture,
    export,
    layouts,
    reposition,
    rules,
    stored,
    tree,
)

FILE_NAME = export.FILE_NAME


def create_model(preset: str, **options: Any) -> dual_encoder.DualEncoder:
    """Returns the model of a preset, without parameters.

    Args:
      preset: a name from `list_presets`.
      **options: fields of `groups.ModelGroup` (dtype, scan_layers, remat, context_length, ...).
    """
    return from_group(groups.ModelGroup(preset=preset, init="random", **options))


def from_group(group: groups.ModelGroup) -> dual_encoder.DualEncoder:
    """Returns the model that the config group `model` describes, without parameters."""
    return _build(presets.from_group(group), group)


def load(
    path: str | pathlib.Path, group: groups.ModelGroup | None = None, **options: Any
) -> tuple[dual_encoder.DualEncoder, types.Params]:
    """Returns the model of a file of weights, and its parameters as float32 numpy arrays.

    Args:
      path: what `read` takes.
      group: how to compute (dtype, scan_layers, remat), and how to read; see `read`.
      **options: fields of `groups.ModelGroup` instead of `group`.

    Warns:
      UserWarning: if something had to be assumed, as `read` says.

    Raises:
      types.UserError: see `read`; also for values that are not finite.
    """
    group = groups.ModelGroup(**options) if group is None else group
    imported = read(path, group)
    if imported.assumed:
        warnings.warn(f"{imported.weights.path}: {imported.assumed}", stacklevel=2)
    return imported.load(group)


@dataclasses.dataclass(frozen=True)
class Imported:
    """A file of weights that fits a model; values are still in the file.

    weights: what was found, under our names.
    config: the architecture.
    arrays: our path -> array, after what was asked for (stretch, shorter context, image size).
    notes: what was decided, a sentence each.
    assumed: what was decided without being told; empty if nothing was.
    """

    weights: layouts.Weights
    config: presets.ModelConfig
    arrays: dict[str, stored.Stored]
    notes: tuple[str, ...]
    assumed: str

    def load(self, group: groups.ModelGroup) -> tuple[dual_encoder.DualEncoder, types.Params]:
        """Returns the model and its parameters; see the function `load`."""
        model = _build(self.config, group)
        return model, tree.build(self.arrays, group.scan_layers, self.weights.origin)

    def summary(self) -> str:
        """Returns the account in a line, and a line for each thing that was decided."""
        weights = self.weights
        first = (
            f"{weights.path}: {weights.title}, {weights.matched} tensors, SHA-256 {weights.sha256}"
        )
        return "\n".join([first, *(f"  {note}" for note in self._said())])

    def account(self) -> str:
        """Returns the table that commands print: file, hash, layout, counts, sizes, decisions."""
        return account.table(self.weights, dataclasses.asdict(self.config), self._said())

    def _said(self) -> list[str]:
        return [*self.notes, *([self.assumed] if self.assumed else [])]

    def size(self, dtype: np.dtype) -> int:
        """Returns the bytes of all values in `dtype`."""
        return sum(math.prod(x.shape) for x in self.arrays.values()) * dtype.itemsize

    def provenance(self) -> dict[str, str]:
        """Returns what a run writes down about the weights it began with."""
        weights = self.weights
        return {
            "weights": str(weights.path),
            "weights_sha256": weights.sha256,
            "weights_layout": weights.title,
        }


def read(path: str | pathlib.Path, group: groups.ModelGroup) -> Imported:
    """Returns what lies at `path`, checked; no value is read yet.

    Args:
      path: a run folder, a weights folder, a folder of another program, or a file of any layout.
      group: stretch, context_length (shorter), image_size: changes to positions, 0 for none;
        preset and activation: what a file without a config may leave open. dtype, scan_layers and
        remat do not matter here.

    Raises:
      types.UserError: if there is no such file, its tensors do not match its layout, or it does not
        go together with what is asked for.
    """
    weights = layouts.read(path)
    numbers, assumed = architecture.complete(weights, group.preset, group.activation)
    _check(weights, presets.ModelConfig(**numbers))
    arrays, numbers, notes = reposition.change(
        weights.arrays,
        numbers,
        stretch=group.stretch,
        context_length=group.context_length,
        image_size=group.image_size,
        source=str(weights.path),
    )
    config = presets.ModelConfig(**numbers)
    return Imported(weights, config, arrays, (*weights.notes, *notes), assumed)


def save(
    path: str | pathlib.Path,
    model: dual_encoder.DualEncoder,
    params: types.Params,
    *,
    layout: str = "hnclip",
    dtype: str = "float32",
    vocabulary: str = "",
    note: dict[str, Any] | None = None,
) -> pathlib.Path:
    """Writes a model and its parameters; returns the file with the tensors. What is there goes.

    Args:
      path: a file or a folder, as the layout needs it; see `weights.export.targets`.
      model: the model.
      params: its parameters; arrays on devices are fetched.
      layout: "hnclip", "longclip", "huggingface", "open_clip" or "openai".
      dtype: "float32", "float16" or "bfloat16" in the file.
      vocabulary: byte-pair file for the tokenizer of a Hugging Face folder; empty = the installed
        package's.
      note: JSON values to keep with them (provenance); in our own layout only.

    Raises:
      types.UserError: if the layout cannot hold the model, or the place cannot be written.
    """
    # One block per layer in files, whatever the run used: names then never depend on scan_layers.
    flat = {
        sharding.path_of(key): np.asarray(leaf)
        for key, leaf in jax.tree_util.tree_leaves_with_path(transformer.unstack_blocks(params))
    }
    numbers = dataclasses.asdict(model.config)
    return export.write(
        pathlib.Path(path),
        layout,
        flat,
        numbers,
        dtype=dtype,
        note=note,
        vocabulary=_vocabulary(layout, numbers, vocabulary),
    )[0]


def convert(
    imported: Imported,
    path: str | pathlib.Path,
    layout: str,
    *,
    dtype: str = "float32",
    vocabulary: str = "",
    progress: export.Progress | None = None,
) -> list[pathlib.Path]:
    """Writes what `read` found in another layout, tensor by tensor; returns the files.

    What is there goes; `check_target` tells before.

    Args:
      imported: from `read`.
      path, layout, dtype, vocabulary: as in `save`.
      progress: is told the bytes just written.

    Raises:
      types.UserError: as `save`.
    """
    numbers = dataclasses.asdict(imported.config)
    return export.write(
        pathlib.Path(path),
        layout,
        imported.arrays,
        numbers,
        dtype=dtype,
        note=imported.provenance() if layout == "hnclip" else None,
        vocabulary=_vocabulary(layout, numbers, vocabulary),
        progress=progress,
    )


def check_target(path: str | pathlib.Path, layout: str) -> None:
    """Raises types.UserError if `layout` cannot be written at `path`, or would replace files."""
    there = [str(file) for file in export.targets(pathlib.Path(path), layout) if file.exists()]
    if there:
        raise types.UserError(
            f"already there: {', '.join(there)}; choose another place, or say --overwrite"
        )


def _build(numbers: presets.ModelConfig, group: groups.ModelGroup) -> dual_encoder.DualEncoder:
    return dual_encoder.create(
        numbers, dtype=group.dtype, scan_layers=group.scan_layers, remat=group.remat
    )


def _vocabulary(layout: str, numbers: dict[str, Any], path: str) -> tokenizer.Vocabulary | None:
    """Returns the vocabulary to write, None where the layout or the model has no use for it."""
    if layout != "huggingface" or numbers["vocab_size"] != tokenizer.VOCAB_SIZE:
        return None
    return tokenizer.vocabulary(path or None)


def _check(weights: layouts.Weights, config: presets.ModelConfig) -> None:
    """Raises types.UserError unless all arrays have the shapes of the architecture."""
    model = dual_encoder.create(config, scan_layers=False)
    needed = {
        sharding.path_of(key): tuple(leaf.shape)
        for key, leaf in jax.tree_util.tree_leaves_with_path(model.abstract_params())
    }
    found = {
        path: tuple(array.shape)
        for path, array in weights.arrays.items()
        if not path.startswith(rules.UNUSED)
    }
    wrong = []
    for path in sorted(found.keys() | needed.keys()):
        name = " and ".join(weights.origin.get(path, (path,)))
        if path not in found:
            wrong.append(f"{name} is missing")
        elif path not in needed:
            wrong.append(f"{name} is left over")
        elif found[path] != needed[path]:
            wrong.append(f"{name} is {found[path]}, not {needed[path]}")
    if wrong:
        raise types.UserError(
            f"{weights.path} does not fit its own description (shapes as this package keeps them): "
            f"{types.at_most_ten(wrong, '; ')}"
        )
