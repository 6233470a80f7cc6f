"""What the boost's gain is due to: controls over seeds, with paired differences.

    python -m tools.controls --config=configs/demo.py --base_steps=800 --seeds=3 \
        --config.train.steps=400 --out=controls/scenes

Every variant of a seed starts from the same weights and sees the same data in the same order, but
for grouped batches. Runs that are complete are not repeated, and one that broke off goes on, so the
command can be stopped and started again. OUT gets controls.md, .png, .csv and .json beside the
folders of the runs.
"""

import pathlib
import signal
from typing import Any

from absl import flags
from ml_collections import config_flags

from hnclip_jax import config, types
from hnclip_jax.analysis import page
from hnclip_jax.training import logging
from tools import (
    controls_plot,
    controls_results,
    controls_runs,
    controls_table,
    controls_variants,
    program,
)


def main(argv: list[str]) -> None:
    """Runs what is missing, prints the tables and writes all files.

    Raises:
      types.UserError: for a mistake; if it was stopped; and at the end, if runs failed.
    """
    values = _flags(argv)
    page.check()
    out = pathlib.Path(values.out).expanduser()
    jobs = controls_variants.jobs(
        _settings(values), values.variants, values.seeds, out, values.base_steps
    )
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _stop)
    try:
        failed = controls_runs.work(jobs)
    except KeyboardInterrupt:
        raise types.UserError("stopped; the same command goes on from there") from None
    results = controls_results.read([job for job in jobs if controls_runs.complete(job)])
    if controls_results.references(results):
        _write(out, results)
    if failed:
        told = [f"{name} ({problem})" for name, problem in failed.items()]
        raise types.UserError(
            f"{len(failed)} of {len(jobs)} runs are not complete: {types.at_most_ten(told, '; ')}; "
            "the same command tries them again"
        )


def _write(out: pathlib.Path, results: controls_results.Results) -> None:
    text = controls_table.markdown(results)
    print(text)
    program.write(out / "controls.md", text)
    rows = controls_table.rows(results)
    numbers = {
        "rows": rows,
        "runs": {
            name: {str(seed): {**run.recall, **run.ends} for seed, run in runs.items()}
            for name, runs in results.items()
        },
    }
    paths = page.write(out, "controls", controls_plot.draw(results), numbers, rows)
    logging.say("wrote " + ", ".join(map(str, [out / "controls.md", *paths])))


def _settings(values: flags.FlagValues) -> config.Config:
    if values.config is None:
        raise types.UserError("needs --config, say configs/demo.py, and --out")
    try:
        return config.from_config_dict(values.config)
    except OSError as error:
        path = config_flags.get_config_filename(values["config"])
        raise types.UserError(f"there is no config file {path}") from error


def _flags(argv: list[str]) -> flags.FlagValues:
    values = flags.FlagValues()
    config_flags.DEFINE_config_file(
        "config",
        None,
        "settings that all runs have in common; --config.group.field=value sets a value",
        flag_values=values,
        sys_argv=argv,
        lock_config=True,
    )
    names = list(controls_variants.VARIANTS)
    flags.DEFINE_string("out", "controls", "folder of the runs and the results", flag_values=values)
    flags.DEFINE_integer("seeds", 3, "seeds of each variant", lower_bound=1, flag_values=values)
    flags.DEFINE_list("variants", names, "which: " + ", ".join(names), flag_values=values)
    flags.DEFINE_integer(
        "base_steps",
        0,
        "steps of plain InfoNCE, per seed, from whose weights all variants start; 0 = they start "
        "as the config says",
        lower_bound=0,
        flag_values=values,
    )
    try:
        left = values(argv)[1:]
    except flags.Error as error:
        raise types.UserError(str(error).replace("\n", " ")) from error
    if left:
        raise types.UserError(f"does not understand {left[0]!r}; flags begin with --")
    return values


def _stop(number: int, frame: Any) -> None:
    del number, frame
    raise KeyboardInterrupt


if __name__ == "__main__":
    program.run("controls", main)
