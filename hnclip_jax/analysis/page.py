"""A page to draw on, and what lies beside the picture: the numbers in it, as JSON and as CSV."""

import csv
import json
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hnclip_jax import types

if TYPE_CHECKING:
    from matplotlib import figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
"""Told apart by those who see colours differently (Okabe and Ito); the first two stand out most."""
MARKERS = "osD^vPX"
"""One for each colour, so that lines can be told apart without it."""
GREY = "0.55"

_STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
_DPI = 150


def check() -> None:
    """Checks that pictures can be drawn, before anything is computed for them.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise types.UserError(
            "to draw needs matplotlib: pip install 'hnclip_jax[plots]'"
        ) from error


def page(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple["figure.Figure", Any]:
    """Returns an empty figure of width x height inches, and its axes as `subplots` gives them.

    Args:
      width, height: in inches; a picture has 150 pixels per inch.
      rows, columns: how many axes.
      **options: of `Figure.subplots`.

    Raises:
      types.UserError: if matplotlib is not installed.
    """
    check()
    import matplotlib
    from matplotlib import figure

    with matplotlib.rc_context(_STYLE):
        # Not pyplot: it keeps every figure, and looks for a screen.
        made = figure.Figure(figsize=(width, height), layout="constrained")
        return made, made.subplots(rows, columns, **options)


def save(drawn: "figure.Figure", path: str | os.PathLike, *, photos: bool = False) -> None:
    """Writes the picture alone, as PNG; of 256 colours, a third of the size, unless `photos`."""
    drawn.savefig(path, dpi=_DPI)
    if not photos:
        from PIL import Image

        with Image.open(path) as image:
            few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def write(
    folder: str | os.PathLike,
    name: str,
    drawn: "figure.Figure",
    numbers: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    *,
    photos: bool = False,
) -> list[pathlib.Path]:
    """Writes NAME.png, NAME.json and NAME.csv into a folder; returns the three paths.

    Older files of these names are replaced.

    Args:
      folder: made if need be.
      name: of the files, without ending.
      drawn: the picture.
      numbers: JSON values; nan and inf become null, since JSON has no such numbers.
      table: rows of the CSV file; the columns are the keys of all rows, in their order.
      photos: pictures are part of it, which need all colours.

    Raises:
      types.UserError: if the folder cannot be written.
    """
    folder = pathlib.Path(folder).expanduser()
    paths = [folder / f"{name}.{ending}" for ending in ("png", "json", "csv")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as scratch:
            png, plain, rows = (pathlib.Path(scratch) / path.name for path in paths)
            save(drawn, png, photos=photos)
            plain.write_text(json.dumps(finite(numbers), indent=2, allow_nan=False) + "\n")
            _write_csv(rows, table)
            for path in paths:
                os.replace(pathlib.Path(scratch) / path.name, path)
    except OSError as error:
        raise types.UserError(f"cannot write to {folder}: {error.strerror}") from error
    return paths


def finite(value: Any) -> Any:
    """Returns JSON values with None for what is no finite number; numpy's become plain ones."""
    if isinstance(value, Mapping):
        return {str(name): finite(inside) for name, inside in value.items()}
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, list | tuple):
        return [finite(inside) for inside in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    return value


def _write_csv(path: pathlib.Path, table: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in table for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(table)
