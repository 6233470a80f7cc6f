"""The folder of a report: index.html and pictures/, whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from hnclip_jax import types
from hnclip_jax.analysis.report import document

PAGE, PICTURES = "index.html", "pictures"
_HEAD = 10_000
"""The generator's name stands within so many characters."""


def check_target(folder: str | os.PathLike, overwrite: bool) -> None:
    """Raises types.UserError if `folder` is there, unless it is an older report and may go.

    Args:
      folder: where a report shall be.
      overwrite: whether an older one may go. A folder with other files in it never may.
    """
    folder = pathlib.Path(folder)
    if not os.path.lexists(folder):
        return
    if not _is_report(folder):
        raise types.UserError(f"{folder} is there and holds no report; choose another --out")
    others = sorted({path.name for path in folder.iterdir()} - {PAGE, PICTURES})
    if others:
        raise types.UserError(
            f"{folder} holds more than a report: {types.at_most_ten(others)}; move that away, or "
            "choose another --out"
        )
    if not overwrite:
        raise types.UserError(f"already there: {folder}; choose another --out, or say --overwrite")


@contextlib.contextmanager
def new(folder: str | os.PathLike, *, overwrite: bool = False) -> Iterator[pathlib.Path]:
    """Yields a folder to fill; it takes the place of `folder` if the block ends well.

    Args:
      folder: made, with the folders above it.
      overwrite: an older report may go.

    Raises:
      types.UserError: if something is there already, or the place cannot be written.
    """
    check_target(folder, overwrite)
    folder = pathlib.Path(os.path.abspath(folder))
    with told(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        # One folder further down, because other users may not enter the temporary one.
        draft = scratch / "new"
        with told(folder):
            (draft / PICTURES).mkdir(parents=True)
        yield draft
        check_target(folder, overwrite)
        with told(folder):
            _swap(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def told(place: str | os.PathLike) -> Iterator[None]:
    """Makes one line of what keeps the block from writing to a place.

    Raises:
      types.UserError: for an OSError within the block.
    """
    try:
        yield
    except OSError as error:
        raise types.UserError(f"cannot write {place}: {error.strerror or error}") from error


def size(folder: str | os.PathLike) -> int:
    """Returns the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())


def _swap(scratch: pathlib.Path, folder: pathlib.Path) -> None:
    if folder.exists():
        os.rename(folder, scratch / "old")
    try:
        os.rename(scratch / "new", folder)
    except OSError:
        if (scratch / "old").exists():
            os.rename(scratch / "old", folder)
        raise


def _is_report(folder: pathlib.Path) -> bool:
    try:
        with (folder / PAGE).open(encoding="utf-8") as file:
            head = file.read(_HEAD)
    except (OSError, ValueError):
        return False
    return f'<meta name="generator" content="{document.GENERATOR}">' in head
