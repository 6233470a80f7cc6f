"""A page of pictures under what asked for them, with titles and captions in which words are marked.

The page is one pair of axes in inches, its origin at the top left, and every picture and line of
text has its place on it: nothing is moved by how long a caption is.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hnclip_jax.analysis import gallery_text, page

if TYPE_CHECKING:
    from matplotlib import figure

TRUE = page.COLOURS[2]

_PICTURE, _GAP, _MARGIN = 1.5, 0.15, 0.2
_WIDE, _LABEL, _LEAST = 2.2, 1.9, 7.0
_SMALL, _SIZE, _HEAD = 5.5, 7.0, 10.0
"""Sizes of letters, in points: captions below pictures, all other text, the headline."""
_LINES, _LONG_LINES = 14, 12


@dataclasses.dataclass(frozen=True)
class Cell:
    """A picture with words.

    title: above it; lines by line breaks.
    picture: [height, width, 3] uint8; None draws an empty box that says so.
    true: it is a right answer; a thick frame and a word say so.
    caption: below it, or beside it in a heading; "" = none.
    marked: (start, end) of parts of the caption.
    """

    title: str
    picture: np.ndarray | None
    true: bool = False
    caption: str = ""
    marked: Sequence[tuple[int, int]] = ()


@dataclasses.dataclass(frozen=True)
class Block:
    """What asked, and rows of what it found.

    heading: drawn with its caption beside it.
    rows: (label, cells) each; labels are left of the cells, lines by line breaks.
    """

    heading: Cell
    rows: Sequence[tuple[str, Sequence[Cell]]]


def draw(title: str, blocks: Sequence[Block]) -> "figure.Figure":
    """Returns a page of blocks, one below the other, with a legend of the marks that are there.

    Args:
      title: the headline.
      blocks: at least one.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    sizes = _Sizes.of(blocks)
    drawn, axes = page.page(sizes.width, sizes.height)
    axes.set_position((0, 0, 1, 1))
    axes.set_axis_off()
    y = gallery_text.write(
        axes, _MARGIN, _MARGIN, gallery_text.lay(title, (), sizes.chars(_HEAD), 2), _HEAD
    )
    for text, marked in _legend(blocks):
        y = gallery_text.write(
            axes, _MARGIN, y, gallery_text.lay(text, marked, sizes.chars(_SIZE), 2), _SIZE
        )
    y = sizes.top
    for block in blocks:
        y = _block(axes, y, block, sizes)
    # After the pictures, each of which sets the limits to its own.
    axes.set(xlim=(0, sizes.width), ylim=(sizes.height, 0))
    return drawn


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """In inches; captions: lines of the captions below pictures; titles: of the longest title."""

    width: float
    height: float
    label: float
    cell: float
    captions: int
    titles: int
    top: float

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> "_Sizes":
        rows = [row for block in blocks for row in block.rows]
        cells = [cell for _, row in rows for cell in row]
        label = _LABEL if any(name for name, _ in rows) else 0.0
        cell = _WIDE if any(one.caption for one in cells) else _PICTURE + _GAP
        most = max((len(row) for _, row in rows), default=0)
        titles = max((one.title.count("\n") + 1 for one in cells), default=0)
        captions = max((len(_caption(one, cell)) for one in cells), default=0)
        width = max(2 * _MARGIN + label + most * cell, _LEAST)
        top = (
            _MARGIN
            + 2 * gallery_text.step(_HEAD)
            + (len(_legend(blocks)) + 1) * gallery_text.step(_SIZE)
        )
        made = cls(width, 0.0, label, cell, captions, titles, top)
        height = top + len(blocks) * made.heading + len(rows) * made.row
        return dataclasses.replace(made, height=height)

    @property
    def heading(self) -> float:
        """Returns the height of a heading."""
        return gallery_text.step(_SIZE) + _PICTURE + 2 * _GAP

    @property
    def row(self) -> float:
        """Returns the height of a row."""
        return (
            self.titles * gallery_text.step(_SIZE)
            + _PICTURE
            + self.captions * gallery_text.step(_SMALL)
            + 3 * _GAP
        )

    def chars(self, size: float, taken: float = 0.0) -> int:
        """Returns how many characters fit into the width of the page, less what is taken."""
        return gallery_text.chars(self.width - 2 * _MARGIN - taken, size)


def _legend(blocks: Sequence[Block]) -> list[tuple[str, list[tuple[int, int]]]]:
    cells = [cell for block in blocks for _, row in block.rows for cell in row]
    lines = []
    if any(cell.marked for cell in cells):
        bold = "bold blue"
        lines.append((f"{bold}: content words that both captions have", [(0, len(bold))]))
    if any(cell.true for cell in (*cells, *(block.heading for block in blocks))):
        lines.append(("thick green frame and the word TRUE: a right answer", []))
    return lines


def _block(axes: Any, y: float, block: Block, sizes: _Sizes) -> float:
    """Draws a block at y; returns where the next one begins."""
    axes.axhline(y - _GAP / 2, color="0.8", linewidth=0.6)
    head, taken = block.heading, _PICTURE + 2 * _GAP
    text = gallery_text.lay(head.title, (), sizes.chars(_SIZE), 1)
    beside = gallery_text.lay(head.caption, head.marked, sizes.chars(_SIZE, taken), _LONG_LINES)
    top = gallery_text.write(axes, _MARGIN, y, text, _SIZE) + _GAP / 2
    _picture(axes, _MARGIN, top, head)
    gallery_text.write(axes, _MARGIN + taken, top, beside, _SIZE)
    y += sizes.heading
    for label, cells in block.rows:
        chars = gallery_text.chars(_LABEL - _GAP, _SIZE)
        words = [
            line for part in label.split("\n") for line in gallery_text.lay(part, (), chars, 4)
        ]
        top = y + sizes.titles * gallery_text.step(_SIZE) + _GAP / 2
        gallery_text.write(axes, _MARGIN, top, words, _SIZE)
        for column, cell in enumerate(cells):
            _cell(axes, _MARGIN + sizes.label + column * sizes.cell, top, cell, sizes.cell)
        y += sizes.row
    return y


def _cell(axes: Any, x: float, y: float, cell: Cell, width: float) -> None:
    """Draws a cell whose picture's upper left corner is at x, y."""
    titles = cell.title.split("\n")
    chars = gallery_text.chars(width - _GAP, _SIZE)
    laid = [gallery_text.lay(title, (), chars, 1)[0] for title in titles]
    gallery_text.write(axes, x, y - _GAP / 2 - len(titles) * gallery_text.step(_SIZE), laid, _SIZE)
    _picture(axes, x, y, cell)
    gallery_text.write(axes, x, y + _PICTURE + _GAP / 2, _caption(cell, width), _SMALL)


def _caption(cell: Cell, width: float) -> list[gallery_text.Line]:
    if not cell.caption:
        return []
    chars = gallery_text.chars(width - _GAP, _SMALL)
    return gallery_text.lay(cell.caption, cell.marked, chars, _LINES)


def _picture(axes: Any, x: float, y: float, cell: Cell) -> None:
    left, right, top, bottom = x, x + _PICTURE, y, y + _PICTURE
    middle = {"ha": "center", "va": "center", "fontsize": _SIZE}
    if cell.picture is None:
        note = "picture cannot\nbe read"
        axes.text((left + right) / 2, (top + bottom) / 2, note, color=page.GREY, **middle)
    else:
        axes.imshow(cell.picture, extent=(left, right, bottom, top))
    edge = ([left, right, right, left, left], [top, top, bottom, bottom, top])
    style = {"color": TRUE, "linewidth": 4} if cell.true else {"color": "0.8", "linewidth": 0.6}
    axes.plot(*edge, solid_joinstyle="miter", **style)
    if cell.true:
        box = {"facecolor": "black", "edgecolor": "none", "pad": 2}
        place = {"ha": "left", "va": "top", "fontsize": _SIZE, "weight": "bold", "bbox": box}
        axes.text(left, top, "TRUE", color="white", **place)
