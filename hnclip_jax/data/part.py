"""A file of JSON lines under keys, which outlives the process: what long work has done so far."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from hnclip_jax import types


class Part:
    """JSON lines under keys, which outlive the process."""

    def __init__(self, path: str) -> None:
        """Reads what an earlier run left; a line that it was writing when it was stopped goes."""
        self._places: dict[str, tuple[int, int]] = {}
        self._path, self._end = path, 0
        with self._named():
            self._file = open(path, "a+b")  # noqa: SIM115
            self._file.seek(0)
            for line in self._file:
                if not line.endswith(b"\n"):
                    break
                try:
                    self._remember(json.loads(line)["key"], len(line))
                except (ValueError, KeyError, TypeError):
                    break
            self._file.truncate(self._end)

    def __contains__(self, key: str) -> bool:
        """Returns whether there is a line under a key."""
        return key in self._places

    def __getitem__(self, key: str) -> dict[str, Any]:
        """Returns what is under a key."""
        start, length = self._places[key]
        self._file.seek(start)
        return json.loads(self._file.read(length))

    def add(self, key: str, **values: Any) -> None:
        """Adds a line."""
        line = json.dumps({"key": key, **values}).encode() + b"\n"
        with self._named():
            self._file.write(line)
            self._file.flush()
        self._remember(key, len(line))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _remember(self, key: str, length: int) -> None:
        self._places[key] = (self._end, length)
        self._end += length

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise types.UserError(f"cannot write {self._path}: {error.strerror}") from error
