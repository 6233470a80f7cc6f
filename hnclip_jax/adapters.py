"""LoRA and DoRA as functions on parameter trees: (base, adapter) -> effective parameters.

Kernels are [in, out] here, the transposes of the papers' matrices:

    LoRA (arXiv 2106.09685)   W = W0 + c A B           c = alpha / r, A [in, r], B [r, out]
    DoRA (arXiv 2402.09353)   V = W0 + c A B, W[:, o] = m_o V[:, o] / sg |V[:, o]|

where sg passes no gradient (section 4.3 there). An adapter is a tree like that of the parameters,
with {"a", "b"} or {"a", "b", "magnitude"} in place of every kernel that it changes. Where layers
are stacked, so are these.
"""

import functools
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from hnclip_jax import groups, types
from hnclip_jax.parallel import sharding

TOWERS = ("image", "text")

Adapter: TypeAlias = Mapping[str, Any]
"""Nested dict of float32 arrays: a [.., in, r], b [.., r, out], with DoRA magnitude [.., out]."""


def targets(group: groups.MethodGroup, base: types.Params) -> list[str]:
    """Returns the paths of the kernels that get an adapter, say ``image/blocks/attn/out/kernel``.

    Args:
      group: adapter_targets and adapter_towers choose among them.
      base: parameters, arrays or shapes.

    Raises:
      types.UserError: if a pattern matches no kernel of the towers, or there is none.
    """
    towers = TOWERS if group.adapter_towers == "both" else (group.adapter_towers,)
    paths = [path for path in _kernels(base) if path.split("/")[0] in towers]
    if not group.adapter_targets:
        raise types.UserError("method.adapter_targets is empty; name the kernels that get adapters")
    chosen: set[str] = set()
    for pattern in group.adapter_targets:
        try:
            matched = [path for path in paths if re.search(pattern, path)]
        except re.error as error:
            raise types.UserError(
                f"method.adapter_targets pattern {pattern!r} is no regular expression: {error}"
            ) from error
        if not matched:
            raise types.UserError(
                f"method.adapter_targets pattern {pattern!r} matches no kernel of a tower in "
                f"{towers}; they are {types.at_most_ten(paths)}"
            )
        chosen.update(matched)
    return [path for path in paths if path in chosen]


def init(key: types.Array, group: groups.MethodGroup, base: types.Params) -> Adapter:
    """Returns an adapter that changes nothing yet: A uniform within +-1/sqrt(in), B zero.

    DoRA's magnitudes are the norms of the base's output columns. A layer's numbers depend on the
    key and its path alone: not on stacking, nor on what else has an adapter.

    Args:
      key: a random key.
      group: the method; its adapter must be "lora" or "dora".
      base: parameters. Shapes suffice for LoRA, and for DoRA inside `jax.eval_shape`.

    Raises:
      types.UserError: as `targets`; also if the method has no adapter.
    """
    if not group.adapter:
        raise types.UserError("method.adapter is empty; say lora or dora")
    found, kernels = {}, _kernels(base)
    shapes = {path: kernels[path].shape for path in targets(group, base)}
    for path, a in _draw(key, shapes, group.adapter_rank).items():
        *layers, _, outputs = shapes[path]
        parts = {"a": a, "b": jnp.zeros((*layers, group.adapter_rank, outputs), jnp.float32)}
        if group.adapter == "dora":
            parts["magnitude"] = _norms(jnp.asarray(kernels[path], jnp.float32), jnp)[..., 0, :]
        found[path] = parts
    return sharding.nested(found)


def apply(base: types.Params, adapter: Adapter, alpha: float) -> types.Params:
    """Returns the effective parameters: the tree of `base` with the adapter's kernels changed.

    Training and merging for export are this one function; numpy trees give numpy trees, and touch
    no device. Changed kernels are computed and come back in float32 with full precision, whatever
    the base is, so rounding comes last. No gradient reaches the towers of `base`.

    Args:
      base: parameters, the towers or more; what is outside the towers passes through.
      adapter: its tree; a kernel with a magnitude is DoRA's.
      alpha: the product A B counts alpha / r.

    Raises:
      types.UserError: if the adapter does not fit the base.
    """
    _check(base, adapter)
    leaves = jax.tree.leaves((base, adapter))
    on_host = all(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)

    def walk(node: Any, parts: Adapter) -> Any:
        if not isinstance(node, Mapping):
            return _changed(node, parts, alpha, on_host)
        return {name: walk(child, parts.get(name, {})) for name, child in node.items()}

    return {
        name: walk(child, adapter.get(name, {})) if name in TOWERS else child
        for name, child in base.items()
    }


def flatten(adapter: Adapter) -> dict[str, np.ndarray]:
    """Returns the arrays by path, one block per layer: ``image/blocks_03/mlp/fc_in/kernel/a``.

    Arrays on devices are fetched.
    """
    flat = {}
    for key_path, leaf in jax.tree_util.tree_leaves_with_path(adapter):
        path, values = sharding.path_of(key_path), np.asarray(leaf)
        layers = values if _is_stacked(path) else [values]
        flat |= dict(zip(_layer_paths(path, values.shape), layers, strict=True))
    return flat


def count(adapter: Adapter) -> int:
    """Returns the number of parameters of an adapter, or of any other tree of arrays or shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(adapter))


def describe(base: types.Params, adapter: Adapter, alpha: float) -> str:
    """Returns one line: which adapter, on how many kernels, how large beside the base."""
    parts = list(_parts(adapter).values())
    kernels = sum(math.prod(part["a"].shape[:-2]) for part in parts)
    ours, all_of_it = count(adapter), count(base)
    return (
        f"{'DoRA' if 'magnitude' in parts[0] else 'LoRA'} of rank {parts[0]['a'].shape[-1]}, "
        f"alpha {alpha:g}, on {kernels} kernels: {ours:,} parameters, "
        f"{ours / all_of_it:.2%} of the base's {all_of_it:,}"
    )


def _changed(kernel: types.Array, parts: Adapter, alpha: float, on_host: bool) -> types.Array:
    """Returns W of one kernel W0, or of a stack of them; W0 where `parts` is empty."""
    if on_host:
        xp, held, product = np, lambda x: x, np.matmul
    else:
        xp, held = jnp, jax.lax.stop_gradient
        product = functools.partial(jnp.matmul, precision="highest")
    kernel = held(kernel)
    if not parts:
        return kernel
    a, b = parts["a"], parts["b"]
    changed = kernel.astype(xp.float32) + xp.float32(alpha / a.shape[-1]) * product(a, b)
    if "magnitude" not in parts:
        return changed
    norms = _norms(held(changed), xp)
    # Columns of zeros stay. And XLA divides: m / sqrt(x) it would turn into m * rsqrt(x), not 1.
    norms = xp.where(norms > 0, norms, xp.float32(1))
    return changed * (parts["magnitude"][..., None, :] / norms)


def _norms(kernel: types.Array, xp: Any) -> types.Array:
    """Returns the norm of every output column, [.., 1, out]; `xp` is numpy or jax.numpy."""
    return xp.sqrt(xp.sum(xp.square(kernel), axis=-2, keepdims=True))


def _draw(key: types.Array, shapes: dict[str, tuple], rank: int) -> dict[str, types.Array]:
    """Returns A by path of the kernel, for kernels of these shapes."""

    def draw(inputs: int, number: types.Array) -> types.Array:
        own = jax.random.fold_in(key, number)
        # From -1 to 1 first, which is exact: compilers may round a draw between other limits.
        noise = jax.random.uniform(own, (inputs, rank), jnp.float32, -1, 1)
        return noise * jnp.float32(inputs**-0.5)

    drawn = {}
    # One loop for all layers of a width: every draw that is written out takes long to compile.
    for inputs in sorted({shape[-2] for shape in shapes.values()}):
        layers = {x: _layer_paths(x, shape) for x, shape in shapes.items() if shape[-2] == inputs}
        numbers = [zlib.crc32(name.encode()) for names in layers.values() for name in names]
        rows = jax.lax.map(functools.partial(draw, inputs), jnp.array(numbers, jnp.uint32))
        for path, names in layers.items():
            drawn[path] = rows[: len(names)] if _is_stacked(path) else rows[0]
            rows = rows[len(names) :]
    return drawn


def _check(base: types.Params, adapter: Adapter) -> None:
    """Raises types.UserError unless every part belongs to a kernel of the base and fits it."""
    kernels, wrong = _kernels(base), []
    for path, parts in _parts(adapter).items():
        if path not in kernels:
            wrong.append(f"the model has no {path}")
            continue
        *layers, inputs, outputs = kernels[path].shape
        r = (parts["a"].shape or (0,))[-1] if "a" in parts else 0
        needed = {"a": (*layers, inputs, r), "b": (*layers, r, outputs)}
        if "magnitude" in parts:
            needed["magnitude"] = (*layers, outputs)
        found = {name: tuple(part.shape) for name, part in parts.items()}
        if found != needed:
            shapes = ", ".join(f"{name} {shape}" for name, shape in found.items())
            wrong.append(f"{path} is {kernels[path].shape}, its adapter {shapes}")
    if wrong or not adapter:
        why = types.at_most_ten(wrong, "; ") or "it is empty"
        raise types.UserError(
            f"the adapter does not fit the model: {why}; take the model that it was made for, "
            "with the same model.scan_layers"
        )


def _kernels(base: types.Params) -> dict[str, types.Array]:
    """Returns path -> kernel, for all that are matrices or stacks of them."""
    leaves = jax.tree_util.tree_leaves_with_path(base)
    named = ((sharding.path_of(key_path), leaf) for key_path, leaf in leaves)
    return {
        path: leaf
        for path, leaf in named
        if path.endswith("/kernel") and leaf.ndim == 2 + _is_stacked(path)
    }


def _parts(adapter: Adapter) -> dict[str, dict[str, types.Array]]:
    """Returns path of a kernel -> its parts by name."""
    found: dict[str, dict[str, types.Array]] = {}
    for key_path, leaf in jax.tree_util.tree_leaves_with_path(adapter):
        path, _, part = sharding.path_of(key_path).rpartition("/")
        found.setdefault(path, {})[part] = leaf
    return found


def _is_stacked(path: str) -> bool:
    return "/blocks/" in path


def _layer_paths(path: str, shape: tuple[int, ...]) -> list[str]:
    """Returns the paths that a kernel's layers have where they are not stacked."""
    if not _is_stacked(path):
        return [path]
    return [path.replace("/blocks/", f"/blocks_{i:02d}/", 1) for i in range(shape[0])]
