"""JSON values out of a file, one after the other, so that no more than one is held at a time."""

import json
import re
from collections.abc import Iterator
from typing import Any

from hnclip_jax import types
from hnclip_jax.data.formats import textfile

_BLANK = re.compile(r"[ \t\n\r]*")

_PIECE = 1 << 20

_CUT = 16
"""A fault this near to the end of the window may be one of the window, not of the file."""


class JsonStream:
    """A window that slides over the text of a file and takes value after value from it.

    Args:
      path: for messages.
      file: the text.
    """

    def __init__(self, path: str, file: textfile.TextFile) -> None:
        """Begins where the file stands."""
        self._path, self._file = path, file
        self._decode = json.JSONDecoder().raw_decode
        self._text, self._at = "", 0
        # Lines before the window, and characters of its first line before it.
        self._lines = self._columns = 0

    def peek(self) -> str:
        """Returns the next character that is not blank; "" at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def value(self) -> Any:
        """Returns the next value."""
        self.peek()
        while True:
            try:
                found, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos > len(self._text) - _CUT or error.msg.startswith("Unterminated")
                if not (cut and self._fill()):
                    raise self.error(error.msg, error.pos) from None
                continue
            except (RecursionError, ValueError) as error:
                raise self.error(str(error), self._at) from None
            # A number that ends where the window does may go on behind it.
            if end == len(self._text) and isinstance(found, int | float) and self._fill():
                continue
            self._at = end
            return found

    def elements(self) -> Iterator[Any]:
        """Yields the elements of the array that begins here."""
        self.peek()
        self._take("[")
        if self.peek() == "]":
            return self._take("]")
        while True:
            yield self.value()
            if self.peek() != ",":
                return self._take("]", "Expecting ',' delimiter")
            self._take(",")

    def keys(self) -> Iterator[str]:
        """Yields the keys of the object that begins here; the caller takes the value after each."""
        self.peek()
        self._take("{")
        if self.peek() == "}":
            return self._take("}")
        while True:
            if self.peek() != '"':
                raise self.error("Expecting property name enclosed in double quotes", self._at)
            key = self.value()
            self.peek()
            self._take(":")
            yield key
            if self.peek() != ",":
                return self._take("}", "Expecting ',' delimiter")
            self._take(",")

    def end(self) -> None:
        """Raises if anything but blanks is left."""
        if self.peek():
            raise self.error("Extra data", self._at)

    def error(self, message: str, at: int) -> types.UserError:
        """Returns the error for a fault at a position of the window."""
        line = self._lines + self._text.count("\n", 0, at) + 1
        before = self._text.rfind("\n", 0, at)
        column = at - before if before >= 0 else self._columns + at + 1
        return types.UserError(
            f"{self._path}: no valid JSON at line {line}, column {column}: {message}"
        )

    def _take(self, character: str, message: str = "") -> None:
        if self._text[self._at : self._at + 1] != character:
            raise self.error(message or f"Expecting {character!r} delimiter", self._at)
        self._at += 1

    def _fill(self) -> bool:
        """Adds a piece of text behind the window, and drops what was taken before it."""
        # As much as is pending, so that one huge value is not looked at too often.
        piece = self._file.piece(max(_PIECE, len(self._text) - self._at))
        if not piece:
            return False
        done, rest = self._text[: self._at], self._text[self._at :]
        newlines = done.count("\n")
        self._lines += newlines
        self._columns = len(done) - done.rfind("\n") - 1 + (0 if newlines else self._columns)
        self._text, self._at = rest + piece, 0
        return True
