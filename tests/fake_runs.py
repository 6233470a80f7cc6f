"""Run folders whose numbers are made up, for the tests of what looks at runs."""

import dataclasses
import json

import numpy as np

from hnclip_jax import config, pretrained
from hnclip_jax.analysis.history import History

PROTOCOL = {
    "benchmark": None,
    "list": "scenes/test.json",
    "list_sha256": "a" * 64,
    "pictures": 1200,
    "captions": 1200,
    "ties": "expected rank among equal scores",
    "unit": "percent",
}


def settings(**changes):
    """Returns a Config with changes named group__field."""
    values = config.defaults()
    for name, value in changes.items():
        group, field = name.split("__")
        values[group][field] = value
    return config.from_config_dict(values)


def history(name, lines=(), per_epoch=0, label="", **changes):
    """Returns a History with changed settings."""
    return History(name, settings(**changes), tuple(lines), per_epoch, label)


def evaluations(recall, metric="r@1"):
    """Returns lines of metrics.jsonl from {step: (text to image, image to text)}."""
    return [
        {"step": step, f"eval/t2i_{metric}": one, f"eval/i2t_{metric}": other}
        for step, (one, other) in recall.items()
    ]


def gradients(count, every=5, seed=0, zeros=()):
    """Returns lines with gradients; at the measurements `zeros` that of InfoNCE is zero."""
    drawn = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        plain, trained = (float(value) for value in drawn.lognormal(size=2))
        cosine, solved = float(drawn.uniform(-1, 1)), float(drawn.uniform())
        is_zero = number in zeros
        values = {
            "norm_info_nce": 0.0 if is_zero else plain,
            "norm_global": trained,
            "ratio": "inf" if is_zero else trained / plain,
            "cosine": "nan" if is_zero else cosine,
            "solved": solved,
        }
        named = {f"gradients/{name}": value for name, value in values.items()}
        lines.append({"step": every * (number + 1), **named})
    return lines


def write(path, lines=(), results=(), weights=True, protocol=None, **changes):
    """Writes a run folder with a result file per step of `results`; returns its path."""
    (path / "eval").mkdir(parents=True)
    changes = {"train__epochs": 2, "eval__every_epochs": 1, **changes}
    (path / "config.json").write_text(json.dumps(dataclasses.asdict(settings(**changes))))
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if weights:
        (path / "weights").mkdir()
        (path / "weights" / pretrained.FILE_NAME).touch()
    for step in results:
        result(path / "eval" / f"step_{step:08d}.json", step=step, **(protocol or {}))
    return path


def result(path, metrics=None, **protocol):
    """Writes a result file; returns its path."""
    content = {
        "metrics": metrics or {"t2i_r@1": 50.0, "i2t_r@1": 40.0},
        "protocol": {**PROTOCOL, **protocol},
    }
    path.write_text(json.dumps(content))
    return path
