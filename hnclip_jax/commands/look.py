"""`hnclip look <action>`: pictures of what training does, with the numbers in them beside."""

import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from hnclip_jax import types
from hnclip_jax.analysis import page
from hnclip_jax.commands import actions
from hnclip_jax.training import logging

ACTIONS = {
    "geometry": "how alike the captions of lists are, and what the boost would be there",
    "gradients": "the gradients of both losses over a run that logged them",
    "runs": "recall over epochs and over shares of the data, by method, with the spread of seeds",
    "duplicates": "captions with those that the text encoder can hardly tell from them",
    "retrieval": "queries with what one or two models find",
}
"""Action -> what it does; see commands/actions.py."""

EXAMPLE = "\n  ".join(
    (
        "hnclip look geometry --weights=runs/demo --data=data/scenes/train.json",
        "hnclip look gradients runs/plain runs/hn",
        "hnclip look runs runs/plain_* runs/hn_*",
        "hnclip look duplicates --weights=runs/demo --data=data/scenes/test.json",
        "hnclip look retrieval runs/plain runs/hn --data=data/scenes/test.json",
        "hnclip look geometry --help     tells the flags of an action",
    )
)

_ACTIONS = actions.Actions("look", ACTIONS)
define_flags = _ACTIONS.define_flags


def describe(argv: list[str]) -> tuple[str, str]:
    """Returns what the action that is named does, and an example; of all actions if none is."""
    return _ACTIONS.describe(argv, EXAMPLE)


def run(values: flags.FlagValues, arguments: list[str]) -> None:
    """Does what the action says, with the words behind it; all of them draw."""
    page.check()
    _ACTIONS.run(values, arguments)


def define_out(values: flags.FlagValues, name: str) -> None:
    """Adds the flags that say where the files go, for the actions."""
    flags.DEFINE_string(
        "out",
        "figures",
        "folder for the picture (PNG) and its numbers (JSON, CSV), made if need be",
        flag_values=values,
    )
    flags.DEFINE_string(
        "name", name, "of these files; older ones of that name are replaced", flag_values=values
    )


def check_out(values: flags.FlagValues) -> None:
    """Checks that files can be written where the flags say, before anything is computed for them.

    Raises:
      types.UserError: if --name is no name of a file, or nothing can be written to --out.
    """
    if not values.name or "/" in values.name or values.name.startswith("."):
        raise types.UserError(
            f"--name={values.name} is no name of a file; give a word, and the folder by --out"
        )
    folder = pathlib.Path(values.out).expanduser().absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise types.UserError(
            f"cannot write to {folder}: {error.strerror}; choose another --out"
        ) from error


def write(
    values: flags.FlagValues,
    drawn: Any,
    numbers: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    *,
    photos: bool = False,
) -> None:
    """Writes the picture and its numbers where --out and --name say, and says so."""
    paths = page.write(values.out, values.name, drawn, numbers, table, photos=photos)
    logging.say(f"wrote {', '.join(map(str, paths))}")
