"""The compiled train step, and its two mappings over devices: mesh and pmap."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from hnclip_jax import types
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.update import Recipe, Seen, StepOutput, update

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
    rows, everywhere = P(mesh_lib.AXES), P()

    contrast = jax.shard_map(
        _contrast(recipe, mesh_lib.AXES),
        mesh=mesh,
        in_specs=(rows, everywhere, everywhere, everywhere, everywhere, rows, rows),
        out_specs=everywhere,
    )
    constrain = sharding.pin_to_batch(mesh)

    def split(batch: types.Batch) -> types.Batch:
        # Each device's rows are dealt out to the micro-batches, so no row changes its device.
        return jax.tree.map(lambda x: _deal(x, mesh.size, recipe.micro_batches, mesh), batch)

    def step(state, batch):
        return update(recipe, state, split(batch), contrast, constrain, lambda tree: tree)

    return jax.jit(step, donate_argnums=0)


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


def _deal(rows: types.Array, devices: int, micro_batches: int, mesh: Mesh) -> types.Array:
    if micro_batches == 1:
        return rows[None]
    dealt = rows.reshape(devices, micro_batches, -1, *rows.shape[1:])
    dealt = jnp.swapaxes(dealt, 0, 1).reshape(micro_batches, -1, *rows.shape[1:])
    spec = jax.sharding.NamedSharding(mesh, P(None, mesh_lib.AXES))
    return jax.lax.with_sharding_constraint(dealt, spec)


def _map_by_pmap(recipe: Recipe, mesh: Mesh) -> Step:
    contrast = _contrast(recipe, _PMAP_AXIS)

    def step(state, batch):
        micro = jax.tree.map(lambda x: x.reshape(recipe.micro_batches, -1, *x.shape[1:]), batch)
        # Under pmap the transpose of the loss's psum is another psum: each device's gradient of the
        # global mean comes out too large by the number of devices. The mean undoes just that.
        average = lambda tree: jax.lax.pmean(tree, _PMAP_AXIS)  # noqa: E731
        return update(recipe, state, micro, contrast, lambda x: x, average)

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
    copies = jax.sharding.NamedSharding(own_mesh, P())

    def run(state, batch):
        state, output = mapped(jax.device_put(state, copies), per_device(batch))
        return state, output._replace(seen=join(output.seen))

    return run
