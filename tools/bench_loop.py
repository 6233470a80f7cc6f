"""The training loop as `hnclip train` runs it, from a list and from packed data, as a table.

    python -m tools.bench_loop --batch=8 --steps=20
    python -m tools.bench_loop --preset=tiny --batch=64 --steps=400

Scenes are drawn at the model's picture size, packed both ways, and trained on with random weights.
The times are the loop's own, from metrics.jsonl: seconds per step, and how much of them went into
waiting for a batch, writing log lines, saving, and comparing gradients; compute is the rest.
Checkpoints fall on log lines, so that each line holds what it cost; the first line, with the
compilation, is left out.
"""

import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence

import jax
from absl import flags

from hnclip_jax import config, groups, types
from hnclip_jax.commands import sources, train
from hnclip_jax.data import pack
from hnclip_jax.models import presets
from tools import program

_PARTS = {
    "input": "data/wait_s",
    "log": "time/log_s",
    "checkpoint": "time/save_s",
    "gradients": "time/gradients_s",
}
"""Column -> key of metrics.jsonl, in seconds per step."""


@dataclasses.dataclass(frozen=True)
class Times:
    """Mean seconds per step of a run: the whole, and its parts by the names of _PARTS."""

    step: float
    parts: dict[str, float]

    @property
    def compute(self) -> float:
        """What no other part took."""
        return self.step - sum(self.parts.values())


def main(argv: Sequence[str]) -> None:
    """Runs one command line.

    Raises:
      types.UserError: for a mistake in it.
    """
    values = _flags()
    if values(list(argv))[1:]:
        raise types.UserError("takes flags only")
    if values.steps < 3 * values.log_every:
        raise types.UserError(
            f"--steps={values.steps} gives fewer than three log lines at --log_every="
            f"{values.log_every}; the first does not count, so take more steps"
        )
    with tempfile.TemporaryDirectory(prefix="bench-loop-") as folder:
        rows = measure(values, pathlib.Path(folder))
    device = jax.devices()[0]
    print(
        f"\n{values.preset}, batch {values.batch}, {values.dtype}, {values.steps} steps; "
        f"{jax.device_count()} x {device.device_kind}, workers {values.workers}, "
        f"jax {jax.__version__}\n\n{table(rows, values.batch)}"
    )


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    define = {"flag_values": values}
    flags.DEFINE_string("preset", "LongCLIP-B", "architecture", **define)
    flags.DEFINE_integer("batch", 8, "pairs per step", 2, **define)
    flags.DEFINE_integer("steps", 20, "of each run", 3, **define)
    flags.DEFINE_integer("log_every", 5, "steps between log lines", 1, **define)
    flags.DEFINE_integer("save_every", 10, "steps between checkpoints", 0, **define)
    flags.DEFINE_integer(
        "gradients_every", 0, "steps between comparisons of gradients; 0 = none", 0, **define
    )
    flags.DEFINE_integer("pairs", 256, "of the drawn list", 4, **define)
    flags.DEFINE_integer("workers", 0, "see data.workers", 0, **define)
    flags.DEFINE_enum("dtype", "float32", ("float32", "bfloat16"), "compute type", **define)
    flags.DEFINE_list("data", list(_DATA), "which of these", **define)
    return values


_DATA = ("list", "packed", "packed ready-cropped")


def measure(values: flags.FlagValues, folder: pathlib.Path) -> dict[str, Times]:
    """Returns the times of one run per kind of data, all in `folder`."""
    rows = {}
    for name, data in _drawn(values, folder):
        run = folder / f"run {name}"
        print(f"trains from: {name}", file=sys.stderr, flush=True)
        train.train(_settings(values, data), str(run))
        rows[name] = read((run / "metrics.jsonl").read_text("utf-8"), values.log_every)
    return rows


def _drawn(values: flags.FlagValues, folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yields the name of each kind of data, and what data.train names it by."""
    size = presets.get(values.preset).image_size
    group = dataclasses.replace(
        groups.DataGroup(),
        scenes_dir=str(folder / "scenes"),
        scenes_train=values.pairs,
        scenes_test_families=1,
    )
    listed = sources.draw_scenes(group, size)[0]
    pictures = sources.read(sources.Source(str(listed)), part="train", image_size=size).pictures
    for name in values.data:
        if name not in _DATA:
            raise types.unknown_name("kind of data", name, _DATA)
        if name == "list":
            yield name, str(listed)
        else:
            cropped = size if name == "packed ready-cropped" else 0
            yield name, str(pack.write(pictures, folder / name, size=cropped))


def _settings(values: flags.FlagValues, data: str) -> config.Config:
    c = config.defaults()
    c.data.train, c.data.workers = data, values.workers
    c.model.preset, c.model.init, c.model.dtype = values.preset, "random", values.dtype
    c.train.global_batch_size, c.train.steps = values.batch, values.steps
    c.train.save_every_steps, c.log.every_steps = values.save_every, values.log_every
    c.log.gradients_every = values.gradients_every
    return config.from_config_dict(c)


def read(metrics: str, log_every: int) -> Times:
    """Returns the times of a run from the text of its metrics.jsonl.

    A line covers the steps since the one before. The first one is left out: it holds the first
    steps only in part, and what the machine does once.

    Raises:
      types.UserError: if no line is left.
    """
    lines = [json.loads(line) for line in metrics.splitlines()]
    lines = [line for line in lines if "time/step_s" in line and line["step"] > log_every]
    if not lines:
        raise types.UserError("metrics.jsonl has no second line with times; take more steps")
    mean = lambda key: statistics.fmean(line.get(key, 0.0) for line in lines)  # noqa: E731
    return Times(mean("time/step_s"), {name: mean(key) for name, key in _PARTS.items()})


def table(rows: dict[str, Times], pairs: int) -> str:
    """Returns one line per kind of data: milliseconds, and shares of the step."""
    lines = [
        f"{'':<22}{'pairs/s':>9}{'step ms':>10}{'compute':>10}"
        + "".join(f"{name:>11}{'%':>7}" for name in _PARTS)
    ]
    for name, times in rows.items():
        lines.append(
            f"{name:<22}{pairs / times.step:>9.3g}{1e3 * times.step:>10.1f}"
            f"{1e3 * times.compute:>10.1f}"
            + "".join(
                f"{1e3 * seconds:>11.2f}{100 * seconds / times.step:>7.2f}"
                for seconds in times.parts.values()
            )
        )
    return "\n".join(lines)


if __name__ == "__main__":
    program.run("bench_loop", main)
