"""Time and memory of reading and converting weights, per layout, as a table.

    python -m tools.bench_weights --out=/tmp/bench --preset=LongCLIP-L
    python -m tools.bench_weights --out=/tmp/bench --preset=ViT-bigG/14 --to=hnclip,huggingface

A file of random weights of the preset is written first (into a new folder inside of --out, which
is removed at the end). Each row is a process of its own: its time, imports and hashing included,
and the most memory it held, also as a multiple of the file's size.
"""

import dataclasses
import os
import pathlib
import shutil
import sys
import tempfile
import time

import jax
import numpy as np
from absl import app, flags

from hnclip_jax.models import dual_encoder, presets
from hnclip_jax.parallel import sharding
from hnclip_jax.weights import export, stored

_OUT = flags.DEFINE_string("out", None, "folder on the disk to measure", required=True)
_PRESET = flags.DEFINE_string("preset", "LongCLIP-L", "architecture")
_DTYPE = flags.DEFINE_enum("dtype", "float32", list(export.DTYPES), "type in the first file")
_TO = flags.DEFINE_list(
    "to", ["hnclip", "huggingface", "open_clip", "longclip"], "layouts to convert to"
)

_LOAD = "import sys, hnclip_jax as hn; hn.load(sys.argv[1])"


def main(argv: list[str]) -> None:
    """Prints the table."""
    del argv
    pathlib.Path(_OUT.value).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_OUT.value) as folder:
        source = _random_file(pathlib.Path(folder))
        size = source.stat().st_size
        print(f"{_PRESET.value}, {_DTYPE.value}: {size / 1e9:.2f} GB\n")
        print(f"{'':<24}{'seconds':>9}{'GB held':>9}{'x file':>8}")
        _row("hn.load", size, ["-c", _LOAD, str(source)])
        for layout in _TO.value:
            target = pathlib.Path(folder) / "target.pt"
            target = target if layout in ("longclip", "openai") else target.with_suffix("")
            command = [
                "-m",
                "hnclip_jax.cli",
                "convert",
                str(source),
                str(target),
                f"--to={layout}",
            ]
            _row(f"convert --to={layout}", size, command)
            _row(f"hn.load of {layout}", size, ["-c", _LOAD, str(target)])
            shutil.rmtree(target) if target.is_dir() else target.unlink()


def _random_file(folder: pathlib.Path) -> pathlib.Path:
    """Writes random weights of the preset, one array after the other; returns the file."""
    config = presets.get(_PRESET.value)
    shapes = dual_encoder.create(config, scan_layers=False).abstract_params()
    arrays = {
        sharding.path_of(key): _random(leaf.shape)
        for key, leaf in jax.tree_util.tree_leaves_with_path(shapes)
    }
    numbers = dataclasses.asdict(config)
    return export.write(folder / "source", "hnclip", arrays, numbers, dtype=_DTYPE.value)[0]


def _random(shape: tuple[int, ...]) -> stored.Stored:
    # Numbers that repeat are random enough for a disk, and much quicker.
    few = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    return stored.Stored(shape, few.dtype, lambda: np.resize(few, shape))


def _row(name: str, size: int, command: list[str]) -> None:
    began = time.perf_counter()
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, *command],
        {**os.environ, "JAX_PLATFORMS": "cpu"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)
        ],
    )
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed; run it by hand to see why")
    held = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{name:<24}{seconds:>9.1f}{held / 1e9:>9.2f}{held / size:>8.2f}", flush=True)


if __name__ == "__main__":
    app.run(main)
