"""Repeats the README's table: the demonstration with three losses, over several seeds.

    python -m tools.demo_table --out=runs/table --seeds=0,1,2

The first phase is plain InfoNCE for all, so it is run once per seed and the three arms go on from
its last checkpoint, optimiser state and data order included. Runs that are complete are not
repeated, so the command can be stopped and started again.
"""

import dataclasses
import pathlib
import shutil
import statistics
import sys

from absl import flags

from configs import demo
from hnclip_jax import config, types
from hnclip_jax.commands import train
from hnclip_jax.training import folder, summary

ARMS = {
    "infonce": ("InfoNCE", {"gamma": 0.0}),
    "hn_clip": ("HN-CLIP, gamma 0.5", {"gamma": 0.5}),
    "same_mean": ("constant margin, gamma x mean of G", {"kind": "constant"}),
    "fixed": ("constant margin of 0.35", {"kind": "constant", "constant_margin": 0.35}),
}
"""Arm -> its name in the table, and the fields of config.loss in which it differs."""

_KEYS = ("eval/i2t_r@1", "eval/t2i_r@1")


def settings(seed: int, loss: dict) -> config.Config:
    """Returns the demonstration's settings with another seed and loss."""
    made = config.from_config_dict(demo.get_config())
    return dataclasses.replace(
        made,
        loss=dataclasses.replace(made.loss, **loss),
        train=dataclasses.replace(made.train, seed=seed),
    )


def run_arm(out: pathlib.Path, seed: int, arm: str) -> pathlib.Path:
    """Runs one arm of one seed from the end of the shared first phase; returns its metrics file."""
    wanted = settings(seed, ARMS[arm][1])
    run = folder.RunFolder(out / f"seed{seed}_{arm}")
    if not run.path.exists():
        # Copied under another name first, so that a copy that breaks off is not taken for a run.
        scratch = folder.RunFolder(out / f"seed{seed}_{arm}.part")
        shutil.rmtree(scratch.path, ignore_errors=True)
        shutil.copytree(first_phase(out, seed).path, scratch.path)
        scratch.claim(wanted)
        scratch.path.rename(run.path)
    train.train(wanted, str(run.path))
    return run.metrics


def first_phase(out: pathlib.Path, seed: int) -> folder.RunFolder:
    """Returns the run folder of the plain first phase, stopped where gamma would begin to act."""
    shared = folder.RunFolder(out / f"seed{seed}_first_phase")
    wanted = settings(seed, {"gamma": 0.0})
    train.train(wanted, str(shared.path), stop_after=wanted.loss.gamma_start_step)
    return shared


def table(found: dict[str, list[list[dict]]]) -> str:
    """Returns the table: per arm the mean and the range over seeds of R@1 both ways."""
    lines = ["| | I2T R@1 | T2I R@1 | solved by InfoNCE | s |", "|---|---|---|---|---|"]
    for name, runs in found.items():
        ends = [phases[-1] for phases in runs]
        cells = [_spread([end[key] for end in ends]) for key in _KEYS]
        solved = statistics.mean(end["train/solved_plain"] for end in ends)
        scale = statistics.mean(end["train/scale"] for end in ends)
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {solved:.0%} | {scale:.0f} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main(argv: list[str]) -> int:
    """Runs all arms of all seeds and prints the table."""
    values = flags.FlagValues()
    flags.DEFINE_string("out", "runs/table", "folder of the runs", flag_values=values)
    flags.DEFINE_list("seeds", ["0", "1", "2"], "seeds of weights and order", flag_values=values)
    flags.DEFINE_multi_enum("arms", list(ARMS), list(ARMS), "which losses", flag_values=values)
    values(argv)
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(argv[:1])
    out, seeds = pathlib.Path(values.out), [int(seed) for seed in values.seeds]
    found = {"after the first phase": [first_phase(out, seed).metrics for seed in seeds]}
    for arm in values.arms:
        found[ARMS[arm][0]] = [run_arm(out, seed, arm) for seed in seeds]
    print(
        table(
            {
                name: [summary.phases(summary.read(f)) for f in files]
                for name, files in found.items()
            }
        )
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except types.UserError as error:
        sys.exit(f"demo_table: {error}")
