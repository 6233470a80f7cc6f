"""TrainState: all that a checkpoint holds, created from abstract shapes and already sharded."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from hnclip_jax import types
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import sharding


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """What changes from step to step.

    step: int32 scalar, optimiser steps done; it is also the position in the data.
    params: float32 parameters, with `logit_scale`.
    opt_state: optax state.
    reference: the text tower as it was at the start, for loss.kind="frozen"; otherwise None.
    """

    step: types.Array
    params: types.Params
    opt_state: Any
    reference: types.Params | None


def create(
    model: dual_encoder.DualEncoder,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    *,
    seed: int,
    params: types.Params | None = None,
    scale_init: float = 0.0,
    keep_reference: bool = False,
) -> TrainState:
    """Returns the state of step 0, sharded over `mesh` without a full copy on any one device.

    Args:
      model: the model, for shapes and random parameters.
      optimizer: its state is created here.
      mesh: the device mesh.
      seed: of the random parameters.
      params: parameters to start from; None = random.
      scale_init: s = exp(logit_scale) to start from; 0 = as in the parameters.
      keep_reference: keep a copy of the starting text tower.
    """

    def build(params: types.Params) -> TrainState:
        if scale_init:
            params = {**params, "logit_scale": jnp.float32(math.log(scale_init))}
        reference = jax.tree.map(jnp.copy, params["text"]) if keep_reference else None
        return TrainState(jnp.int32(0), params, optimizer.init(params), reference)

    if params is None:
        # The key is an argument: of a constant, XLA would fold whole random tables as it compiles.
        key = jax.random.key(seed)
        shardings = sharding.state_shardings(
            mesh, jax.eval_shape(lambda key: build(model.init(key)), key)
        )
        return jax.jit(lambda key: build(model.init(key)), out_shardings=shardings)(key)
    abstract = jax.eval_shape(build, params)
    shardings = sharding.state_shardings(mesh, abstract)
    params = jax.device_put(params, shardings.params)
    return jax.jit(build, out_shardings=shardings)(params)


def abstract_like(state: TrainState) -> TrainState:
    """Returns the shapes, dtypes and shardings of `state`: what a restore needs."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state
    )
