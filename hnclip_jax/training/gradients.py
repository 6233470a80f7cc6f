"""The gradients of two losses on one batch, side by side: plain InfoNCE, and what trains."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from hnclip_jax import types
from hnclip_jax.losses import objective as objective_lib
from hnclip_jax.training import layouts
from hnclip_jax.training import state as state_lib
from hnclip_jax.training.recipe import Layout, Recipe
from hnclip_jax.training.update import gradient_of

Compare = Callable[[state_lib.TrainState, types.Batch], dict[str, types.Array]]


def build(recipe: Recipe, mesh: Mesh, mapper: str = "mesh") -> Compare:
    """Returns a compiled function of a state and a batch, which leaves both as they are.

    It takes what the next step takes, and measures the gradients there of InfoNCE and of the global
    term as it trains (its kind, its gamma of this step), by all parameters that train; what a
    method adds, and the token term, is left out of both. Both have the run's label smoothing, its
    guard of equal pairs, its micro-batches and its gradient caching. Where gamma is 0 they are one.

    Args:
      recipe: of the step.
      mesh: the device mesh.
      mapper: as in `step.build`.

    Returns:
      A function to float32 scalars, "gradients/" before each name:
        info_nce, global: the two losses.
        norm_info_nce, norm_global: norms of the gradients, before clipping. They are taken of the
          gradient over its largest entry, so that they are 0 only if every entry is.
        max_info_nce, max_global: largest absolute entries.
        ratio: norm_global / norm_info_nce; inf or nan where the latter is 0.
        cosine: of the two gradients; nan where one of them is 0.
    """
    return {"mesh": _over_mesh, "pmap": _by_pmap}[mapper](_two_recipes(recipe), mesh)


def _two_recipes(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """Returns the recipes of InfoNCE alone and of the global term alone."""
    settings = recipe.objective.settings
    loss = dataclasses.replace(settings.loss, token_weight=0.0)
    method = dataclasses.replace(settings.method, name="clip", global_weight=1.0)

    def of(**changed: str) -> Recipe:
        objective = objective_lib.build(
            dataclasses.replace(loss, **changed), method, recipe.objective.steps_per_epoch
        )
        return recipe._replace(objective=objective)

    return of(kind="info_nce"), of()


def _over_mesh(recipes: tuple[Recipe, Recipe], mesh: Mesh) -> Compare:
    placed = [layouts.over_mesh(recipe, mesh) for recipe in recipes]

    @jax.jit
    def compare(state, batch):
        return _compare([(*pair, state, batch) for pair in placed])

    return compare


def _by_pmap(recipes: tuple[Recipe, Recipe], mesh: Mesh) -> Compare:
    def compare(state, batch):
        return _compare([(recipe, layouts.inside_pmap(recipe), state, batch) for recipe in recipes])

    return layouts.pmapped(compare, mesh, None)


def _compare(
    of: list[tuple[Recipe, Layout, state_lib.TrainState, types.Batch]],
) -> dict[str, types.Array]:
    (plain, plain_loss), (trained, trained_loss) = (
        _gradient(recipe, state, batch, layout) for recipe, layout, state, batch in of
    )
    values = {"info_nce": plain_loss, "global": trained_loss, **relate(plain, trained)}
    return {f"gradients/{name}": value for name, value in values.items()}


def relate(plain: types.Params, trained: types.Params) -> dict[str, types.Array]:
    """Returns norms, largest entries, ratio and cosine of two gradients; see `build`."""
    largest = _largest(plain), _largest(trained)
    # Squares of small numbers are 0 long before they are: all is computed at unit size.
    plain, trained = _over(plain, largest[0]), _over(trained, largest[1])
    lengths = _length(plain), _length(trained)
    products = jax.tree.leaves(jax.tree.map(jnp.vdot, plain, trained))
    norms = lengths[0] * largest[0], lengths[1] * largest[1]
    return {
        "norm_info_nce": norms[0],
        "norm_global": norms[1],
        "max_info_nce": largest[0],
        "max_global": largest[1],
        "ratio": norms[1] / norms[0],
        "cosine": sum(products) / (lengths[0] * lengths[1]),
    }


def _gradient(
    recipe: Recipe, state: state_lib.TrainState, batch: types.Batch, layout: Layout
) -> tuple[types.Params, types.Array]:
    gradient, (terms, _) = gradient_of(recipe, state, batch, layout)
    return gradient, jnp.mean(terms["global"])


def _largest(tree: types.Params) -> types.Array:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree)]))


def _over(tree: types.Params, largest: types.Array) -> types.Params:
    return jax.tree.map(lambda leaf: leaf / jnp.where(largest > 0, largest, 1), tree)


def _length(tree: types.Params) -> types.Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
