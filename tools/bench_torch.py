"""Our train step beside PyTorch's: same weights, batch, loss, optimiser, machine; as a table.

    python -m tools.bench_torch --batch=8 --rounds=7
    python -m tools.bench_torch --preset=ViT-L/14 --batch=256 --dtype=bfloat16

Plain InfoNCE and AdamW on all parameters of a model with random weights. Ours is written in their
layouts and read by their code, so that the first losses and gradient norms tell whether all do the
same work; where they do not, there is no table. Contenders take turns, in another order each round.
docs/performance.md says what the columns mean. Needs torch, transformers, and open_clip unless it
is left out of --beside.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from absl import flags

from hnclip_jax import config, pretrained, types
from hnclip_jax.commands import parts
from hnclip_jax.data import example
from hnclip_jax.models import presets
from hnclip_jax.parallel import mesh as mesh_lib
from hnclip_jax.parallel import sharding
from hnclip_jax.training import state, step
from tools import bench_peaks, bench_torch_steps, program

OURS = "hnclip"
# So small that steps of two contenders on one model leave its loss as it is; the work is the same.
_LR, _DECAY = 1e-9, 0.1
_SAME = {"float32": 1e-4, "bfloat16": 3e-2}
"""How far losses and gradient norms of the same work may be apart, relatively."""

Step = Callable[[], bench_torch_steps.Told]


class Row(NamedTuple):
    """A contender: what its first step told, and its steps after the warm-up."""

    first: bench_torch_steps.Told
    timed: list[bench_torch_steps.Told]

    @property
    def median(self) -> float:
        """Seconds of a step."""
        return statistics.median(told.seconds for told in self.timed)

    @property
    def best(self) -> float:
        """Seconds of the fastest step."""
        return min(told.seconds for told in self.timed)

    @property
    def parts(self) -> list[float]:
        """Median seconds of forward, backward, update; empty for one program."""
        return [
            statistics.median(part)
            for part in zip(*(told.parts for told in self.timed), strict=True)
        ]


def main(argv: Sequence[str]) -> None:
    """Runs one command line.

    Raises:
      types.UserError: for a mistake in it, a missing library, or unequal work.
    """
    values = _flags()
    if values(list(argv))[1:]:
        raise types.UserError("takes flags only")
    libraries = tuple(values.beside)
    for library in libraries:
        if library not in bench_torch_steps.LIBRARIES:
            raise types.unknown_name("library", library, bench_torch_steps.LIBRARIES)
    bench_torch_steps.check_installed(libraries)
    with tempfile.TemporaryDirectory(prefix="bench-torch-") as folder:
        steps = contenders(values, libraries, pathlib.Path(folder))
        rows = measure(steps, values.rounds, values.warm_up)
    check_same_work(rows, _SAME[values.dtype])
    print(f"\n{_title(values)}\n\n{table(rows, values)}")


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    define = {"flag_values": values}
    flags.DEFINE_string("preset", "LongCLIP-B", "architecture", **define)
    flags.DEFINE_integer("batch", 8, "pairs per step", 2, **define)
    flags.DEFINE_integer("rounds", 7, "timed steps of each", 1, **define)
    flags.DEFINE_integer(
        "warm_up", 2, "steps of each before these; the first compiles", 1, **define
    )
    flags.DEFINE_enum("dtype", "float32", tuple(_SAME), "compute type", **define)
    flags.DEFINE_list(
        "beside", list(bench_torch_steps.LIBRARIES), "torch libraries to run", **define
    )
    flags.DEFINE_boolean("compile", True, "run each also by torch.compile", **define)
    flags.DEFINE_boolean("scan_layers", True, "of ours; see model.scan_layers", **define)
    flags.DEFINE_enum(
        "remat", "none", ("none", "dots", "full"), "of ours; see model.remat", **define
    )
    flags.DEFINE_integer("threads", 0, "of torch; 0 = one per core it may use", 0, **define)
    return values


def contenders(
    values: flags.FlagValues, libraries: Sequence[str], folder: pathlib.Path
) -> dict[str, Step]:
    """Returns the steps that are compared, ours first, by name."""
    import torch

    torch.set_num_threads(values.threads or len(os.sched_getaffinity(0)))
    model = pretrained.create_model(
        values.preset,
        scan_layers=values.scan_layers,
        dtype=values.dtype,
        remat=values.remat,
    )
    numbers = model.config
    sizes = example.Sizes.of(numbers)
    rows = example.batch(sizes, values.batch)
    params = jax.jit(model.init)(jax.random.key(0))
    steps = {OURS: _ours(values, model, params, rows)}
    for library in libraries:
        place = folder / library
        pretrained.save(place, model, params, layout=bench_torch_steps.LAYOUTS[library])
        theirs = bench_torch_steps.load(library, place, values.dtype, _LR, _DECAY)
        batch = bench_torch_steps.batch(theirs, rows, numbers.pixel_mean, numbers.pixel_std)
        for compiled in (False, True)[: 1 + values.compile]:
            name = f"{library}, {'compiled' if compiled else 'eager'}"
            steps[name] = bench_torch_steps.steps(theirs, batch, compiled)
    return steps


def _ours(values: flags.FlagValues, model: Any, params: types.Params, rows: types.Batch) -> Step:
    settings = config.defaults()
    settings.train.global_batch_size = values.batch
    settings.model.preset, settings.model.init = values.preset, "random"
    settings.loss.gamma = 0.0
    settings.optim.lr, settings.optim.weight_decay = _LR, _DECAY
    settings.optim.schedule = "constant"
    recipe = parts.recipe(config.from_config_dict(settings), model, 1000, values.batch)
    mesh = mesh_lib.create(config.Config().parallel)
    mesh_lib.check_batch(mesh, values.batch, 1)
    kept = {"state": state.create(recipe.start, recipe.optimizer, mesh, params=params)}
    batch = sharding.put_batch(mesh, rows)
    run = step.build(recipe, mesh)

    def take() -> bench_torch_steps.Told:
        began = time.perf_counter()
        kept["state"], output = jax.block_until_ready(run(kept["state"], batch))
        seconds = time.perf_counter() - began
        return bench_torch_steps.Told(float(output.terms["loss"]), float(output.grad_norm), seconds)

    return take


def measure(steps: dict[str, Step], rounds: int, warm_up: int) -> dict[str, Row]:
    """Returns what the steps told; each round begins with another of them.

    First steps come before all others: contenders that share a model have then the same weights,
    less one update of a rate that changes no digit of the loss.
    """
    told: dict[str, list] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(warm_up + rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            told[name].append(steps[name]())
        print(f"round {turn + 1 - warm_up} of {rounds}", file=sys.stderr, flush=True)
    return {name: Row(all_of[0], all_of[warm_up:]) for name, all_of in told.items()}


def check_same_work(rows: dict[str, Row], within: float) -> None:
    """Raises types.UserError if a contender's first loss or gradient norm is not ours."""
    ours = rows[OURS].first
    for name, row in rows.items():
        for what in ("loss", "grad_norm"):
            found, wanted = getattr(row.first, what), getattr(ours, what)
            if not abs(found - wanted) <= within * abs(wanted):
                raise types.UserError(
                    f"{name} does other work than ours: {what} {found:.6g}, ours {wanted:.6g}, "
                    f"which may differ by {within:g} of it"
                )


def _title(values: flags.FlagValues) -> str:
    import torch

    device = jax.devices()[0]
    versions = f"jax {jax.__version__}, torch {torch.__version__}"
    for library in values.beside:
        versions += f", {library} {sys.modules[library].__version__}"
    return (
        f"{values.preset}, batch {values.batch}, {values.dtype}, remat {values.remat}, "
        f"{values.rounds} rounds; "
        f"{jax.device_count()} x {device.device_kind}, {len(os.sched_getaffinity(0))} cores, torch "
        f"with {torch.get_num_threads()} threads\n{versions}"
    )


def table(rows: dict[str, Row], values: flags.FlagValues) -> str:
    """Returns one line per contender."""
    flops = bench_peaks.step_flops(presets.get(values.preset), values.batch)
    peak = bench_peaks.peak(jax.devices()[0].device_kind)
    peak = peak and peak * jax.device_count()
    lines = [
        f"{'':<24}{'loss':>10}{'grad norm':>11}{'median s':>10}{'best s':>9}{'x ours':>8}"
        f"{'x best':>8}{'pairs/s':>9}{'GFLOP/s':>9}{'MFU':>7}  forward + backward + update"
    ]
    ours = rows[OURS]
    for name, row in rows.items():
        lines.append(
            f"{name:<24}{row.first.loss:>10.6f}{row.first.grad_norm:>11.5f}{row.median:>10.3f}"
            f"{row.best:>9.3f}{row.median / ours.median:>8.3f}{row.best / ours.best:>8.3f}"
            f"{values.batch / row.median:>9.3g}{flops / row.median / 1e9:>9.0f}"
            + (f"{flops / row.median / peak:>7.1%}" if peak else f"{'-':>7}")
            + (f"  {' + '.join(f'{part:.3f}' for part in row.parts)}" if row.parts else "")
        )
    return "\n".join(lines)


if __name__ == "__main__":
    program.run("bench_torch", main)
