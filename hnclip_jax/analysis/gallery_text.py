"""Long captions as lines of equal characters, with marked words that stay in sight when it is cut.

Every character has one place, so that marked words can be drawn over the gaps that the other
ones leave for them, in a bold face of the same width.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hnclip_jax.analysis import page

FONT = "DejaVu Sans Mono"
"""Comes with matplotlib; regular and bold characters are equally wide."""
MARK = page.COLOURS[0]
"""Colour of the marked words, which are bold as well."""

_ADVANCE = 1233 / 2048
"""Width of a character, in font sizes."""
_CUT = "\N{HORIZONTAL ELLIPSIS}"
_MISSING = "\N{WHITE SQUARE}"
_UNSEEN = ("Cc", "Cf", "Cs", "Mn", "Me")
_AROUND = (8, 4, 2, 1)


class Line(NamedTuple):
    """A line of text; of its two parts, one has a blank where the other has a character."""

    plain: str
    marked: str


Token = list[tuple[str, bool]]
"""The characters of a word and what sticks to it, and whether each is marked."""


def lay(text: str, marked: Sequence[tuple[int, int]], width: int, lines: int) -> list[Line]:
    """Returns a text as at most so many lines.

    If it is too long, words far from marked ones go first, an ellipsis in their place; what is
    still too long is cut at its end. Characters that the font lacks become a square.

    Args:
      text: any; line breaks and the like become blanks.
      marked: (start, end) of parts of it.
      width: characters of a line.
      lines: at least 1.
    """
    tokens = _tokens(text, marked)
    laid = _wrapped(tokens, width)
    if any(_is_marked(token) for token in tokens):
        for around in _AROUND:
            if len(laid) <= lines:
                break
            laid = _wrapped(_near(tokens, around), width)
    if len(laid) > lines:
        laid = laid[:lines]
        laid[-1] = [*laid[-1][: width - 2], (" ", False), (_CUT, False)]
    return [_line(row) for row in laid]


def chars(width: float, size: float) -> int:
    """Returns how many characters of a size in points fit into a width in inches."""
    # A little less, because characters are a whole number of pixels wide.
    return int(0.96 * width * 72 / (size * _ADVANCE))


def step(size: float) -> float:
    """Returns the height in inches of a line of a size in points."""
    return 1.3 * size / 72


def write(axes: Any, x: float, y: float, lines: Sequence[Line], size: float) -> float:
    """Draws lines of text, the first one below y; returns where the next one would begin.

    Args:
      axes: in inches, y downwards.
      x, y: of the upper left corner.
      lines: of `lay`.
      size: of the letters, in points.
    """
    font = {"family": FONT, "fontsize": size, "va": "baseline", "parse_math": False}
    for number, line in enumerate(lines):
        base = y + number * step(size) + size / 72
        if line.plain.strip():
            axes.text(x, base, line.plain, color="black", **font)
        if line.marked.strip():
            axes.text(x, base, line.marked, color=MARK, weight="bold", **font)
    return y + len(lines) * step(size)


def _tokens(text: str, marked: Sequence[tuple[int, int]]) -> list[Token]:
    inside = {place for start, end in marked for place in range(start, end)}
    tokens = [
        [(c, match.start() + n in inside) for n, char in enumerate(match[0]) for c in _drawn(char)]
        for match in re.finditer(r"\S+", text)
    ]
    return [token for token in tokens if token]


def _drawn(char: str) -> str:
    if unicodedata.category(char) in _UNSEEN:
        return ""
    return char if ord(char) in _glyphs() else _MISSING


@functools.cache
def _glyphs() -> frozenset[int]:
    from matplotlib import font_manager

    faces = (font_manager.FontProperties(family=FONT, weight=w) for w in ("normal", "bold"))
    maps = (font_manager.get_font(font_manager.findfont(face)).get_charmap() for face in faces)
    regular, bold = maps
    return frozenset(regular.keys() & bold.keys())


def _is_marked(token: Token) -> bool:
    return any(mark for _, mark in token)


def _near(tokens: list[Token], around: int) -> list[Token]:
    """Returns the tokens that are at most so many from a marked one, gaps as an ellipsis."""
    kept: set[int] = set()
    for place, token in enumerate(tokens):
        if _is_marked(token):
            kept.update(range(place - around, place + around + 1))
    near: list[Token] = []
    gap: Token = [(_CUT, False)]
    for place, token in enumerate(tokens):
        if place in kept:
            near.append(token)
        elif not near or near[-1] is not gap:
            near.append(gap)
    return near


def _wrapped(tokens: Iterable[Token], width: int) -> list[Token]:
    rows: list[Token] = [[]]
    for token in tokens:
        for start in range(0, len(token), width):
            part = token[start : start + width]
            if rows[-1] and len(rows[-1]) + 1 + len(part) > width:
                rows.append([])
            rows[-1] += [(" ", False)] * bool(rows[-1]) + part
    return rows


def _line(row: Token) -> Line:
    return Line(
        "".join(" " if mark else char for char, mark in row),
        "".join(char if mark else " " for char, mark in row),
    )
