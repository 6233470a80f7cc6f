"""`hnclip inspect`: what a file of weights or a run is."""

import json
import pathlib
from typing import Any

from absl import flags

from hnclip_jax import pretrained, types
from hnclip_jax.commands import reading
from hnclip_jax.training import folder

EXAMPLE = "hnclip inspect longclip-L.pt"


def define_flags(values: flags.FlagValues, argv: list[str]) -> None:
    """Adds the command's flags to `values`."""
    del argv
    reading.define_flags(values)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Prints what is known about the file, hash included; for a run also its step and config."""
    if len(arguments) != 1:
        raise types.UserError(f"needs one PATH; for example: {EXAMPLE}")
    path = pathlib.Path(arguments[0]).expanduser()
    run_folder = folder.RunFolder(path)
    if settings := _settings(run_folder):
        print(_run(run_folder, settings))
        if not run_folder.weights.exists():
            return
    print(pretrained.read(path, reading.group(values)).account())


def _settings(run_folder: folder.RunFolder) -> dict[str, dict[str, Any]]:
    """Returns the settings of a run; {} for the config.json of another program, or none."""
    try:
        settings = json.loads(run_folder.config.read_text())
    except (OSError, ValueError):
        return {}
    is_run = isinstance(settings, dict) and {"train", "optim", "parallel"} <= settings.keys()
    return settings if is_run else {}


def _run(run_folder: folder.RunFolder, settings: dict[str, dict[str, Any]]) -> str:
    """Returns where a run stands, what it began with, and its settings."""
    saved = sorted(
        int(path.name) for path in run_folder.checkpoints.glob("[0-9]*") if path.name.isdigit()
    )
    lines = [f"run          {run_folder.path}"]
    lines.append(f"checkpoints  {', '.join(map(str, saved)) or 'none'} (steps)")
    if run_folder.metrics.is_file() and (logged := run_folder.metrics.read_text().splitlines()):
        lines.append(f"last logged  step {json.loads(logged[-1])['step']}")
    if not run_folder.weights.exists():
        lines.append("weights      none yet: written at the end, or when the best is found")
    for group, fields in settings.items():
        shown = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        lines.append(f"{group:<12} {shown}")
    return "\n".join(lines) + "\n"
