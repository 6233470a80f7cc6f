"""Values in other programs' config files, checked one by one as they are read."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from hnclip_jax import types


@dataclasses.dataclass(frozen=True)
class Section:
    """One JSON object of a config file.

    name: what to call it in messages.
    values: key -> value, as `json` reads it.
    """

    name: str
    values: Mapping[str, Any]

    def section(self, key: str) -> "Section":
        """Returns the object under `key`; an empty one where it is missing or null.

        Raises:
          types.UserError: if something else stands there.
        """
        values = self.values.get(key)
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            raise self._wrong(key, "a JSON object")
        return Section(f"{self.name}: {key}", values)

    def whole(self, key: str, default: int | None = None) -> int:
        """Returns a whole number from 1 on.

        Raises:
          types.UserError: if it is something else, or is missing and has no default.
        """
        value = self.values.get(key, default)
        if not _is_whole(value):
            raise self._wrong(key, "a whole number from 1 on")
        return value

    def square(self, key: str, default: int) -> int:
        """Returns n from n, [n] or [n, n].

        Raises:
          types.UserError: for anything else; non-square pictures and patches are not computed here.
        """
        value = self.values.get(key, default)
        edges = value if isinstance(value, list | tuple) else [value]
        if len(edges) not in (1, 2) or not all(map(_is_whole, edges)) or edges[0] != edges[-1]:
            raise self._wrong(key, "one whole number, or two equal ones: only squares are computed")
        return edges[0]

    def positive(self, key: str, default: float) -> float:
        """Returns a number above 0.

        Raises:
          types.UserError: if it is something else.
        """
        value = self.values.get(key, default)
        if not _is_number(value) or value <= 0:
            raise self._wrong(key, "a number above 0")
        return float(value)

    def switch(self, key: str) -> bool:
        """Returns true or false; false where it is missing or null.

        Raises:
          types.UserError: if it is something else.
        """
        value = self.values.get(key)
        if value not in (None, True, False):
            raise self._wrong(key, "true or false")
        return bool(value)

    def triple(self, key: str) -> tuple[float, float, float] | None:
        """Returns a number each for red, green and blue; None where none are given.

        Raises:
          types.UserError: if it is something else.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if (
            not isinstance(value, list | tuple)
            or len(value) != 3
            or not all(map(_is_number, value))
        ):
            raise self._wrong(key, "three numbers, for red, green and blue")
        red, green, blue = map(float, value)
        return red, green, blue

    def _wrong(self, key: str, needed: str) -> types.UserError:
        if key not in self.values:
            return types.UserError(f"{self.name} has no {key}, which must be {needed}")
        return types.UserError(f"{self.name}: {key} is {self.values[key]!r}, but must be {needed}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
