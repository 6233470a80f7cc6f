"""TrainState: all that changes from step to step, created from abstract shapes, already sharded."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from hnclip_jax import adapters, groups, types
from hnclip_jax.models import dual_encoder
from hnclip_jax.parallel import sharding


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """What changes from step to step.

    step: int32 scalar, optimiser steps done; it is also the position in the data.
    params: float32, see `Start`.
    opt_state: optax state.
    reference: the text tower as it was at the start, for loss.kind="frozen"; otherwise None.
    base: both towers as they were at the start, when adapters train on them; otherwise None. It
      never changes, so checkpoints leave it out.
    """

    step: types.Array
    params: types.Params
    opt_state: Any
    reference: types.Params | None
    base: types.Params | None = None

    def frozen_text(self) -> types.Params:
        """Returns {"text": the text tower as it was at the start}."""
        return {"text": self.reference if self.base is None else self.base["text"]}


@dataclasses.dataclass(frozen=True)
class Start:
    """How the parameters of a run come about.

    The trained tree is {"image", "text", "logit_scale"}, with adapters {"adapter", "logit_scale"};
    and "method" in both if the objective adds parameters.

    model: the model.
    seed: of all that is random.
    scale_init: s = exp(logit_scale) to start from; 0 = as in the parameters.
    method: says whether adapters train, and which.
    add: key -> parameters that the objective adds; None = none.
    """

    model: dual_encoder.DualEncoder
    seed: int
    scale_init: float = 0.0
    method: groups.MethodGroup = dataclasses.field(default_factory=groups.MethodGroup)
    add: Callable[[types.Array], types.Params] | None = None

    def split(
        self, params: types.Params, key: types.Array
    ) -> tuple[types.Params, types.Params | None]:
        """Returns what trains, and the base that adapters lie on (None without adapters)."""
        scale = params["logit_scale"]
        if self.scale_init:
            scale = jnp.float32(math.log(self.scale_init))
        base = {"image": params["image"], "text": params["text"]}
        adapter_key, method_key = jax.random.split(key)
        trained = {"logit_scale": scale}
        if self.method.adapter:
            trained["adapter"] = adapters.init(adapter_key, self.method, base)
        else:
            trained, base = {**base, **trained}, None
        if self.add and (added := self.add(method_key)):
            trained["method"] = added
        return trained, base

    def shapes(self) -> types.Params:
        """Returns the tree of what trains, a ShapeDtypeStruct for every array."""
        made = lambda key: self.split(self.model.init(key), key)[0]  # noqa: E731
        return jax.eval_shape(made, jax.random.key(0))

    def model_params(self, params: types.Params, base: types.Params | None) -> types.Params:
        """Returns what the model computes with, given what trains and its base."""
        if base is None:
            return {name: values for name, values in params.items() if name != "method"}
        effective = adapters.apply(base, params["adapter"], self.method.adapter_alpha)
        return {**effective, "logit_scale": params["logit_scale"]}


def create(
    start: Start,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    *,
    params: types.Params | None = None,
    keep_reference: bool = False,
) -> TrainState:
    """Returns the state of step 0, sharded over `mesh` without a full copy on any one device.

    Args:
      start: how the parameters come about.
      optimizer: its state is created here.
      mesh: the device mesh.
      params: the model's parameters to start from; None = random.
      keep_reference: the starting text tower is needed later on.
    """

    def build(params: types.Params, key: types.Array) -> TrainState:
        trained, base = start.split(params, key)
        reference = None
        if keep_reference and base is None:
            reference = jax.tree.map(jnp.copy, trained["text"])
        return TrainState(jnp.int32(0), trained, optimizer.init(trained), reference, base)

    # The key is an argument: of a constant, XLA would fold whole random tables as it compiles.
    key = jax.random.key(start.seed)
    if params is None:
        build_all = lambda key: build(start.model.init(key), key)  # noqa: E731
        shardings = sharding.state_shardings(mesh, jax.eval_shape(build_all, key))
        return jax.jit(build_all, out_shardings=shardings)(key)
    shardings = sharding.state_shardings(mesh, jax.eval_shape(build, params, key))
    params = sharding.put_whole(params, sharding.state_shardings(mesh, params))
    return jax.jit(build, out_shardings=shardings)(params, key)


def abstract_like(state: TrainState) -> TrainState:
    """Returns the shapes, dtypes and shardings of `state`: what a restore needs."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state
    )
