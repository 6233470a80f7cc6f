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
    "InfoNCE": {"gamma": 0.0},
    "HN-CLIP, gamma 0.5": {"gamma": 0.5},
    "constant margin of the same mean": {"gamma": 0.5, "kind": "constant"},
}
"""Name in the table -> the fields of config.loss in which the arm differs."""

_KEYS = ("eval/i2t_r@1", "eval/t2i_r@1")


def settings(seed: int, loss: dict) -> config.Config:
    """Returns the demonstration's settings with another seed and loss."""
    made = config.from_config_dict(demo.get_config())
    return dataclasses.replace(
        made,
        loss=dataclasses.replace(made.loss, **loss),
        train=dataclasses.replace(made.train, seed=seed),
    )


def run_arm(out: pathlib.Path, seed: int, name: str) -> pathlib.Path:
    """Runs one arm of one seed from the end of the shared first phase; returns its metrics file."""
    slug = name.split(",")[0].split()[0].lower().replace("-", "_")
    arm = folder.RunFolder(out / f"seed{seed}_{slug}")
    wanted = settings(seed, ARMS[name])
    if not arm.path.exists():
        shared = first_phase(out, seed)
        shutil.copytree(shared.path, arm.path, ignore=shutil.ignore_patterns("weights"))
        arm.claim(wanted)
    train.train(wanted, str(arm.path))
    return arm.metrics


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
    values(argv)
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(argv[:1])
    out, found = pathlib.Path(values.out), {}
    for seed in map(int, values.seeds):
        shared = summary.phases(summary.read(first_phase(out, seed).metrics))
        found.setdefault("after the first phase", []).append(shared)
        for name in ARMS:
            metrics = run_arm(out, seed, name)
            found.setdefault(name, []).append(summary.phases(summary.read(metrics)))
    print(table(found))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except types.UserError as error:
        sys.exit(f"demo_table: {error}")
