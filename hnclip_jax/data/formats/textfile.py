"""The text of a file, piece by piece: strict UTF-8, hashed while it is read."""

import codecs
import difflib
import hashlib
import os
from collections.abc import Callable, Iterator

from hnclip_jax import types

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""

_PIECE = 1 << 20
_LINE = 100_000
"""Characters: whatever a first line holds, more of it tells no more about the format."""


class TextFile:
    """A file as text, to be read once; a byte-order mark at its beginning is left out."""

    def __init__(self, path: str, progress: Progress | None = None) -> None:
        """Opens the file.

        Raises:
          types.UserError: if it cannot be opened.
        """
        try:
            self._file = open(path, "rb")  # noqa: SIM115
            self._size = os.path.getsize(path)
        except OSError as error:
            raise unreadable(path, error) from error
        self._path, self._progress = path, progress
        self._hash = hashlib.sha256()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._bytes = self._newlines = 0
        self._kept = ""
        self._begun = False

    def __enter__(self) -> "TextFile":
        """Returns itself."""
        return self

    def __exit__(self, *_) -> None:
        """Closes the file."""
        self._file.close()

    def piece(self, size: int = _PIECE) -> str:
        """Returns the text of about the next `size` bytes; "" at the end.

        Raises:
          types.UserError: if a byte is no UTF-8: which line, which byte.
        """
        if self._kept:
            kept, self._kept = self._kept, ""
            return kept
        while True:
            try:
                data = self._file.read(size)
            except OSError as error:
                raise unreadable(self._path, error) from error
            text = self._decoded(data)
            if text and not self._begun:
                self._begun = True
                text = text.removeprefix("\ufeff")
            if text or not data:
                return text

    def beginning(self) -> str:
        """Returns the first line that is not blank, or its beginning, and some of what follows.

        It will be read once more, blanks before it too, so that line numbers are those of the file.
        """
        text = ""
        while "\n" not in text.lstrip() and len(text.lstrip()) < _LINE:
            if not (more := self.piece()):
                break
            text += more
        self._kept = text
        return text.lstrip()

    def lines(self) -> Iterator[str]:
        """Yields the rest, line by line with its end.

        Only a newline ends a line: texts may hold the other characters that `splitlines` cuts at.
        """
        begun: list[str] = []
        while text := self.piece():
            *whole, rest = text.split("\n")
            for line in whole:
                yield "".join([*begun, line, "\n"])
                begun = []
            begun.append(rest)
        if last := "".join(begun):
            yield last

    def sha256(self) -> str:
        """Returns the hash of the whole file (hexadecimal); reads what has not been read yet."""
        while self.piece():
            pass
        return self._hash.hexdigest()

    def _decoded(self, data: bytes) -> str:
        before = self._bytes - len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._newlines + error.object.count(b"\n", 0, error.start) + 1
            raise types.UserError(
                f"{self._path}: line {line}, byte {before + error.start} of the file "
                f"(0x{error.object[error.start]:02x}), is not UTF-8; save the list as UTF-8, for "
                "example with iconv -f WINDOWS-1252 -t UTF-8"
            ) from None
        self._hash.update(data)
        self._bytes += len(data)
        self._newlines += data.count(b"\n")
        if self._progress:
            self._progress(self._bytes, self._size)
        return text


def unreadable(path: str, error: OSError) -> types.UserError:
    """Returns the error for a list that cannot be read; it names a file of a similar name."""
    folder, name = os.path.split(path)
    others = {*os.listdir(folder)} - {name} if os.path.isdir(folder) else ()
    nearest = difflib.get_close_matches(name, others, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "give the path of a list file"
    return types.UserError(f"cannot read list {path}: {error.strerror}; {hint}")
