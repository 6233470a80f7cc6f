"""The compiled train step, and its two mappings over devices: mesh and pmap."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from hnclip_jax import types
from hnclip_jax.parallel import sharding
from hnclip_jax.training import layouts
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.recipe import Recipe, Seen, StepOutput
from hnclip_jax.training.update import update

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
    recipe, layout = layouts.over_mesh(recipe, mesh)

    def step(state, batch):
        now, output = update(recipe, state, batch, layout)
        # Left to itself, the compiler may split moments otherwise than they came; the next step
        # would then be compiled anew.
        place = sharding.state_shardings(mesh, now)
        return jax.lax.with_sharding_constraint(now, place), output

    return jax.jit(step, donate_argnums=0)


def _map_by_pmap(recipe: Recipe, mesh: Mesh) -> Step:
    layout = layouts.inside_pmap(recipe)

    def step(state, batch):
        return update(recipe, state, batch, layout)

    out_axes = (None, StepOutput(None, None, None, 1))
    mapped = layouts.pmapped(step, mesh, out_axes, donate=True)
    join = jax.jit(
        lambda seen: jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), seen)
    )

    def run(state, batch):
        state, output = mapped(state, batch)
        return state, output._replace(seen=join(output.seen))

    return run
