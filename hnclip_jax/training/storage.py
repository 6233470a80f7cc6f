"""What file systems say when they are full, read-only or gone, in one line with what to do."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

from hnclip_jax import types
from hnclip_jax.parallel import alarm

_GONE = "No such file or directory"
UNMOUNTED = "Transport endpoint is not connected"
_DISK_FAULTS = {
    "No space left": "make room there",
    "Disk quota exceeded": "make room there",
    "File too large": "allow larger files there",
    "Read-only file system": "make it writable",
    "Permission denied": "make it writable",
    _GONE: "see why it is gone, mount it again",
    "NOT_FOUND": "see why it is gone, mount it again",
    "Not a directory": "see what took its place",
    UNMOUNTED: "mount it again",
    "Stale file handle": "mount it again",
    "Input/output error": "see what its disk or mount is up to",
    "Connection": "see whether its storage can be reached",
}
"""What the file system says -> what to do."""


@contextlib.contextmanager
def plain_errors(folder: Any, what: str) -> Iterator[None]:
    """Turns what the file system says into one line; anything else passes through.

    Raises:
      types.UserError: for what the file system says.
      alarm.Lost: if another process is gone; its connection is no storage's.
    """
    try:
        yield
    except Exception as error:
        if (gone := alarm.lost(error)) is not None:
            raise gone from error
        fault = _fault(error) or ("" if pathlib.Path(folder).exists() else _GONE)
        if not fault:
            raise
        raise types.UserError(
            f"{what} could not be saved in {folder}: {fault.lower().replace('_', ' ')}; earlier "
            f"checkpoints are untouched: {_DISK_FAULTS[fault]} and run the same command again"
        ) from error


def _fault(error: BaseException) -> str:
    """Returns which of _DISK_FAULTS an error is, or comes from."""
    for cause in types.causes(error):
        fault = next((fault for fault in _DISK_FAULTS if fault in str(cause)), "")
        if fault and isinstance(cause, OSError | ValueError | RuntimeError):
            return fault
    return ""
