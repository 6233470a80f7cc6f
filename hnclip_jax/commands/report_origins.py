"""What `hnclip report` tells of where its numbers come from, and how to make them again."""

import datetime
import pathlib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from absl import flags

from hnclip_jax import pretrained
from hnclip_jax.analysis.report import provenance
from hnclip_jax.commands import run_folders
from hnclip_jax.data import lists
from hnclip_jax.evaluation import protocol
from hnclip_jax.training import folder
from hnclip_jax.weights import files

_NONE = "(not recorded)"

_CONFIG = """\
import json
import pathlib
from hnclip_jax import config

def get_config():
    c = config.defaults()
    c.update(json.loads(pathlib.Path({path!r}).read_text()))
    return c
"""
"""A config file that has the settings of a run."""


def page(
    values: flags.FlagValues, arguments: Sequence[str], pictures: lists.PictureList | None
) -> provenance.Origin:
    """Returns what is known of the page itself.

    Args:
      values, arguments: the command line.
      pictures: the list of geometry and galleries; None = they were left out.
    """
    given = [values[name].serialize() for name in values if values[name].present]
    facts = [
        ("written", now()),
        ("versions", _versions(protocol.versions())),
    ]
    if pictures:
        facts += [
            ("devices", f"{jax.device_count()} x {jax.devices()[0].device_kind}"),
            ("list of geometry and galleries", str(pictures.path)),
            ("list, SHA-256", pictures.sha256),
        ]
    command = shlex.join(["hnclip", "report", *arguments, *given])
    return provenance.Origin(
        "This page", tuple(facts), (("To write it again, from the same folder:", command),)
    )


def now() -> str:
    """Returns the present moment as text."""
    return _date(datetime.datetime.now().timestamp())


def run(one: run_folders.Run, name: str) -> provenance.Origin:
    """Returns what is known of a run; weights are read once, for their hash."""
    facts = [("folder", str(one.path)), *_files(one), *_weights(one), *_results(one)]
    return provenance.Origin(name, tuple(facts), tuple(_commands(one)))


def _files(run: run_folders.Run) -> Iterator[tuple[str, str]]:
    where = folder.RunFolder(run.path)
    yield "settings written", _written(where.config)
    yield "last line of metrics.jsonl", f"step {run.last_step:,}, {_written(where.metrics)}"


def _weights(run: run_folders.Run) -> Iterator[tuple[str, str]]:
    file = folder.RunFolder(run.path).weights / pretrained.FILE_NAME
    if not run.has_weights:
        yield "weights", "none yet"
        return
    note = files.read(file).note
    yield "weights written", _written(file)
    yield "weights, step", str(note.get("step", _NONE))
    yield "weights, SHA-256", files.sha256(file)
    for key, value in dict(note.get("start", {})).items():
        yield f"began with: {key.replace('_', ' ')}", str(value)
    yield "training list", str(note.get("list", _NONE))
    yield "training list, SHA-256", str(note.get("list_sha256", _NONE))
    yield "training pairs", str(note.get("pairs", _NONE))


def _results(run: run_folders.Run) -> Iterator[tuple[str, str]]:
    """Yields what the latest evaluation on each list says of it."""
    latest: dict[str, dict[str, Any]] = {}
    for _, measured in sorted(run.results, key=lambda found: found[0] or 0):
        held = measured.protocol
        latest[str(held.get("list") or held.get("data") or _NONE)] = held
    for path, held in latest.items():
        yield "test list", path
        yield "test list, SHA-256", str(held.get("list_sha256", _NONE))
        yield "evaluated on", str(held.get("devices", _NONE))
        yield "evaluated with", _versions(held.get("versions", {}))


def _commands(run: run_folders.Run) -> Iterator[tuple[str, str]]:
    config = folder.RunFolder(run.path).config
    yield (
        "To train again, a config file with its settings, repeat.py:",
        _CONFIG.format(path=str(config)),
    )
    again = str(run.path.with_name(f"{run.path.name}_again"))
    words = ["hnclip", "train", "--config=repeat.py", f"--workdir={again}"]
    yield "and with that:", shlex.join(words)
    if run.has_weights and run.settings.eval.data:
        test = run.settings.eval
        given = {
            "data": test.data,
            "root": test.root,
            "image_root": test.image_root,
            "split": test.split,
        }
        said = [f"--{name}={value}" for name, value in given.items() if value]
        words = ["hnclip", "eval", f"--weights={run.path}", *said]
        yield "To evaluate its weights again:", shlex.join(words)


def _versions(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items()) or _NONE


def _written(path: pathlib.Path) -> str:
    return _date(path.stat().st_mtime) if path.exists() else "not there"


def _date(seconds: float) -> str:
    """Returns a moment as text, in universal time: it means the same wherever it is read."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M UTC")
