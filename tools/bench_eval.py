"""Time and memory of ranking, ours against the whole similarity matrix in numpy, as a table.

    python -m tools.bench_eval
    python -m tools.bench_eval --shapes=5100x5100,31783x158915 --width=768

Each row is a process of its own, which makes random embeddings first: its seconds are those of the
ranking alone, its memory is the most that it held, embeddings included. Where the whole matrix does
not fit into the memory that is free, the table says how large it would be instead.
"""

import os
import resource
import subprocess
import sys
import time

import numpy as np
from absl import app, flags

from hnclip_jax.evaluation import retrieval

_SHAPES = flags.DEFINE_list(
    "shapes",
    ["5100x5100", "31783x31783", "31783x158915", "100000x100000"],
    "pictures x captions; the last two are Flickr30k in full and a large list",
)
_WIDTH = flags.DEFINE_integer("width", 768, "entries of an embedding")
_ONE = flags.DEFINE_string("one", "", "run this one here: ours or numpy, a colon, a shape")


def main(argv: list[str]) -> None:
    """Prints the table, or runs one of its rows."""
    del argv
    if _ONE.value:
        _measure(*_ONE.value.split(":"))
        return
    print(f"width {_WIDTH.value}, {os.cpu_count()} cores\n")
    print(f"{'pictures x captions':<22}{'':<8}{'seconds':>9}{'GB held':>9}  t2i R@1, i2t R@1")
    for shape in _SHAPES.value:
        for how in ("ours", "numpy"):
            print(f"{shape:<22}{how:<8}{_row(how, shape)}", flush=True)


def _row(how: str, shape: str) -> str:
    pictures, captions = map(int, shape.split("x"))
    # The matrix, and the answers to one comparison.
    needed = 5 * pictures * captions + 8 * (pictures + captions) * _WIDTH.value
    if how == "numpy" and needed > (free := _free_bytes()):
        return f"not run: needs {needed / 1e9:.1f} GB, free are {free / 1e9:.1f} GB"
    command = [sys.executable, "-m", "tools.bench_eval", f"--one={how}:{shape}"]
    ran = subprocess.run(
        [*command, f"--width={_WIDTH.value}"],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )
    return ran.stdout.strip() if not ran.returncode else "failed; run it by hand to see why"


def _free_bytes() -> int:
    with open("/proc/meminfo") as file:
        values = dict(line.split(":") for line in file)
    return 1024 * int(values["MemAvailable"].split()[0])


def _measure(how: str, shape: str) -> None:
    image, text, owner = _embeddings(*map(int, shape.split("x")))
    began = time.perf_counter()
    found = (_ours if how == "ours" else _whole_matrix)(image, text, owner)
    seconds = time.perf_counter() - began
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held *= 1 if sys.platform == "darwin" else 1024
    recalls = ", ".join(f"{value:.2f}" for value in found)
    print(f"{seconds:>9.1f}{held / 1e9:>9.2f}  {recalls}")


def _embeddings(pictures: int, captions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns unit vectors, and the picture of each caption; filled in place to hold them once."""
    rng = np.random.default_rng(0)
    owner = np.arange(captions) * pictures // captions
    image = np.empty((pictures, _WIDTH.value), np.float32)
    text = np.empty((captions, _WIDTH.value), np.float32)
    for rows, origin, noise in ((image, None, 1.0), (text, owner, 5.0)):
        for first in range(0, len(rows), 1024):
            part = rows[first : first + 1024]
            part[...] = noise * rng.standard_normal(part.shape, np.float32)
            if origin is not None:
                part += image[origin[first : first + 1024]] * np.sqrt(_WIDTH.value)
            part /= np.linalg.norm(part, axis=1, keepdims=True)
    return image, text, owner


def _ours(image: np.ndarray, text: np.ndarray, owner: np.ndarray) -> tuple[float, float]:
    metrics = retrieval.retrieval_metrics(image, text, owner)
    return metrics["t2i_r@1"], metrics["i2t_r@1"]


def _whole_matrix(image: np.ndarray, text: np.ndarray, owner: np.ndarray) -> tuple[float, float]:
    """Recall by counting in the whole matrix; no sorting, which would be several times slower."""
    scores = image @ text.T
    own = scores[owner, np.arange(len(text))]
    best = np.full(len(image), -np.inf, np.float32)
    np.maximum.at(best, owner, own)
    t2i = (scores > own).sum(axis=0) == 0
    i2t = (scores > best[:, None]).sum(axis=1) == 0
    return 100 * t2i.mean(), 100 * i2t.mean()


if __name__ == "__main__":
    app.run(main)
