"""Time and memory of the contrastive loss with its gradient, whole and in row blocks, as a table.

    python -m tools.bench_loss
    python -m tools.bench_loss --pairs=65536 --block_rows=256,1024 --timed=65536

Each row is one compiled program, loss and gradients by image, text and scale, on one device. Memory
is what the compiler plans beside the embeddings and their gradients, which the last line counts, so
a batch can be looked at that no memory here holds. Up to --timed pairs it runs as well, on random
embeddings; gammas take turns, and the best round counts, because others may use the machine, too.
"""

import functools
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from hnclip_jax import losses

_PAIRS = flags.DEFINE_list("pairs", ["2048", "4096", "16384", "65536"], "sizes of the global batch")
_BLOCKS = flags.DEFINE_list(
    "block_rows", ["0", "256", "1024"], "rows of the logits held at once; 0 = all"
)
_GAMMAS = flags.DEFINE_list("gammas", ["0", "0.5"], "strengths of the boost; 0 = plain InfoNCE")
_WIDTH = flags.DEFINE_integer("width", 768, "entries of an embedding", lower_bound=1)
_TIMED = flags.DEFINE_integer("timed", 4096, "run batches up to this many pairs", lower_bound=0)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "of which the best counts", lower_bound=1)


def main(argv: Sequence[str]) -> None:
    """Prints the table."""
    if argv[1:]:
        raise app.UsageError(f"flags only, but was given {argv[1:]}")
    device = jax.devices()[0]
    print(
        f"{device.platform} ({device.device_kind}), jax {jax.__version__}, width {_WIDTH.value}\n"
    )
    gammas = [float(gamma) for gamma in _GAMMAS.value]
    titles = "".join(f"{f'gamma {gamma:g}':>25}" for gamma in gammas)
    print(f"{'pairs':>7}{'block rows':>12}{titles}")
    print(" " * 19 + f"{'seconds':>13}{'GB':>12}" * len(gammas))
    for pairs in map(int, _PAIRS.value):
        for block_rows in map(int, _BLOCKS.value):
            if block_rows < pairs:
                print(
                    f"{pairs:>7}{block_rows or 'all':>12}{row(pairs, block_rows, gammas)}",
                    flush=True,
                )
    print("\nbeside image, text and a gradient of each:")
    for pairs in map(int, _PAIRS.value):
        print(f"{pairs:>7}{4 * 4 * pairs * _WIDTH.value / 1e9:>12.3f} GB")


def row(pairs: int, block_rows: int, gammas: list[float]) -> str:
    """Returns seconds and GB of temporary memory for each gamma."""
    programs = [compiled(pairs, block_rows, gamma) for gamma in gammas]
    seconds = [None] * len(programs)
    if pairs <= _TIMED.value:
        seconds = timed(programs, embeddings(pairs))
    return "".join(
        f"{'-' if best is None else f'{best:.3f}':>13}"
        f"{program.memory_analysis().temp_size_in_bytes / 1e9:>12.3f}"
        for program, best in zip(programs, seconds, strict=True)
    )


def compiled(pairs: int, block_rows: int, gamma: float) -> jax.stages.Compiled:
    """Returns the loss and its gradients; needs no memory for the embeddings."""
    # Equal at gamma 0, but plain InfoNCE does not make G.
    loss = functools.partial(losses.hn_clip, gamma=gamma) if gamma else losses.info_nce
    loss = functools.partial(loss, block_rows=block_rows or None)
    rows = jax.ShapeDtypeStruct((pairs, _WIDTH.value), jnp.float32)
    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    return run.lower(rows, rows, jax.ShapeDtypeStruct((), jnp.float32)).compile()


def embeddings(pairs: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns random unit vectors, and a scale."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, pairs, _WIDTH.value), np.float32)
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    return jax.device_put((*rows, np.float32(50)))


def timed(programs: Sequence[Callable], arrays: tuple[jax.Array, ...]) -> list[float]:
    """Returns the best time of each program, in seconds."""
    for program in programs:
        jax.block_until_ready(program(*arrays))
    best = [np.inf] * len(programs)
    for _ in range(_ROUNDS.value):
        for n, program in enumerate(programs):
            began = time.perf_counter()
            jax.block_until_ready(program(*arrays))
            best[n] = min(best[n], time.perf_counter() - began)
    return best


if __name__ == "__main__":
    app.run(main)
