"""Weights -> model: presets, and files of any layout, checked, read when they are needed."""

import dataclasses
import math
import pathlib
import warnings
from typing import Any

import jax
import numpy as np

from hnclip_jax import groups, types
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.parallel import sharding
from hnclip_jax.pretrained import adapted
from hnclip_jax.weights import (
    account,
    adapter_file,
    architecture,
    layouts,
    reposition,
    rules,
    stored,
    tree,
)


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
    adapter: what is known of the adapter in them; {} if there is none.
    below: what it changes of `arrays`, as it is without it.
    """

    weights: layouts.Weights
    config: presets.ModelConfig
    arrays: dict[str, stored.Stored]
    notes: tuple[str, ...]
    assumed: str
    adapter: dict[str, str] = dataclasses.field(default_factory=dict)
    below: dict[str, stored.Stored] = dataclasses.field(default_factory=dict)

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

    def rounding(self, dtype: np.dtype) -> float:
        """Returns what storing in `dtype` loses of the adapter; see `adapter_file.rounding`."""
        merged = {path: self.arrays[path] for path in self.below}
        return adapter_file.rounding(self.below, merged, dtype)

    def provenance(self) -> dict[str, str]:
        """Returns what a run writes down about the weights it began with."""
        weights = self.weights
        return {
            "weights": str(weights.path),
            "weights_sha256": weights.sha256,
            "weights_layout": weights.title,
            **self.adapter,
        }


def read(path: str | pathlib.Path, group: groups.ModelGroup) -> Imported:
    """Returns what lies at `path`, checked; no value is read yet.

    Args:
      path: a run folder, a weights folder, a folder of another program, or a file of any layout;
        or an adapter file of ours, which knows the weights that it lies on.
      group: adapter: one to put on the weights; stretch, context_length (shorter), image_size:
        changes to positions, 0 for none; preset and activation: what a file without a config may
        leave open. dtype, scan_layers and remat do not matter here.

    Raises:
      types.UserError: if there is no such file, its tensors do not match its layout, or it does not
        go together with what is asked for.
    """
    if not group.adapter and (found := adapted.base_of(path, group)):
        path, group = found
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
    imported = Imported(weights, config, arrays, (*weights.notes, *notes), assumed)
    if not group.adapter:
        return imported
    changed, said, sha256 = adapted.put_on(arrays, group.adapter, weights.sha256)
    return dataclasses.replace(
        imported,
        arrays={**arrays, **changed},
        below={path: arrays[path] for path in changed},
        notes=(*imported.notes, said),
        adapter={"adapter": group.adapter, "adapter_sha256": sha256},
    )


def _build(numbers: presets.ModelConfig, group: groups.ModelGroup) -> dual_encoder.DualEncoder:
    return dual_encoder.create(
        numbers, dtype=group.dtype, scan_layers=group.scan_layers, remat=group.remat
    )


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
