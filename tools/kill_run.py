"""Kills a training run again and again at random moments; not a bit of what comes out may differ.

    python -m tools.kill_run --kills=50 --seed=0 --processes=1,2 --out=runs/killed

For each number of processes a run goes through unbroken, and once more to see that two such runs
are alike and how long things take. Then runs are killed by SIGKILL, up to four times each, and
started again by the same command until they are complete. Moments come from --seed and are spread
over start-up, steps, saves and the end; of several processes one or all are killed, and those that
are left have to end by themselves. After every kill the last complete checkpoint must be that of
the unbroken run, and the next start must go on from it; at the end so must be weights, checkpoint,
results and every line of metrics.jsonl, times apart. Exit code 1 if anything is not so.

Processes have one CPU device each. Kills are shared out evenly over the numbers of processes, or
as in --kills=30,20.
"""

import pathlib
import shutil
import statistics
import sys
from collections.abc import Mapping

import numpy as np
from absl import flags

from hnclip_jax import types
from tools import kill_moments, kill_trial, program

_KILLS_PER_RUN = 4
"""At most; at least one."""

_ENOUGH = 20
"""So many wrong things end it."""


def table(found: Mapping[int, kill_trial.Tally]) -> str:
    """Returns the table: a row for each number of processes."""
    titles = ("processes", "kills", *kill_moments.PLACES, "runs", "missed", "steps lost", "wrong")
    rows = [titles, ["---"] * len(titles)]
    for count, tally in found.items():
        lost = f"{statistics.mean(tally.lost):.1f} (max {max(tally.lost)})" if tally.lost else "-"
        places = [tally.places[place] for place in kill_moments.PLACES]
        rows.append([count, tally.kills, *places, tally.runs, tally.missed, lost, len(tally.wrong)])
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    lines += [_left(count, tally) for count, tally in found.items() if tally.left_s]
    return "\n".join(lines)


def _left(count: int, tally: kill_trial.Tally) -> str:
    codes = ", ".join(f"{code}: {times}" for code, times in tally.left_codes.items())
    seconds = f"{statistics.median(tally.left_s):.1f} s (max {max(tally.left_s):.1f})"
    return f"\nof {count} processes, those left ended after {seconds}; exit codes {codes}"


def shares(kills: list[int], counts: list[int]) -> list[int]:
    """Returns how many kills each number of processes gets.

    Raises:
      types.UserError: if neither one number is given nor one for each.
    """
    if len(kills) == len(counts):
        return kills
    if len(kills) > 1:
        raise types.UserError(
            f"--kills has {len(kills)} numbers, --processes {len(counts)}; give one, or as many"
        )
    return [len(range(n, kills[0], len(counts))) for n in range(len(counts))]


def main(argv: list[str]) -> int:
    """Kills, prints the table, and returns the exit code."""
    values = flags.FlagValues()
    small = str(pathlib.Path(__file__).with_name("kill_config.py"))
    flags.DEFINE_list("kills", ["50"], "how many; or how many each", flag_values=values)
    flags.DEFINE_integer("seed", 0, "of the moments", flag_values=values)
    flags.DEFINE_list("processes", ["1", "2"], "of a run", flag_values=values)
    flags.DEFINE_string("config", small, "config file of the run", flag_values=values)
    flags.DEFINE_string("out", "runs/killed", "folder, removed before", flag_values=values)
    flags.DEFINE_float(
        "limit_s", 120, "seconds in which processes that are left must end", flag_values=values
    )
    values(argv)
    out = pathlib.Path(values.out).absolute()
    shutil.rmtree(out, ignore_errors=True)
    words = ["train", f"--config={values.config}", f"--config.data.scenes_dir={out / 'scenes'}"]
    counts = [int(count) for count in values.processes]
    rng, found = np.random.default_rng(values.seed), {}
    for count, kills in zip(counts, shares([int(n) for n in values.kills], counts), strict=True):
        print(f"{count} process(es), {kills} kills", flush=True)
        trial = kill_trial.Trial(words, count, out / f"processes_{count}", values.limit_s)
        found[count] = trial.tally
        while (left := kills - trial.tally.kills) > 0 and len(trial.tally.wrong) < _ENOUGH:
            trial.run(min(left, int(rng.integers(1, _KILLS_PER_RUN + 1))), rng)
    print(f"\n{table(found)}")
    wrong = [text for tally in found.values() for text in tally.wrong]
    print("\n".join(["", *wrong]) if wrong else f"\nnothing is wrong; seed {values.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    program.run("kill_run", lambda argv: sys.exit(main(argv)))
