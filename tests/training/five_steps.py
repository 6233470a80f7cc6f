"""Five steps of HN-CLIP with the token term: what test_parity.py runs, also as several processes.

    five_steps.py FOLDER PORT COUNT INDEX DATA FSDP

Process INDEX of COUNT reads FOLDER/given.npz, trains on a mesh of DATA x FSDP devices without and
with gradient caching, and writes FOLDER/process_INDEX.npz.
"""

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax._src import distributed

from hnclip_jax import groups
from hnclip_jax.losses import objective
from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.parallel import cluster, sharding
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.training import optimizer, state, step
from hnclip_jax.training import recipe as recipe_lib

STEPS, ROWS = 5, 16
LOSS = groups.LossGroup(gamma=0.5, token_weight=1.0)
OPTIM = groups.OptimGroup(
    lr=0.003,
    schedule="constant",
    weight_decay=0.1,
    max_grad_norm=1.0,
    # As large as a usual entry of a gradient: Adam divides, but no rounding by rounding.
    eps=0.01,
)


def batch(number):
    """Returns the global batch of a step. Rows 2, 3 and 9 have one caption, 1 and 14 another."""
    rng = np.random.default_rng(number)
    tokens = np.zeros((ROWS, 12), np.int32)
    for row in tokens:
        end = rng.integers(3, 12)
        row[0], row[1:end], row[end] = 49406, rng.integers(1, 99, end - 1), 49407
    pair_id = np.arange(ROWS, dtype=np.int32)
    for row, other in ((3, 2), (9, 2), (14, 1)):
        tokens[row], pair_id[row] = tokens[other], other
    return {
        "image": rng.integers(0, 256, (ROWS, 24, 24, 3), dtype=np.uint8),
        "tokens": tokens,
        "pair_id": pair_id,
        "index": np.arange(ROWS, dtype=np.int32),
        "truncated": np.zeros(ROWS, bool),
    }


def run(config, params, mesh, mapper="mesh", cache_parts=1, share=(0, 1)):
    """Returns what five steps come to: {"terms 1/loss", "gradient 5/...", "params/...": array}.

    Args:
      config: of the model.
      params: {path: array} to start from.
      mesh, mapper: where and how it runs.
      cache_parts: 1 = without gradient caching.
      share: (index, count) of this process, which reads every count-th row, as the pipeline does.
    """
    start = state.Start(dual_encoder.create(config), seed=1, scale_init=10.0)
    recipe = recipe_lib.Recipe(
        start=start,
        objective=objective.build(LOSS, groups.MethodGroup()),
        optimizer=optax.chain(_kept(), optimizer.build(OPTIM, start.shapes(), STEPS)),
        trained=optimizer.trained(OPTIM, start.shapes()),
        cache_parts=cache_parts,
    )
    one_step = step.build(recipe, mesh, mapper)
    everywhere = jax.jit(lambda tree: tree, out_shardings=sharding.replicated(mesh))
    now = state.create(start, recipe.optimizer, mesh, params=sharding.nested(params))
    found = {}
    for number in range(1, STEPS + 1):
        rows = {name: values[share[0] :: share[1]] for name, values in batch(number).items()}
        rows = sharding.put_batch(mesh, rows)
        if number == 1 and share[1] > 1:
            one_step = _compiled_by_all(one_step, now, rows, cache_parts)
        now, output = one_step(now, rows)
        found |= {f"terms {number}/{name}": value for name, value in output.terms.items()}
        found[f"terms {number}/norm"] = output.grad_norm
        held = (now.params, now.opt_state[0])
        held = everywhere(held) if mapper == "mesh" else held
        found |= named(f"gradient {number}", held[1])
    found |= named("params", held[0])
    return {name: np.asarray(value) for name, value in found.items()}


def _compiled_by_all(one_step, now, rows, cache_parts):
    """Returns the compiled step once every process has it: gloo waits for others 30 s only."""
    compiled = one_step.lower(now, rows).compile()
    distributed.global_state.client.wait_at_barrier(f"compiled {cache_parts}", 300_000)
    return compiled


def named(what, tree):
    """Returns {"what/path": leaf}, copied to the host."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    # A copy, and at once: the next step is given the state's own buffers to write into.
    return {f"{what}/{sharding.path_of(path)}": np.array(leaf) for path, leaf in leaves}


def _kept():
    """Returns an optimiser that changes nothing; its state is the gradient of the last step."""
    return optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda gradient, state, params: (gradient, gradient),
    )


def main(folder, port, count, index, data, fsdp):
    cluster.start(
        groups.ParallelGroup(
            coordinator=f"127.0.0.1:{port}", process_count=int(count), process_index=int(index)
        )
    )
    mesh = mesh_lib.create(groups.ParallelGroup(data=int(data), fsdp=int(fsdp)))
    folder = pathlib.Path(folder)
    with np.load(folder / "given.npz") as given:
        params = dict(given)
    numbers = json.loads((folder / "config.json").read_text())
    config = presets.ModelConfig(
        **{name: tuple(n) if isinstance(n, list) else n for name, n in numbers.items()}
    )
    found = {}
    for parts in (1, 2):
        ran = run(config, params, mesh, cache_parts=parts, share=(int(index), int(count)))
        found |= {f"{parts} {name}": value for name, value in ran.items()}
    np.savez(folder / f"process_{index}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
