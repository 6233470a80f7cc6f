"""One optimiser step: the gradient by micro-batches, then the update."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from hnclip_jax import types
from hnclip_jax.training import forward, gradient_cache
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.recipe import Layout, Recipe, Seen, StepOutput


def update(
    recipe: Recipe, state: state_lib.TrainState, batch: types.Batch, layout: Layout
) -> tuple[state_lib.TrainState, StepOutput]:
    """Returns state and output after one optimiser step on arrays [rows, ...]."""
    gradient, (terms, seen) = gradient_of(recipe, state, batch, layout)
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
    if recipe.skips:
        finite = jnp.isfinite(output.terms["loss"]) & jnp.isfinite(output.grad_norm)
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            (params, opt_state),
            (state.params, state.opt_state),
        )
    now = dataclasses.replace(state, step=state.step + 1, params=params, opt_state=opt_state)
    return now, output


def gradient_of(
    recipe: Recipe, state: state_lib.TrainState, batch: types.Batch, layout: Layout
) -> tuple[types.Params, tuple[dict[str, types.Array], Seen]]:
    """Returns the gradient of what trains, 0 elsewhere, for arrays [rows, ...]; terms, what it saw.

    It is the mean over the micro-batches, and what the optimiser is given.
    """
    of_rows = gradient_cache.of_rows if recipe.cache_parts > 1 else _of_rows

    def one(gradient, rows):
        fresh, output = of_rows(recipe, state, rows, layout)
        return jax.tree.map(jnp.add, gradient, fresh), output

    micro = layout.deal(batch, recipe.micro_batches)
    gradient, output = _over_micro_batches(one, state.params, micro)
    gradient = layout.average(gradient)
    gradient = jax.tree.map(
        lambda g, moves: g / recipe.micro_batches if moves else jnp.zeros_like(g),
        gradient,
        recipe.trained,
    )
    return recipe.hold(gradient), output


def _of_rows(
    recipe: Recipe, state: state_lib.TrainState, rows: types.Batch, layout: Layout
) -> tuple[types.Params, tuple[dict[str, types.Array], Seen]]:
    """Returns the gradient of one batch's loss; its terms, and what it saw."""

    def loss(params: types.Params) -> tuple:
        towers = recipe.start.model_params(params, state.base)
        views = forward.embed(recipe, towers, rows, layout.constrain)
        frozen = forward.geometry(recipe, state, rows, layout.constrain)
        scale, added = towers["logit_scale"], params.get("method", {})
        return forward.contrast(recipe, state, layout, views, scale, added, rows, frozen)

    (_, output), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)
    return gradient, output


def _over_micro_batches(one: Callable, params: types.Params, micro: types.Batch) -> tuple:
    """Returns the summed gradients and the stacked outputs of `one` over the leading axis."""
    count = jax.tree.leaves(micro)[0].shape[0]
    zeros = jax.tree.map(jnp.zeros_like, params)
    if count > 1:
        return jax.lax.scan(one, zeros, micro)
    gradient, output = one(zeros, jax.tree.map(lambda x: x[0], micro))
    return gradient, jax.tree.map(lambda x: x[None], output)
