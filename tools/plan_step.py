"""Compiles the train step of a config for devices that need not be here, and counts."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from hnclip_jax import config, pretrained, types
from hnclip_jax.commands import parts
from hnclip_jax.data import example
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state, step
from tools import plan_chips, plan_program

_STEPS = 1000
"""Of the imagined run; the schedule does not change what a step costs."""


class Figures(NamedTuple):
    """What a step costs each device. Sizes are bytes.

    fault: why the step cannot run there, one line, the rest 0 if it did not compile; "" = it can.
    parameters: those that train.
    frozen: kept beside them: the towers below adapters, the starting text tower.
    optimizer: the optimiser's state.
    batch: the rows of the batch.
    temporaries: activations, gradients, and all else that lives within a step.
    program: the compiled program, and outputs that do not take the place of inputs.
    peak: all of these together, as the compiler lays them out.
    flops: of matrix products.
    moved: bytes read and written.
    collectives: kind -> count and bytes.
    seconds: that compilation took.
    """

    fault: str = ""
    parameters: int = 0
    frozen: int = 0
    optimizer: int = 0
    batch: int = 0
    temporaries: int = 0
    program: int = 0
    peak: int = 0
    flops: int = 0
    moved: int = 0
    collectives: dict[str, plan_program.Traffic] = {}  # noqa: RUF012
    seconds: float = 0.0


class Case(NamedTuple):
    """One thing to compile: settings changed in a few fields, for one target."""

    target: plan_chips.Target
    per_chip: int
    remat: str
    boost: bool = True


class Planner:
    """Compiles cases of one config; what was compiled once is remembered."""

    def __init__(self, settings: config.Config, say: Callable[[str], None]) -> None:
        """Takes the settings that all cases share, and what is told of each compilation."""
        if settings.parallel.mapper != "mesh":
            raise types.UserError(
                f"parallel.mapper={settings.parallel.mapper!r} cannot be compiled ahead of time; "
                "plan with mapper='mesh'"
            )
        self._settings, self._say = settings, say
        self._done: dict[tuple, Figures] = {}

    def figures(self, case: Case) -> Figures:
        """Returns the figures of a case, or figures with a fault."""
        key = (case.target.name, case.per_chip, case.remat, case.boost)
        if key not in self._done:
            began = time.monotonic()
            try:
                made = _figures(case_settings(self._settings, case), case.target)
            except types.UserError as error:
                made = Figures(fault=str(error))
            made = made._replace(seconds=time.monotonic() - began)
            self._done[key] = made
            self._say(_told(case, made))
        return self._done[key]


def case_settings(settings: config.Config, case: Case) -> config.Config:
    """Returns the settings of a case: its batch, its remat, with the boost or with gamma 0."""
    changed = {
        # The architecture is that of the preset; what the weights are does not change a step.
        "model": {"init": "random", "weights": "", "stretch": 0, "activation": "", "adapter": ""}
        | {"remat": case.remat},
        "train": {"global_batch_size": case.per_chip * len(case.target.devices)},
        "loss": {} if case.boost else {"gamma": 0.0, "gamma_by_epoch": (), "constant_margin": -1.0},
    }
    values = dataclasses.asdict(settings)
    for group, fields in changed.items():
        values[group] |= fields
    return config.from_config_dict(values)


def _told(case: Case, made: Figures) -> str:
    what = f"{case.target.name}, {case.per_chip} per chip, remat {case.remat}"
    what += "" if case.boost else ", gamma 0"
    result = made.fault or f"{made.peak / 1e9:.2f} GB"
    return f"compiled {what}: {result} ({made.seconds:.0f} s)"


def _figures(settings: config.Config, target: plan_chips.Target) -> Figures:
    """Returns the figures of a step.

    Raises:
      types.UserError: if the settings do not fit the target, or the compiler gives up.
    """
    mesh, recipe = _parts(settings, target)
    train = settings.train
    mesh_lib.check_batch(mesh, train.global_batch_size, train.micro_batches * train.gradient_cache)
    began, batch = _state(recipe, mesh), _batch(recipe, mesh, train.global_batch_size)
    try:
        compiled = step.build(recipe, mesh).lower(began, batch).compile()
    except jax.errors.JaxRuntimeError as error:
        raise types.UserError(_compiler_fault(str(error))) from error
    memory = compiled.memory_analysis()
    program = plan_program.read(compiled.as_text())
    extra = memory.output_size_in_bytes - memory.alias_size_in_bytes
    extra += memory.generated_code_size_in_bytes
    peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes + extra
    fits = not target.memory or peak <= target.memory
    return Figures(
        fault="" if fits else f"needs {peak / 1e9:.2f} GB of {target.memory / 1e9:.2f} GB",
        parameters=bytes_of(began.params),
        frozen=bytes_of((began.reference, began.base)),
        optimizer=bytes_of(began.opt_state),
        batch=bytes_of(batch),
        temporaries=memory.temp_size_in_bytes,
        program=extra,
        peak=peak,
        flops=program.flops,
        moved=int(compiled.cost_analysis().get("bytes accessed", 0) * program.loops),
        collectives=program.collectives,
    )


def begin(settings: config.Config, target: plan_chips.Target) -> state.TrainState:
    """Returns the train state of a run on a target, as shapes with their places; none is made.

    Raises:
      types.UserError: if the settings do not fit the target.
    """
    mesh, recipe = _parts(settings, target)
    return _state(recipe, mesh)


def _parts(settings: config.Config, target: plan_chips.Target) -> tuple[jax.sharding.Mesh, Any]:
    """Returns the mesh and the recipe of a run."""
    mesh = mesh_lib.create(settings.parallel, target.devices)
    encoder = pretrained.from_group(settings.model)
    pairs = settings.train.global_batch_size * _STEPS
    return mesh, parts.recipe(settings, encoder, _STEPS, pairs=pairs)


def _state(recipe: Any, mesh: jax.sharding.Mesh) -> state.TrainState:
    """Returns the train state as shapes with shardings: the one that a run creates, not made."""

    def create() -> state.TrainState:
        frozen_text = recipe.objective.needs_frozen_text
        return state.create(recipe.start, recipe.optimizer, mesh, keep_reference=frozen_text)

    shapes = jax.eval_shape(create)
    places = sharding.state_shardings(mesh, shapes)
    return jax.tree.map(_placed, shapes, places)


def _placed(leaf: Any, place: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)


def _batch(recipe: Any, mesh: jax.sharding.Mesh, pairs: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of a batch with what the objective asks for."""
    numbers = recipe.start.model.config
    sizes = example.Sizes.of(numbers)
    rows = example.batch(sizes, 2, recipe.objective.inputs, recipe.start.method)
    place = sharding.batch_sharding(mesh)
    return {
        name: jax.ShapeDtypeStruct((pairs, *array.shape[1:]), array.dtype, sharding=place)
        for name, array in rows.items()
    }


def bytes_of(tree: Any) -> int:
    """Returns the bytes of one device's part of a tree."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _compiler_fault(message: str) -> str:
    """Returns one line for what the compiler says when it gives up."""
    first = " ".join(message.splitlines()[0].split())
    if "RESOURCE_EXHAUSTED" in message:
        return f"out of memory: {first.split('HLO module')[0].split('CompileTimeHbmOom: ')[-1]}"
    return f"the compiler gives up: {first[:300]}"
