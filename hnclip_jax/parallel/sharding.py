"""Path rules -> where each array of the state lies; host rows -> global arrays."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
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


def rule_of(path: str) -> tuple[str, str]:
    """Returns the line of RULES that places the array at `path`.

    Raises:
      ValueError: if none does; a new parameter needs one.
    """
    for rule in RULES:
        if re.search(rule[0], path):
            return rule
    raise ValueError(f"no rule of parallel.sharding.RULES matches {path!r}")


def state_shardings(mesh: Mesh, abstract_state: Any) -> Any:
    """Returns the NamedSharding of every leaf of a tree of shapes (parameters or a train state).

    Raises:
      ValueError: if a path matches no rule.
    """

    def place(path: tuple, leaf: Any) -> NamedSharding:
        name = path_of(path)
        _, tactic = rule_of(name)
        return NamedSharding(
            mesh, P() if tactic == "copy" else _split(leaf.shape, mesh.shape["fsdp"], name)
        )

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


def put_whole(tree: Any, shardings: Any) -> Any:
    """Returns global arrays made of host arrays that every process has whole.

    `jax.device_put` would gather every array from all processes, to see that they are equal.
    """

    def put(value: types.Array, where: NamedSharding) -> jax.Array:
        array = np.asarray(value)
        return jax.make_array_from_callback(array.shape, where, lambda index: array[index])

    return jax.tree.map(put, tree, shardings)


def pin_to_batch(mesh: Mesh) -> Callable[[types.Array], types.Array]:
    """Returns the `constrain` function of the towers: activations split by rows, not by width."""
    sharding = batch_sharding(mesh)
    return lambda activations: jax.lax.with_sharding_constraint(activations, sharding)


def look_up(mesh: Mesh) -> Callable[[types.Array, types.Array], types.Array]:
    """Returns the text tower's look-up in a table that lies split: (table, ids) -> rows.

    Left to itself, the compiler adds up the gradient of the whole table on every device. Here each
    device gets the sum of its own part: half the traffic, and no second table in memory.
    """
    rows, parts = P(mesh_lib.AXES), mesh.shape["fsdp"]

    def look_up(table: types.Array, ids: types.Array) -> types.Array:
        split = _split(table.shape, parts, "token_embedding")

        def local(part: types.Array, ids: types.Array) -> types.Array:
            if split == P():
                whole = jax.lax.pcast(part, mesh_lib.AXES, to="varying")
            else:
                # Backward these lines run from last to first: what is added over "data" is a part.
                part = jax.lax.pcast(part, "data", to="varying")
                axis = tuple(split).index("fsdp")
                whole = jax.lax.all_gather(part, "fsdp", axis=axis, tiled=True)
            return jnp.take(whole, ids, axis=0)

        return jax.shard_map(local, mesh=mesh, in_specs=(split, rows), out_specs=rows)(table, ids)

    return look_up
