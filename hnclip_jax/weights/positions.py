"""Tables of positions: text from 77 to 248 rows, two tables as one, the grid of patches resized."""

import numpy as np

KEPT = 20
"""Rows that Long-CLIP leaves as they were: well trained, since most captions are short."""

SHORT, LONG = 77, 248
_FACTOR = 4


def stretch(table: np.ndarray) -> np.ndarray:
    """Returns 248 text positions from CLIP's 77.

    The first 20 rows stay. Between each two later rows three new ones are interpolated linearly;
    the last three go on in a straight line beyond the last old row.

    Args:
      table: [77, W] floating.

    Returns:
      [248, W], same type; computed in float64.

    References:
      Long-CLIP, arXiv 2403.15378, section 3.1, as the authors' code does it: the paper's formula
      leaves out the offset of 20.
    """
    old = np.asarray(table, np.float64)
    rows = np.arange(LONG - KEPT)
    before = KEPT + rows // _FACTOR
    share = (rows % _FACTOR / _FACTOR)[:, None]
    step = np.diff(old, axis=0, append=old[-1:] + (old[-1:] - old[-2:-1]))
    new = old[before] + share * step[before]
    return np.concatenate([old[:KEPT], new]).astype(np.asarray(table).dtype)


def exchange_tails(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns both tables with their rows from 20 on exchanged; doing it twice changes nothing.

    Long-CLIP reads rows 0 to 19 from `positional_embedding` and the rest from
    `positional_embedding_res`. Exchanged, one table is the whole of what it reads, the other the
    rows that it never reads.

    Args:
      first, second: [248, W] each.

    Raises:
      ValueError: if they are no two tables of one shape.
    """
    first, second = np.asarray(first), np.asarray(second)
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"have shapes {first.shape} and {second.shape}, but need the same (S, W)")
    return (
        np.concatenate([first[:KEPT], second[KEPT:]]),
        np.concatenate([second[:KEPT], first[KEPT:]]),
    )


def resize_grid(table: np.ndarray, size: int) -> np.ndarray:
    """Returns the positions of an image of size x size patches.

    Bicubic, wider when shrinking (antialiased), as open_clip resizes them; the class token's row
    is left alone, and at the same size so is the rest.

    Args:
      table: [1 + n * n, W]: the class token's row, then the grid row by row.
      size: patches along an edge.

    Returns:
      [1 + size * size, W], same type; computed in float64.
    """
    table = np.asarray(table)
    old = round((len(table) - 1) ** 0.5)
    if old == size:
        return table
    grid = table[1:].reshape(old, old, -1).astype(np.float64)
    weights = _bicubic(old, size)
    grid = np.einsum("yi,xj,ijw->yxw", weights, weights, grid, optimize=True)
    return np.concatenate([table[:1], grid.reshape(size * size, -1).astype(table.dtype)])


def _bicubic(old: int, new: int) -> np.ndarray:
    """Returns [new, old] float64, rows sum to 1: Keys' kernel, a = -0.5, edges cut and rescaled."""
    ratio = old / new
    centre = (np.arange(new)[:, None] + 0.5) * ratio
    x = np.abs(np.arange(old)[None] + 0.5 - centre) / max(ratio, 1.0)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    kernel = np.where(x < 1, near, np.where(x < 2, far, 0.0))
    return kernel / kernel.sum(axis=1, keepdims=True)
