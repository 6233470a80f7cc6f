"""One batch forward: every view that the objective looks at is embedded, then contrasted."""

from collections.abc import Callable

import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.losses import terms as terms_lib
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.recipe import Layout, Recipe, Seen


def embed(
    recipe: Recipe, towers: types.Params, rows: types.Batch, constrain: Callable
) -> dict[str, types.Embeddings]:
    """Returns the embeddings of every view.

    Args:
      recipe: whose objective says which views.
      towers: the model's parameters.
      rows: arrays [rows, ...].
      constrain: see `DualEncoder.embed`.
    """
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


def geometry(
    recipe: Recipe, state: state_lib.TrainState, rows: types.Batch, constrain: Callable
) -> types.Array | None:
    """Returns the captions' embeddings by the starting text tower, if the objective needs them."""
    if not recipe.objective.needs_frozen_text:
        return None
    frozen = state.frozen_text()
    return recipe.model.embed(frozen, None, rows["tokens"], constrain=constrain).text


def contrast(
    recipe: Recipe,
    state: state_lib.TrainState,
    layout: Layout,
    views: dict[str, types.Embeddings],
    logit_scale: types.Array,
    parameters: types.Params,
    rows: types.Batch,
    frozen: types.Array | None,
) -> tuple[types.Array, tuple[dict[str, types.Array], Seen]]:
    """Returns the loss of one batch; its terms, and what it saw.

    Args:
      recipe, state, layout: of the step.
      views: from `embed`.
      logit_scale: scalar.
      parameters: those that the objective adds.
      rows: arrays [rows, ...]; pictures and ids are not looked at any more.
      frozen: from `geometry`.
    """
    looked_at = {key for view in recipe.objective.views.values() for key in (view.image, view.text)}
    total, terms = layout.contrast(
        views,
        recipe.model.scale({"logit_scale": logit_scale}),
        parameters,
        state.step,
        recipe.key(state.step),
        {name: array for name, array in rows.items() if name not in looked_at},
        frozen,
    )
    pair = views[terms_lib.PAIR]
    finite = jnp.isfinite(pair.image).all(-1) & jnp.isfinite(pair.text).all(-1)
    broken = jnp.where(finite, -1, rows["index"])
    seen = Seen(pair.image, pair.text, frozen, rows["pair_id"], broken)
    return total, ({"loss": total, **terms}, seen)
