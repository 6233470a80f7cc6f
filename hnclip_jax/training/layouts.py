"""How a function of the train state and a batch is mapped over devices: by mesh, or by pmap."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training.recipe import Layout, Recipe

_PMAP_AXIS = "devices"


def over_mesh(recipe: Recipe, mesh: Mesh) -> tuple[Recipe, Layout]:
    """Returns the recipe as it is computed under jit over a mesh, and the layout there."""
    rows, everywhere = P(mesh_lib.AXES), P()
    contrast = jax.shard_map(
        _contrast(recipe, mesh_lib.AXES),
        mesh=mesh,
        in_specs=(rows, everywhere, everywhere, everywhere, everywhere, rows, rows),
        out_specs=everywhere,
    )
    layout = Layout(
        contrast=contrast,
        constrain=sharding.pin_to_batch(mesh),
        average=lambda gradient: gradient,
        deal=lambda tree, parts: jax.tree.map(lambda x: _deal(x, mesh, parts), tree),
        join=lambda tree: jax.tree.map(lambda x: _join(x, mesh), tree),
    )
    return _looking_up(recipe, mesh), layout


def inside_pmap(recipe: Recipe) -> Layout:
    """Returns the layout inside a function that `pmapped` maps."""
    return Layout(
        contrast=_contrast(recipe, _PMAP_AXIS),
        constrain=lambda x: x,
        # Under pmap the transpose of the loss's psum is another psum: each device's gradient of the
        # global mean comes out too large by the number of devices. The mean undoes just that.
        average=lambda gradient: jax.lax.pmean(gradient, _PMAP_AXIS),
        deal=lambda tree, parts: jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), tree),
        join=lambda tree: jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree),
    )


def pmapped(
    function: Callable, mesh: Mesh, out_axes: Any, *, donate: bool = False
) -> Callable[[Any, types.Batch], Any]:
    """Returns (state, batch) -> what `function` gives on every device, each with its own rows.

    Args:
      function: of a state, the same on all devices, and of this device's rows.
      mesh: all of its devices are used.
      out_axes: as in `jax.pmap`.
      donate: the given state is used up.
    """
    mapped = jax.pmap(
        function,
        axis_name=_PMAP_AXIS,
        devices=list(mesh.devices.flat),
        in_axes=(None, 0),
        out_axes=out_axes,
        donate_argnums=(0,) if donate else (),
    )
    per_device = jax.jit(
        lambda batch: jax.tree.map(lambda x: x.reshape(mesh.size, -1, *x.shape[1:]), batch)
    )
    # What pmap returns lies on a mesh of its own. Given a state that lies there from the start, it
    # is compiled once.
    own_mesh = Mesh(mesh.devices.reshape(-1), (_PMAP_AXIS,), axis_types=(AxisType.Auto,))
    copies = NamedSharding(own_mesh, P())
    return lambda state, batch: mapped(jax.device_put(state, copies), per_device(batch))


def _looking_up(recipe: Recipe, mesh: Mesh) -> Recipe:
    """Returns the recipe, whose model looks tokens up in a table that lies split over `mesh`."""
    compute = dataclasses.replace(recipe.model.compute, look_up=sharding.look_up(mesh))
    model = dataclasses.replace(recipe.model, compute=compute)
    return recipe._replace(start=dataclasses.replace(recipe.start, model=model))


def _contrast(recipe: Recipe, axis_name: str | tuple[str, ...]) -> Callable:
    """Returns the objective of one device's rows, with positional arguments as shard_map needs."""

    def contrast(views, scale, parameters, step, key, arrays, geometry):
        return recipe.objective(
            views,
            scale,
            step=step,
            arrays=arrays,
            parameters=parameters,
            key=key,
            geometry=geometry,
            axis_name=axis_name,
        )

    return contrast


def _deal(rows: types.Array, mesh: Mesh, parts: int) -> types.Array:
    """Returns [parts, rows / parts, ...]: each device deals out its own rows."""
    if parts == 1:
        return rows[None]
    dealt = rows.reshape(mesh.size, parts, -1, *rows.shape[1:])
    dealt = jnp.swapaxes(dealt, 0, 1).reshape(parts, -1, *rows.shape[1:])
    return jax.lax.with_sharding_constraint(dealt, NamedSharding(mesh, P(None, mesh_lib.AXES)))


def _join(parts: types.Array, mesh: Mesh) -> types.Array:
    """Returns [rows, ...], what `_deal` dealt out."""
    dealt = parts.reshape(len(parts), mesh.size, -1, *parts.shape[2:])
    rows = jnp.swapaxes(dealt, 0, 1).reshape(-1, *parts.shape[2:])
    return jax.lax.with_sharding_constraint(rows, NamedSharding(mesh, P(mesh_lib.AXES)))
