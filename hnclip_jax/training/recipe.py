"""What a step is made from: recipe and layout; and what it tells about itself."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from hnclip_jax import types
from hnclip_jax.losses import objective as objective_lib
from hnclip_jax.models import dual_encoder
from hnclip_jax.training import state as state_lib


class Seen(NamedTuple):
    """The rows that a loss saw, [micro-batches, B / micro-batches, ...]: what diagnostics need.

    image, text: float32 unit vectors; geometry: those of the frozen text tower, or None.
    pair_id: int32.
    broken: int32, -1 where all embeddings of the row are finite, else its number in the list.
    """

    image: types.Array
    text: types.Array
    geometry: types.Array | None
    pair_id: types.Array
    broken: types.Array


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
    cache_parts: each of these is embedded in this many parts, all of which the loss sees.
    skips: a step whose loss or gradient is not finite leaves all but the step's number as it was.
    """

    start: state_lib.Start
    objective: objective_lib.Objective
    optimizer: optax.GradientTransformation
    trained: Any
    max_scale: float = 100.0
    micro_batches: int = 1
    cache_parts: int = 1
    skips: bool = False
    hold: Callable[[Any], Any] = lambda gradient: gradient

    @property
    def model(self) -> dual_encoder.DualEncoder:
        """The model."""
        return self.start.model

    def key(self, step: types.Array) -> types.Array:
        """Returns the jax.random key of a step."""
        return jax.random.fold_in(jax.random.key(self.start.seed), step)


class Layout(NamedTuple):
    """How a batch lies on the devices; told by the mapping.

    contrast: the objective, with arguments by position: views, scale, parameters, step, key,
      arrays, geometry.
    constrain: pins activations to the batch; see `DualEncoder.embed`.
    average: over the devices, of a gradient; where the mapping does that itself, nothing.
    deal: (tree of [rows, ...], parts) -> [parts, rows / parts, ...]; no row changes its device.
    join: the reverse.
    """

    contrast: Callable
    constrain: Callable
    average: Callable
    deal: Callable
    join: Callable
