"""Cost of a train step by method, beside plain fine-tuning, as a table.

    python -m tools.bench_step
    python -m tools.bench_step --preset=LongCLIP-L --batch=16 --methods=clip,goal --steps=5

Expected is what counting says: a method embeds so many pictures and captions per pair, and a
forward pass of each tower costs so much. FLOPs are those that XLA counts in the compiled step, with
layers written out (of a scan it counts one layer); with --steps=0 in the step before it is
compiled, which takes seconds instead of minutes. Times are medians of steps on made-up batches;
the methods take turns, so that a slow minute of the machine falls on all of them.
"""

import functools
import math
import statistics
import time
from typing import Any, NamedTuple

import jax
from absl import app, flags

from hnclip_jax import config, pretrained
from hnclip_jax.commands import parts
from hnclip_jax.data import example
from hnclip_jax.losses import terms
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import recipe as recipe_lib
from hnclip_jax.training import state, step

_PRESET = flags.DEFINE_string("preset", "LongCLIP-B", "architecture")
_BATCH = flags.DEFINE_integer("batch", 8, "pairs per step", lower_bound=2)
_STEPS = flags.DEFINE_integer(
    "steps", 3, "timed steps of each; 0 = only count, without compiling", lower_bound=0
)
_METHODS = flags.DEFINE_list(
    "methods",
    ["clip", "hn", "longclip", "finelip", "goal", "structxlip", "lora", "dora"],
    "which; 'hn' is plain fine-tuning with the boost, the others are without",
)
_DTYPE = flags.DEFINE_enum("dtype", "float32", ("float32", "bfloat16"), "compute type")


class Cost(NamedTuple):
    """A step, compiled if it is to be timed, and what XLA says of it."""

    run: Any
    flops: float
    bytes: int
    images: float
    texts: float


def main(argv: list[str]) -> None:
    """Prints the table."""
    del argv
    mesh = mesh_lib.create(config.Config().parallel)
    costs, batches, states = {}, {}, {}
    for name in _METHODS.value:
        recipe = _recipe(name)
        rows = example.batch(
            _sizes(recipe), _BATCH.value, recipe.objective.inputs, recipe.start.method
        )
        batches[name] = sharding.put_batch(mesh, rows)
        began = _begin(recipe, mesh)
        costs[name] = _compile(recipe, mesh, began, batches[name])
        print(f"ready: {name}", flush=True)
        states[name] = began if _STEPS.value else None
    seconds = _times(costs, batches, states)
    towers = _towers(_recipe("clip"), mesh)
    print(
        f"\n{_PRESET.value}, batch {_BATCH.value}, {_DTYPE.value}, {mesh.size} x "
        f"{mesh.devices.flat[0].device_kind}, jax {jax.__version__}\n"
    )
    print(
        f"{'method':<12}{'pictures':>9}{'captions':>9}{'TFLOP':>9}{'x plain':>9}{'expected':>10}"
        f"{'ms':>9}{'x plain':>9}{'temp. MB':>10}"
    )
    plain = _METHODS.value[0]
    for name, cost in costs.items():
        expected = cost.images * towers[0] + cost.texts * towers[1]
        expected /= costs[plain].images * towers[0] + costs[plain].texts * towers[1]
        print(
            f"{name:<12}{cost.images:>9g}{cost.texts:>9g}{cost.flops / 1e12:>9.3f}"
            f"{cost.flops / costs[plain].flops:>9.3f}{expected:>10.3f}"
            f"{_column(seconds, name, 1e3)}{_column(seconds, name, 1 / seconds.get(plain, 1))}"
            + (f"{cost.bytes / 1e6:>10.0f}" if cost.bytes else f"{'-':>10}")
        )


def _column(seconds: dict[str, float], name: str, factor: float) -> str:
    return f"{seconds[name] * factor:>9.4g}" if name in seconds else f"{'-':>9}"


def _recipe(name: str) -> recipe_lib.Recipe:
    values = config.defaults()
    values.train.global_batch_size = _BATCH.value
    values.model.preset, values.model.init = _PRESET.value, "random"
    values.loss.gamma = 0.5 if name == "hn" else 0.0
    if name in ("lora", "dora"):
        values.method.adapter = name
    elif name != "hn":
        values.method.name = name
    settings = config.from_config_dict(values)
    model = pretrained.create_model(_PRESET.value, scan_layers=False, dtype=_DTYPE.value)
    return parts.recipe(settings, model, total_steps=1000, pairs=_BATCH.value)


def _begin(recipe: recipe_lib.Recipe, mesh: jax.sharding.Mesh) -> state.TrainState:
    """Returns the state of step 0; shapes alone where nothing is run."""
    create = functools.partial(state.create, recipe.start, recipe.optimizer, mesh)
    return create() if _STEPS.value else jax.eval_shape(create)


def _sizes(recipe: recipe_lib.Recipe) -> example.Sizes:
    return example.Sizes.of(recipe.model.config)


def _compile(
    recipe: recipe_lib.Recipe, mesh: jax.sharding.Mesh, began: state.TrainState, batch: Any
) -> Cost:
    run = step.build(recipe, mesh).lower(began, batch)
    run = run.compile() if _STEPS.value else run
    views = recipe.objective.views.values()
    return Cost(
        run,
        run.cost_analysis()["flops"],
        run.memory_analysis().temp_size_in_bytes if _STEPS.value else 0,
        sum(_count(batch, view.image, 3) for view in views),
        sum(_count(batch, view.text, 1) for view in views),
    )


def _count(batch: dict[str, Any], key: str, own_axes: int) -> float:
    """Returns how many pictures, or captions, of `key` there are for each pair."""
    if not key:
        return 0
    shape = batch[key].shape[:-own_axes]
    return math.prod(shape) / _BATCH.value


def _towers(recipe: recipe_lib.Recipe, mesh: jax.sharding.Mesh) -> tuple[float, float]:
    """Returns the FLOPs of a forward pass of each tower."""
    params = recipe.model.abstract_params()
    rows = example.batch(_sizes(recipe), _BATCH.value)
    view = terms.View("image", "tokens")

    def image(params: Any, images: Any) -> Any:
        return recipe.model.embed(params, images=images).image

    def text(params: Any, ids: Any) -> Any:
        return recipe.model.embed(params, ids=ids).text

    return tuple(
        jax.jit(tower).lower(params, rows[key]).cost_analysis()["flops"]
        for tower, key in ((image, view.image), (text, view.text))
    )


def _times(
    costs: dict[str, Cost], batches: dict[str, Any], states: dict[str, Any]
) -> dict[str, float]:
    """Returns the median seconds of a step."""
    seen: dict[str, list[float]] = {name: [] for name in costs}
    for turn in range(_STEPS.value + 1 if _STEPS.value else 0):
        for name, cost in costs.items():
            began = time.perf_counter()
            states[name], _ = jax.block_until_ready(cost.run(states[name], batches[name]))
            if turn:  # The first one touches memory for the first time.
                seen[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in seen.items() if times}


if __name__ == "__main__":
    app.run(main)
