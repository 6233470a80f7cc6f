"""Every method with the boost and without, on the drawn scenes, as a table.

    python -m tools.methods_table --out=runs/methods

A small encoder is trained by InfoNCE first; all methods go on from its weights, each on segments
and edge maps that the tools make of the same pictures. What is complete is not repeated, so the
command can be stopped and started again. It shows that methods train, not which is best: the
encoder is tiny, the runs are short, and one seed is one seed.
"""

import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
from typing import Any

from absl import flags

from configs import demo
from hnclip_jax import config, types
from hnclip_jax.commands import train
from hnclip_jax.data import scenes
from hnclip_jax.training import folder, summary

METHODS: dict[str, dict[str, Any]] = {
    "clip": {},
    "longclip": {},
    "finelip": {"global_weight": 1.0},
    "goal": {},
    "structxlip": {},
    "lora": {"name": "clip", "adapter": "lora"},
    "dora": {"name": "clip", "adapter": "dora"},
}
"""Row of the table -> fields of config.method."""

LISTS = {"goal": "segments.json", "structxlip": "structure.json"}
"""Which list a method trains on, where it is not the plain one."""

_PICTURES = 48  # pixels, what the preset tiny takes


def base(out: pathlib.Path, steps: int) -> folder.RunFolder:
    """Trains the encoder that all methods begin with, on scenes in `out`; returns its run."""
    run = folder.RunFolder(out / "base")
    made = _settings(out, steps)
    train.train(dataclasses.replace(made, loss=dataclasses.replace(made.loss, gamma=0.0)), run.path)
    return run


def make_lists(out: pathlib.Path, weights: pathlib.Path) -> None:
    """Makes the lists with segments and with edge maps, if they are not there."""
    folder_of = out / "scenes"
    for tool, words in (
        ("make_segments", ["--data=train.json", f"--weights={weights}", "--out=segments.json"]),
        ("make_edges", ["--data=segments.json", "--edges=edges", "--out=structure.json"]),
    ):
        if (folder_of / words[-1].removeprefix("--out=")).exists():
            continue
        script = pathlib.Path(__file__).parent / f"{tool}.py"
        subprocess.run([sys.executable, script.resolve(), *words], cwd=folder_of, check=True)


def run_method(
    out: pathlib.Path, name: str, gamma: float, steps: int, weights: pathlib.Path, lr: float
) -> folder.RunFolder:
    """Trains one method from the base; returns its run."""
    run = folder.RunFolder(out / f"{name}_{gamma:g}")
    made = _settings(out, steps)
    method = {"name": name, **METHODS[name]}
    adapts = "adapter" in method
    train.train(
        dataclasses.replace(
            made,
            data=dataclasses.replace(
                made.data, train=str(out / "scenes" / LISTS.get(name, "train.json"))
            ),
            model=dataclasses.replace(made.model, init="weights", weights=str(weights), preset=""),
            method=dataclasses.replace(made.method, **method),
            loss=dataclasses.replace(made.loss, gamma=gamma),
            optim=dataclasses.replace(
                made.optim, lr=10 * lr if adapts else lr, warmup_steps=0, logit_scale_rate=1.0
            ),
            log=dataclasses.replace(made.log, every_steps=10),
        ),
        run.path,
    )
    return run


def _settings(out: pathlib.Path, steps: int) -> config.Config:
    """Returns the demonstration's settings, on the scenes of `out`, without its schedule."""
    made = config.from_config_dict(demo.get_config())
    lists = [str(out / "scenes" / f"{name}.json") for name in ("train", "test")]
    return dataclasses.replace(
        made,
        data=dataclasses.replace(made.data, train=lists[0]),
        eval=dataclasses.replace(made.eval, data=lists[1], every_steps=0),
        loss=dataclasses.replace(made.loss, gamma_start_step=0),
        train=dataclasses.replace(made.train, steps=steps, save_every_steps=0),
    )


def row(run: folder.RunFolder) -> str:
    """Returns a run's cells: loss at the start and at the end, the terms at the end, recall."""
    lines = summary.read(run.metrics)
    trained = [line for line in lines if "train/loss" in line]
    few = max(1, len(trained) // 4)
    first, last = (
        statistics.mean(line["train/loss"] for line in part)
        for part in (trained[:few], trained[-few:])
    )
    ends = json.loads(sorted(run.eval.glob("*.json"))[-1].read_text())["metrics"]
    return (
        f"{first:.3f} | {last:.3f} | {trained[-1]['train/info_nce']:.3f} | "
        f"{ends['i2t_r@1']:.1f} | {ends['t2i_r@1']:.1f}"
    )


def main(argv: list[str]) -> int:
    """Runs what is missing and prints the table."""
    values = flags.FlagValues()
    flags.DEFINE_string("out", "runs/methods", "folder of the runs", flag_values=values)
    flags.DEFINE_multi_enum("methods", list(METHODS), list(METHODS), "which", flag_values=values)
    flags.DEFINE_list("gammas", ["0", "0.5"], "strengths of the boost", flag_values=values)
    flags.DEFINE_float(
        "lr", 1e-4, "rate of the methods; adapters get ten times it", flag_values=values
    )
    for name, default, what in (
        ("steps", 200, "steps of each method"),
        ("base_steps", 800, "steps of InfoNCE before them"),
        ("pictures", 4000, "training pictures to draw"),
    ):
        flags.DEFINE_integer(name, default, what, lower_bound=1, flag_values=values)
    values(argv)
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(argv[:1])
    out = pathlib.Path(values.out).absolute()
    scenes.write(out / "scenes", train=values.pictures, size=_PICTURES)
    began = base(out, values.base_steps)
    make_lists(out, began.weights)
    rows = [f"| base | 0 | {values.base_steps} | {row(began)} |"]
    for name in values.methods:
        for gamma in map(float, values.gammas):
            run = run_method(out, name, gamma, values.steps, began.weights, values.lr)
            rows.append(f"| {name} | {gamma:g} | {values.steps} | {row(run)} |")
    print("| method | gamma | steps | loss, first | last | InfoNCE | I2T R@1 | T2I R@1 |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except types.UserError as error:
        sys.exit(f"methods_table: {error}")
