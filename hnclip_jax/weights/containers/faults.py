"""One line about a file that cannot be read, whatever the names in it are made of."""

import pathlib

from hnclip_jax import types

_LONGEST = 120


class Refused(Exception):
    """Why a file is not read, and what to do; the text goes on where the file's name ends."""

    def __init__(
        self, found: str, advice: str = "torch writes no such file, so do not trust this one"
    ) -> None:
        """Keeps what was found (a verb first) and what to do about it."""
        super().__init__(f"{found}; {advice}")


def damaged(path: pathlib.Path, why: object) -> types.UserError:
    """Returns the error for a file that ends too early or contradicts itself."""
    return types.UserError(
        f"{path} is truncated or damaged ({shown(why)}); download or copy it again"
    )


def shown(text: object) -> str:
    """Returns text from a file so that it fits into one line and moves no cursor."""
    line = " ".join(str(text).split())
    line = "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in line[:_LONGEST])
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."
