"""Flat arrays by path -> nested float32 parameters, each value read and copied once."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from hnclip_jax import types
from hnclip_jax.weights import rules


def build(
    arrays: rules.Arrays, stacked: bool, origin: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Returns the nested parameters; what rules.UNUSED keeps is left out.

    Args:
      arrays: path -> array, one block per layer.
      stacked: whether the blocks of a tower become one, layers leading. Each goes straight to its
        place, so nothing is held twice.
      origin: path -> names in the file, for messages.

    Raises:
      types.UserError: for values that are not finite.
    """
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        if path.startswith(rules.UNUSED):
            continue
        parts = path.split("/")
        layer = re.fullmatch(r"blocks_(\d+)", parts[1]) if len(parts) > 1 and stacked else None
        if layer:
            parts[1] = "blocks"
        *parents, name = parts
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        values = _finite(array, origin.get(path, (path,)))
        if layer:
            if name not in node:
                node[name] = np.empty((_layers(arrays, path), *values.shape), np.float32)
            node[name][int(layer[1])] = values
        else:
            # Always a copy: the file may be replaced while the parameters live.
            node[name] = np.array(values, np.float32, order="C")
    return tree


def _layers(arrays: rules.Arrays, path: str) -> int:
    tower, _, rest = path.split("/", 2)
    pattern = re.compile(rf"{tower}/blocks_\d+/{re.escape(rest)}")
    return sum(pattern.fullmatch(name) is not None for name in arrays)


def _finite(array: Any, names: tuple[str, ...]) -> np.ndarray:
    values = np.asarray(array)
    # Minimum and maximum are NaN if any value is, and need no memory.
    if values.size and not np.isfinite([float(values.min()), float(values.max())]).all():
        raise types.UserError(f"{' and '.join(names)} holds values that are not finite")
    return values
