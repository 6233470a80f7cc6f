"""Result files against each other: do protocols match, is a difference more than chance."""

import dataclasses
import json
import math
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from hnclip_jax import types
from hnclip_jax.data import benchmarks

DIRECTIONS = {"t2i": "text to image", "i2t": "image to text"}

_LIST = ("content_sha256", "list_sha256", "data_sha256")
"""What says which list or folder it was, best first: the first one that both files have."""

_DECISIVE = (
    "pictures", "captions", "t2i_queries", "i2t_queries", "t2i_gallery", "i2t_gallery",
    "skipped_missing", "skipped_empty", "ties", "unit", "task", "classes", "classes_sha256",
)  # fmt: skip
"""Fields that a number's meaning hangs on: where they differ, nothing is called better."""

_RULE = "relevance"
"""The field that mAP alone hangs on."""

_SILENT = (
    "benchmark", "list", "data", "versions", "devices", "step", "interval", "truncated_captions",
    "truncated_prompts", "duplicate_captions",
)  # fmt: skip
"""Fields that may differ, as may those of the weights: they name what is compared, or follow."""

_Z = 1.96
"""Half the width of a 95 % interval, in standard errors."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A result file.

    label: what tells it from the others.
    metrics: {"t2i_r@1": percent, ...}.
    protocol: how they came about.
    intervals: {"t2i_r@1": (low, high)}, 95 %; {} if the file has none.
    """

    label: str
    metrics: dict[str, float]
    protocol: dict[str, Any]
    intervals: dict[str, tuple[float, float]]

    @property
    def benchmark(self) -> str:
        """Returns the registry's name of what was measured, "" if it has none."""
        name = self.protocol.get("benchmark") or ""
        return benchmarks.canonical(name) if name in benchmarks.REGISTRY else name


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """A field of the protocol that differs; decisive: the numbers then do not mean the same."""

    field: str
    first: Any
    other: Any
    decisive: bool

    def __str__(self) -> str:
        """Returns both values, hashes shortened."""
        return f"{self.field} {_shown(self.first)} and {_shown(self.other)}"


def read(paths: Sequence[str | os.PathLike]) -> list[Measured]:
    """Returns result files, as `hnclip eval --out` and `hnclip train` write them.

    Raises:
      types.UserError: if one cannot be read or is something else.
    """
    paths = [pathlib.Path(path).expanduser() for path in paths]
    contents = [_content(path) for path in paths]
    return [
        Measured(label, _numbers(path, content), content["protocol"], _intervals(path, content))
        for path, label, content in zip(paths, _labels(paths), contents, strict=True)
    ]


def mismatches(first: Measured, other: Measured) -> list[Mismatch]:
    """Returns the fields of the protocol in which two results differ, decisive ones first.

    A field that one of them does not have is none, but for the hash of the list.
    """
    one, two = first.protocol, other.protocol
    lists = next((name for name in _LIST if name in one and name in two), "list_sha256")
    found = []
    if lists not in one or one[lists] != two.get(lists):
        found.append(Mismatch(lists, one.get(lists), two.get(lists), True))
    if first.benchmark and other.benchmark and first.benchmark != other.benchmark:
        found.append(Mismatch("benchmark", first.benchmark, other.benchmark, True))
    for name in one:
        known = name in two and name not in (*_LIST, *_SILENT)
        if known and not name.startswith("weights") and one[name] != two[name]:
            found.append(Mismatch(name, one[name], two[name], name in _DECISIVE))
    return sorted(found, key=lambda mismatch: not mismatch.decisive)


def verdict(first: Measured, other: Measured, metric: str) -> str:
    """Returns how `other` does against `first`: "+" better, "-" worse, "~" may be chance.

    The difference is held against the 95 % interval of a difference of two independent numbers:
    the root of the sum of the squares of their half widths on the sides that face each other.
    Since both answer the same queries, the true interval is narrower: "~" is the careful word.

    Returns:
      "" if one of the two lacks the metric or its interval, or if their protocols forbid a word.
    """
    if metric not in first.metrics or metric not in other.metrics:
        return ""
    found = mismatches(first, other)
    if any(one.decisive or (one.field == _RULE and "map@" in metric) for one in found):
        return ""
    a, b = interval(first, metric), interval(other, metric)
    if a is None or b is None:
        return ""
    difference = other.metrics[metric] - first.metrics[metric]
    rises = difference > 0
    facing = (
        abs(a[rises] - first.metrics[metric]),
        abs(b[not rises] - other.metrics[metric]),
    )
    if abs(difference) <= math.hypot(*facing):
        return "~"
    return "+" if rises == ("rank" not in metric) else "-"


def interval(measured: Measured, metric: str) -> tuple[float, float] | None:
    """Returns the 95 % interval of a metric: the file's, else for hit rates the binomial one.

    That is Wilson's score interval: within 0 and 100, and of some width even there.

    Returns:
      (low, high) in the metric's unit; None if it is not known.
    """
    if metric in measured.intervals:
        return measured.intervals[metric]
    count = queries(measured, metric)
    if not count:
        return None
    value = measured.metrics[metric]
    share = min(max(value / 100, 0.0), 1.0)
    shrunk = 1 + _Z**2 / count
    centre = (share + _Z**2 / (2 * count)) / shrunk
    half = _Z / shrunk * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return 100 * max(centre - half, 0.0), 100 * min(centre + half, 1.0)


def queries(measured: Measured, metric: str) -> int:
    """Returns how many queries a recall or an accuracy is the mean of.

    Returns:
      0 for other metrics, and if it is not recorded.
    """
    match = re.fullmatch(r"(?:(t2i|i2t)_r@|top)\d+", metric)
    if not match:
        return 0
    counted = "captions" if match[1] == "t2i" else "pictures"
    found = measured.protocol.get(f"{match[1]}_queries", measured.protocol.get(counted))
    return found if isinstance(found, int) and found > 0 else 0


def _content(path: pathlib.Path) -> dict[str, Any]:
    needed = "needed is a result file, as `hnclip eval --out=FILE.json` writes it"
    if path.is_dir():
        raise types.UserError(f"{path} is a folder; {needed}; those of a run are in its eval/")
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise types.UserError(f"cannot read {path}: {error.strerror}; {needed}") from error
    except (ValueError, RecursionError) as error:
        what = str(error).splitlines()[0]
        raise types.UserError(f"{path} is no JSON file ({what}); {needed}") from None
    parts = ("metrics", "protocol")
    if not isinstance(content, dict) or not all(isinstance(content.get(p), dict) for p in parts):
        found = (
            f"an object with the keys {types.at_most_ten(content) or '(none)'}"
            if isinstance(content, dict)
            else f"a JSON {type(content).__name__}"
        )
        raise types.UserError(f"{path} is {found}; {needed}, with 'metrics' and 'protocol'")
    return content


def _numbers(path: pathlib.Path, content: dict[str, Any]) -> dict[str, float]:
    wrong = [name for name, value in content["metrics"].items() if not _is_number(value)]
    if wrong or not content["metrics"]:
        found = f"no numbers: {types.at_most_ten(wrong)}" if wrong else "nothing in it"
        raise types.UserError(f"{path}: 'metrics' has {found}; write the file again")
    return content["metrics"]


def _intervals(path: pathlib.Path, content: dict[str, Any]) -> dict[str, tuple[float, float]]:
    found = content.get("intervals") or {}
    for name, pair in found.items() if isinstance(found, dict) else [("intervals", found)]:
        fits = isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair))
        if not fits or pair[0] > pair[1]:
            raise types.UserError(f"{path}: the interval of {name} is no [low, high]: {pair!r}")
    return {name: tuple(pair) for name, pair in found.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _labels(paths: list[pathlib.Path]) -> list[str]:
    """Returns the shortest ends of the paths that tell them apart."""
    names = [path.with_suffix("").parts for path in paths]
    for depth in range(1, max(map(len, names), default=0) + 1):
        labels = [pathlib.PurePath(*name[-depth:]).as_posix() for name in names]
        if len({*labels}) == len({*names}):
            return labels
    return [str(path) for path in paths]


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{len(value)} values"
    is_hash = isinstance(value, str) and len(value) == 64 and value.isalnum()
    return f"{value[:8]}..." if is_hash else "(not recorded)" if value is None else repr(value)
