"""Which lines of a list are no UTF-8: all of them, where readers stop at the first."""

import glob
import os
from collections.abc import Iterator
from typing import NamedTuple

_PIECE = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class Fault(NamedTuple):
    """A line with a byte that is no UTF-8.

    path: of the file.
    line: from 1.
    byte: position of the first such byte in the file, from 0.
    value: of that byte.
    """

    path: str
    line: int
    byte: int
    value: int

    def __str__(self) -> str:
        """Returns where it is."""
        return f"{self.path}, line {self.line}, byte {self.byte} of the file (0x{self.value:02x})"


def faults(path: str) -> list[Fault]:
    """Returns the first fault of every line of a list; [] where it is no text.

    Args:
      path: of a file, or of a folder, whose .txt files are looked at, also one folder further down.
    """
    if os.path.isfile(path):
        return list(_of_file(path))
    names = sorted([*glob.glob("*.txt", root_dir=path), *glob.glob("*/*.txt", root_dir=path)])
    return [fault for name in names for fault in _of_file(os.path.join(path, name))]


def _of_file(path: str) -> Iterator[Fault]:
    with open(path, "rb") as file:
        begins = file.read(4096)
        # Archives and the like hold zeros early on; so does UTF-16, which is a text, but the wrong.
        if b"\0" in begins and not begins.startswith(_UTF_16):
            return
        file.seek(0)
        line = byte = 0
        # A line may be a whole list: it is then read in pieces, and several faults may be found.
        while piece := file.readline(_PIECE):
            while piece[-1] >= 0x80 and (more := file.read(1)):
                piece += more
            try:
                piece.decode()
            except UnicodeDecodeError as error:
                yield Fault(path, line + 1, byte + error.start, piece[error.start])
            line += piece.endswith(b"\n")
            byte += len(piece)
