"""Runs of the controls whose numbers are made up, for their tests."""

import json

from hnclip_jax import pretrained
from hnclip_jax.training import folder
from tests import fake_runs
from tools import controls_variants

NAMES = list(controls_variants.VARIANTS)


def base(**changes):
    given = {
        "model__init": "random",
        "model__preset": "tiny",
        "data__train": "a.json",
        "eval__data": "b.json",
        "loss__gamma": 0.3,
        "train__steps": 10,
        "train__seed": 7,
        "train__global_batch_size": 16,
    }
    return fake_runs.settings(**given | changes)


def jobs(path, names=("gamma_0", "hn"), seeds=2, base_steps=0, **changes):
    return controls_variants.jobs(base(**changes), names, seeds, path, base_steps)


def trained(job, recall=(50.0, 40.0), ends=(), step=None, weights=True):
    """Leaves what a run leaves that has come to `step`; None = to its end."""
    step = job.settings.train.steps if step is None else step
    run = folder.RunFolder(job.path)
    run.claim(job.settings)
    run.eval.mkdir(exist_ok=True)
    lines = [{"step": n, **(ends[n - 1] if n <= len(ends) else {})} for n in range(1, step + 1)]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics = dict(zip(("t2i_r@1", "i2t_r@1"), recall, strict=True))
    fake_runs.result(run.eval_file(step), metrics, step=step)
    if weights:
        run.weights.mkdir(exist_ok=True)
        (run.weights / pretrained.FILE_NAME).touch()
