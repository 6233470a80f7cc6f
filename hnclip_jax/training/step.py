"""The train step: embed, contrast, update; and its two mappings over devices (mesh, pmap)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from hnclip_jax import types
from hnclip_jax.losses import objective as objective_lib
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state as state_lib

_PMAP_AXIS = "devices"


class Seen(NamedTuple):
    """The rows that a loss saw, [micro-batches, B / micro-batches, ...]: what diagnostics need.

    image, text: float32 unit vectors; geometry: those of the frozen text tower, or None.
    pair_id: int32.
    """

    image: types.Array
    text: types.Array
    geometry: types.Array | None
    pair_id: types.Array


class StepOutput(NamedTuple):
    """What a step tells about itself.

    terms: float32 scalars: "loss" and each term of the objective, means over the micro-batches.
    grad_norm: float32 scalar, norm of the gradient of the trained parameters, before clipping.
    scale: float32 scalar, s of this step's loss.
    """

    terms: dict[str, types.Array]
    grad_norm: types.Array
    scale: types.Array
    seen: Seen


class Recipe(NamedTuple):
    """All that a step computes with, apart from devices.

    trained: tree of bools like the parameters.
    hold: takes out of a gradient what does not train of tables that train in part.
    micro_batches: the batch is split into this many, each with its own negatives.
    """

    model: dual_encoder.DualEncoder
    objective: objective_lib.Objective
    optimizer: optax.GradientTransformation
    trained: Any
    seed: int
    max_scale: float = 100.0
    micro_batches: int = 1
    hold: Callable[[Any], Any] = lambda gradient: gradient


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
        key = jax.random.fold_in(jax.random.key(recipe.seed), step)

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
        values["gamma"] = objective_lib.gamma_at(recipe.objective.loss, step)
        # The share of the contrastive loss that the margin, not a confusion, is responsible for.
        values["boost_share"] = 1 - values["info_nce"] / jnp.maximum(values["global"], 1e-12)
        return {f"train/{name}": value for name, value in values.items()}

    return measure


def _map_over_mesh(recipe: Recipe, mesh: Mesh) -> Step:
    rows, everywhere = P(mesh_lib.AXES), P()

    contrast = jax.shard_map(
        _contrast(recipe, mesh_lib.AXES),
        mesh=mesh,
        in_specs=(rows, everywhere, everywhere, everywhere, rows, rows),
        out_specs=everywhere,
    )
    constrain = sharding.pin_to_batch(mesh)

    def split(batch: types.Batch) -> types.Batch:
        # Each device's rows are dealt out to the micro-batches, so no row changes its device.
        return jax.tree.map(lambda x: _deal(x, mesh.size, recipe.micro_batches, mesh), batch)

    def step(state, batch):
        return _update(recipe, state, split(batch), contrast, constrain, lambda tree: tree)

    return jax.jit(step, donate_argnums=0)


def _contrast(recipe: Recipe, axis_name: str | tuple[str, ...]) -> Callable:
    """Returns the objective of one device's rows, with positional arguments as shard_map needs."""

    def contrast(embeddings, scale, step, key, same_pair, geometry):
        return recipe.objective(
            embeddings,
            scale,
            step=step,
            key=key,
            same_pair=same_pair,
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
        return _update(recipe, state, micro, contrast, lambda x: x, average)

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


def _update(
    recipe: Recipe,
    state: state_lib.TrainState,
    micro: types.Batch,
    contrast: Callable,
    constrain: Callable,
    average: Callable,
) -> tuple[state_lib.TrainState, StepOutput]:
    """Returns state and output after one optimiser step on arrays [micro-batches, rows, ...]."""
    key = jax.random.fold_in(jax.random.key(recipe.seed), state.step)
    needs = recipe.objective

    def loss(params, rows):
        embeddings = recipe.model.embed(
            params,
            rows["image"],
            rows["tokens"],
            tokens=needs.needs_tokens,
            constrain=constrain,
        )
        geometry = None
        if needs.needs_frozen_text:
            frozen = {"text": state.reference}
            geometry = recipe.model.embed(frozen, None, rows["tokens"], constrain=constrain).text
        total, terms = contrast(
            embeddings, recipe.model.scale(params), state.step, key, rows["pair_id"], geometry
        )
        seen = Seen(embeddings.image, embeddings.text, geometry, rows["pair_id"])
        return total, ({"loss": total, **terms}, seen)

    def one(gradient, rows):
        (_, (terms, seen)), fresh = jax.value_and_grad(loss, has_aux=True)(state.params, rows)
        return jax.tree.map(jnp.add, gradient, fresh), (terms, seen)

    gradient, (terms, seen) = _over_micro_batches(one, state.params, micro)
    gradient = average(gradient)
    gradient = jax.tree.map(
        lambda g, moves: g / recipe.micro_batches if moves else jnp.zeros_like(g),
        gradient,
        recipe.trained,
    )
    gradient = recipe.hold(gradient)
    updates, opt_state = recipe.optimizer.update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    limit = jnp.log(jnp.float32(recipe.max_scale))
    params = {**params, "logit_scale": jnp.minimum(params["logit_scale"], limit)}
    output = StepOutput(
        terms=jax.tree.map(jnp.mean, terms),
        grad_norm=optax.tree.norm(gradient),
        scale=recipe.model.scale(state.params),
        seen=seen,
    )
    return (
        state_lib.TrainState(state.step + 1, params, opt_state, state.reference),
        output,
    )


def _over_micro_batches(one: Callable, params: types.Params, micro: types.Batch) -> tuple:
    """Returns the summed gradients and the stacked outputs of `one` over the leading axis."""
    count = jax.tree.leaves(micro)[0].shape[0]
    zeros = jax.tree.map(jnp.zeros_like, params)
    if count > 1:
        return jax.lax.scan(one, zeros, micro)
    gradient, output = one(zeros, jax.tree.map(lambda x: x[0], micro))
    return gradient, jax.tree.map(lambda x: x[None], output)
