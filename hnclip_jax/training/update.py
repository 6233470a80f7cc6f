"""One optimiser step: embed every view, contrast, differentiate by micro-batches, update."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from hnclip_jax import types
from hnclip_jax.losses import objective as objective_lib
from hnclip_jax.losses import terms as terms_lib
from hnclip_jax.models import dual_encoder
from hnclip_jax.training import state as state_lib


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

    start: says how the model's parameters follow from those that train.
    trained: tree of bools like the parameters that train or may train.
    hold: takes out of a gradient what does not train of tables that train in part.
    micro_batches: the batch is split into this many, each with its own negatives.
    """

    start: state_lib.Start
    objective: objective_lib.Objective
    optimizer: optax.GradientTransformation
    trained: Any
    max_scale: float = 100.0
    micro_batches: int = 1
    hold: Callable[[Any], Any] = lambda gradient: gradient

    @property
    def model(self) -> dual_encoder.DualEncoder:
        """The model."""
        return self.start.model

    def key(self, step: types.Array) -> types.Array:
        """Returns the jax.random key of a step."""
        return jax.random.fold_in(jax.random.key(self.start.seed), step)


def update(
    recipe: Recipe,
    state: state_lib.TrainState,
    micro: types.Batch,
    contrast: Callable,
    constrain: Callable,
    average: Callable,
) -> tuple[state_lib.TrainState, StepOutput]:
    """Returns state and output after one optimiser step on arrays [micro-batches, rows, ...]."""
    objective, model = recipe.objective, recipe.model

    def loss(params, rows):
        towers = recipe.start.model_params(params, state.base)
        views = _embed(recipe, towers, rows, constrain)
        geometry = None
        if objective.needs_frozen_text:
            text = state.frozen_text()
            geometry = model.embed(text, None, rows["tokens"], constrain=constrain).text
        total, terms = contrast(
            views,
            model.scale(towers),
            params.get("method", {}),
            state.step,
            recipe.key(state.step),
            _without_looks(objective, rows),
            geometry,
        )
        pair = views[terms_lib.PAIR]
        seen = Seen(pair.image, pair.text, geometry, rows["pair_id"])
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
        scale=model.scale(state.params),
        seen=seen,
    )
    now = dataclasses.replace(state, step=state.step + 1, params=params, opt_state=opt_state)
    return now, output


def _embed(
    recipe: Recipe, towers: types.Params, rows: types.Batch, constrain: Callable
) -> dict[str, types.Embeddings]:
    """Returns the embeddings of every view that the objective looks at."""
    bind = lambda pool: pool and (lambda states: pool(states, rows))  # noqa: E731
    return {
        name: recipe.model.embed(
            towers,
            rows[view.image] if view.image else None,
            rows[view.text] if view.text else None,
            tokens=recipe.objective.needs_tokens and name == terms_lib.PAIR,
            pool_patches=bind(view.pool_patches),
            pool_words=bind(view.pool_words),
            words_normed=view.words_normed,
            constrain=constrain,
        )
        for name, view in recipe.objective.views.items()
    }


def _without_looks(objective: objective_lib.Objective, rows: types.Batch) -> types.Batch:
    """Returns the arrays of a batch that no tower embeds."""
    looked_at = {key for view in objective.views.values() for key in (view.image, view.text)}
    return {name: array for name, array in rows.items() if name not in looked_at}


def _over_micro_batches(one: Callable, params: types.Params, micro: types.Batch) -> tuple:
    """Returns the summed gradients and the stacked outputs of `one` over the leading axis."""
    count = jax.tree.leaves(micro)[0].shape[0]
    zeros = jax.tree.map(jnp.zeros_like, params)
    if count > 1:
        return jax.lax.scan(one, zeros, micro)
    gradient, output = one(zeros, jax.tree.map(lambda x: x[0], micro))
    return gradient, jax.tree.map(lambda x: x[None], output)
