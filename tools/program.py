"""What tools have in common: one line for a mistake, a quiet end, files that are written."""

import os
import pathlib
import sys
from collections.abc import Callable

from hnclip_jax import types


def run(name: str, main: Callable[[list[str]], object]) -> None:
    """Calls `main` with the command line; ends the program with one line for a user's mistake."""
    try:
        main(sys.argv)
        sys.stdout.flush()
    except types.UserError as error:
        sys.exit(f"{name}: {error}")
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing must be flushed to it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write(path: pathlib.Path, text: str) -> None:
    """Writes a text file and the folders above it.

    Raises:
      types.UserError: if that is not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise types.UserError(f"cannot write {path}: {error.strerror}") from error
