"""The gradient of a batch that does not fit in memory at once: embedded in parts, contrasted whole.

All parts are embedded without a gradient; the loss of all embeddings gives the gradient of each;
then each part is embedded once more, and its embeddings' gradient taken on to the parameters. The
result is that of the whole batch, at the price of a second forward pass.

References:
  GradCache, arXiv 2101.06983.
"""

from typing import Any

import jax
import jax.numpy as jnp

from hnclip_jax import types
from hnclip_jax.training import forward
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.recipe import Layout, Recipe, Seen


def of_rows(
    recipe: Recipe, state: state_lib.TrainState, rows: types.Batch, layout: Layout
) -> tuple[types.Params, tuple[dict[str, types.Array], Seen]]:
    """Returns the gradient of one batch's loss; its terms, and what it saw.

    Args:
      recipe: its cache_parts says in how many parts the towers see the batch.
      state: whose parameters the gradient is of.
      rows: arrays [rows, ...].
      layout: how they lie on the devices.
    """
    parts = layout.deal(rows, recipe.cache_parts)
    # Once for all parts: under adapters it is a product for every kernel.
    towers, to_params = jax.vjp(
        lambda params: recipe.start.model_params(params, state.base), state.params
    )

    def embed(towers: types.Params, part: types.Batch) -> tuple[Any, Any]:
        return _apart(forward.embed(recipe, towers, part, layout.constrain))

    def look(part: types.Batch) -> tuple[Any, Any, types.Array | None]:
        return *embed(towers, part), forward.geometry(recipe, state, part, layout.constrain)

    smooth, masks, frozen = layout.join(jax.lax.map(look, parts))

    def loss(smooth: Any, logit_scale: types.Array, parameters: types.Params) -> tuple:
        views = _together(smooth, masks)
        return forward.contrast(recipe, state, layout, views, logit_scale, parameters, rows, frozen)

    added = state.params.get("method", {})
    (_, output), (of_views, of_scale, of_added) = jax.value_and_grad(
        loss, argnums=(0, 1, 2), has_aux=True
    )(smooth, towers["logit_scale"], added)

    def add(gradient: types.Params, given: tuple) -> tuple[types.Params, None]:
        part, of_part = given

        def product(towers: types.Params) -> types.Array:
            pairs = zip(jax.tree.leaves(embed(towers, part)[0]), of_part, strict=True)
            return sum(jnp.vdot(values, by) for values, by in pairs)

        return jax.tree.map(jnp.add, gradient, jax.grad(product)(towers)), None

    of_parts = layout.deal(jax.tree.leaves(of_views), recipe.cache_parts)
    of_towers, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, towers), (parts, of_parts))
    (gradient,) = to_params({**of_towers, "logit_scale": of_scale})
    return ({**gradient, "method": of_added} if added else gradient), output


def _apart(views: dict[str, types.Embeddings]) -> tuple[Any, Any]:
    """Returns the views without their masks, and the masks: they have no gradient."""
    smooth = {name: view._replace(word_mask=None) for name, view in views.items()}
    return smooth, {name: view.word_mask for name, view in views.items()}


def _together(smooth: Any, masks: Any) -> dict[str, types.Embeddings]:
    return {name: view._replace(word_mask=masks[name]) for name, view in smooth.items()}
