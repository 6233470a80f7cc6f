"""The compiled train step, and its two mappings over devices: mesh and pmap."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.recipe import Layout, Recipe, Seen, StepOutput
from hnclip_jax.training.update import update

_PMAP_AXIS = "devices"

Step = Callable[[state_lib.TrainState, types.Batch], tuple[state_lib.TrainState, StepOutput]]


def build(recipe: Recipe, mesh: Mesh, mapper: str = "mesh") -> Step:
    """Returns the compiled step: (state, batch) -> (state, output). The given state is donated.

    Both mappings take and return the same arrays: the state as created by `state.create`, the batch
    as global arrays [B, ...] split over the mesh.

    Args:
      recipe: what to compute.
      mesh: the device mesh.
      mapper: "mesh": jit over the mesh with the loss in shard_map, the default; "pmap": jax.pmap
        over all devices with every parameter on each of them.
    """
    return {"mesh": _map_over_mesh, "pmap": _map_by_pmap}[mapper](recipe, mesh)


def build_measure(recipe: Recipe) -> Callable[[StepOutput, int], dict[str, types.Array]]:
    """Returns a function of a step's output and its number: all scalars worth logging.

    It is compiled apart from the step and works on the embeddings that the step saw, so that steps
    which are not logged pay nothing. Names are those of metrics.jsonl.
    """

    @jax.jit
    def measure(output: StepOutput, step: types.Array) -> dict[str, types.Array]:
        key = recipe.key(step)

        def one(seen: Seen) -> dict[str, types.Array]:
            return recipe.objective.measure(
                types.Embeddings(image=seen.image, text=seen.text),
                output.scale,
                step=step,
                key=key,
                same_pair=seen.pair_id,
                geometry=seen.geometry,
            )

        values = jax.tree.map(jnp.mean, jax.lax.map(one, output.seen))
        values |= output.terms | {"grad_norm": output.grad_norm, "scale": output.scale}
        values["gamma"] = recipe.objective.gamma_at(step)
        if recipe.objective.compares_with_info_nce:
            # The share of the global loss that the margin, not a confusion, is responsible for.
            values["boost_share"] = 1 - values["info_nce"] / jnp.maximum(values["global"], 1e-12)
        return {f"train/{name}": value for name, value in values.items()}

    return measure


def _map_over_mesh(recipe: Recipe, mesh: Mesh) -> Step:
    recipe = _looking_up(recipe, mesh)
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

    def step(state, batch):
        now, output = update(recipe, state, batch, layout)
        # Left to itself, the compiler may split moments otherwise than they came; the next step
        # would then be compiled anew.
        place = sharding.state_shardings(mesh, now)
        return jax.lax.with_sharding_constraint(now, place), output

    return jax.jit(step, donate_argnums=0)


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


def _map_by_pmap(recipe: Recipe, mesh: Mesh) -> Step:
    layout = Layout(
        contrast=_contrast(recipe, _PMAP_AXIS),
        constrain=lambda x: x,
        # Under pmap the transpose of the loss's psum is another psum: each device's gradient of the
        # global mean comes out too large by the number of devices. The mean undoes just that.
        average=lambda gradient: jax.lax.pmean(gradient, _PMAP_AXIS),
        deal=lambda tree, parts: jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), tree),
        join=lambda tree: jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree),
    )

    def step(state, batch):
        return update(recipe, state, batch, layout)

    mapped = jax.pmap(
        step,
        axis_name=_PMAP_AXIS,
        devices=list(mesh.devices.flat),
        in_axes=(None, 0),
        out_axes=(None, StepOutput(None, None, None, 1)),
        donate_argnums=0,
    )
    per_device = jax.jit(
        lambda batch: jax.tree.map(lambda x: x.reshape(mesh.size, -1, *x.shape[1:]), batch)
    )
    join = jax.jit(
        lambda seen: jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), seen)
    )

    # What pmap returns lies on a mesh of its own. Given a state that lies there from the start, it
    # is compiled once.
    own_mesh = Mesh(mesh.devices.reshape(-1), (_PMAP_AXIS,), axis_types=(AxisType.Auto,))
    copies = NamedSharding(own_mesh, P())

    def run(state, batch):
        state, output = mapped(jax.device_put(state, copies), per_device(batch))
        return state, output._replace(seen=join(output.seen))

    return run
