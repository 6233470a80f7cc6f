"""Path rules -> where each array of the state lies; host rows -> global arrays."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib

RULES: tuple[tuple[str, str], ...] = (
    (r"(^|/)(adapter|method)/", "copy"),
    (r"(^|/)blocks(_\d+)?/.*kernel$", "split"),
    (r"token_embedding$", "split"),
    (r"patch_embed/kernel$", "split"),
    (r"(^|/)proj$", "split"),
    (r"(bias|scale|class_embedding|position_embedding)$", "copy"),
    (r"(^|/)(step|count|logit_scale)$", "copy"),
)
"""(regular expression of the path, tactic); the first match wins and every path must match one.

"split": over the mesh axis "fsdp", along the longest dimension that it divides.
"copy": the whole array on every device.
The optimiser's moments end in the parameter's path, so one rule places both.
"""


def path_of(key_path: tuple) -> str:
    """Returns a tree path as text, say ``image/blocks/attn/query/kernel``."""
    return jax.tree_util.keystr(key_path, simple=True, separator="/")


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tree of {path: value}, the reverse of naming its leaves by `path_of`."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree


def state_shardings(mesh: Mesh, abstract_state: Any) -> Any:
    """Returns the NamedSharding of every leaf of a tree of shapes (parameters or a train state).

    Raises:
      ValueError: if a path matches no rule; a new parameter needs a line in RULES.
    """

    def place(path: tuple, leaf: Any) -> NamedSharding:
        name = path_of(path)
        for pattern, tactic in RULES:
            if re.search(pattern, name):
                spec = P() if tactic == "copy" else _split(leaf.shape, mesh.shape["fsdp"], name)
                return NamedSharding(mesh, spec)
        raise ValueError(f"no rule of parallel.sharding.RULES matches {name!r}")

    return jax.tree_util.tree_map_with_path(place, abstract_state)


def _split(shape: tuple[int, ...], parts: int, name: str) -> P:
    # Stacked layers have the layer index in front. Splitting it would gather one layer at a time
    # from one device; the widths behind it are split instead.
    first = 1 if re.search(r"(^|/)blocks/", name) else 0
    axes = [axis for axis in range(first, len(shape)) if shape[axis] % parts == 0]
    if parts == 1 or not axes:
        return P()
    longest = max(axes, key=lambda axis: shape[axis])
    return P(*("fsdp" if axis == longest else None for axis in range(len(shape))))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of [B, ...] arrays: rows over both mesh axes."""
    return NamedSharding(mesh, P(mesh_lib.AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding that puts the whole array on every device."""
    return NamedSharding(mesh, P())


def put_batch(mesh: Mesh, rows: types.Batch) -> types.Batch:
    """Returns global arrays [B, ...] made of the rows that each process read.

    Args:
      mesh: the device mesh.
      rows: numpy arrays [B / processes, ...] of this process.
    """
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, np.asarray(value))
        for name, value in rows.items()
    }


def pin_to_batch(mesh: Mesh) -> Callable[[types.Array], types.Array]:
    """Returns the `constrain` function of the towers: activations split by rows, not by width."""
    sharding = batch_sharding(mesh)
    return lambda activations: jax.lax.with_sharding_constraint(activations, sharding)
