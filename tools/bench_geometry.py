"""Time and memory of `hnclip look geometry`'s pass over all pairs of captions, as a table.

    python -m tools.bench_geometry
    python -m tools.bench_geometry --shapes=100000x512,100000x768

Each row is a process of its own, which makes random embeddings first: its seconds are those of the
pass alone, its memory is the most that it held, embeddings included. Beside it stands what came
out: mean and standard deviation of G over all pairs, and the mean of the hardest companions.
"""

import os
import resource
import subprocess
import sys
import time

import numpy as np
from absl import app, flags

from hnclip_jax.analysis import geometry

_SHAPES = flags.DEFINE_list(
    "shapes", ["10000x512", "100000x512", "100000x768"], "captions x entries of an embedding"
)
_ONE = flags.DEFINE_string("one", "", "run this shape here")

_OF_PICTURE = 2
"""Captions per picture: pairs of them are left out."""


def main(argv: list[str]) -> None:
    """Prints the table, or runs one of its rows."""
    del argv
    if _ONE.value:
        _measure(*map(int, _ONE.value.split("x")))
        return
    print(f"{os.cpu_count()} cores\n")
    print(f"{'captions x width':<18}{'seconds':>9}{'GB held':>9}  mean G, std G, mean of hardest")
    for shape in _SHAPES.value:
        print(f"{shape:<18}{_row(shape)}", flush=True)


def _row(shape: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "tools.bench_geometry", f"--one={shape}"],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )
    return ran.stdout.strip("\n") if not ran.returncode else "failed; run it by hand to see why"


def _measure(captions: int, width: int) -> None:
    text = _embeddings(captions, width)
    began = time.perf_counter()
    found = geometry.measure(text, np.arange(captions) // _OF_PICTURE)
    seconds = time.perf_counter() - began
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held *= 1 if sys.platform == "darwin" else 1024
    numbers = f"{found.mean:.4f}, {found.std:.4f}, {found.hardest_mean:.4f}"
    print(f"{seconds:>9.1f}{held / 1e9:>9.2f}  {numbers}")


def _embeddings(captions: int, width: int) -> np.ndarray:
    """Returns unit vectors that share a direction, as captions do; filled in place."""
    rng = np.random.default_rng(0)
    text = np.empty((captions, width), np.float32)
    for first in range(0, captions, 1024):
        part = text[first : first + 1024]
        part[...] = 1.5 + rng.standard_normal(part.shape, np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return text


if __name__ == "__main__":
    app.run(main)
