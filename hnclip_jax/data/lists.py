"""Lists of pictures and captions, of any format, to checked records.

`rows` says what a list holds, `paths` where its pictures are; here everything is checked before
anything is returned. A training example is a pair: each caption of a record makes its own.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hnclip_jax import types
from hnclip_jax.data import selection, survey
from hnclip_jax.data.formats import rows as rows_lib
from hnclip_jax.data.formats import textfile

_POLICIES = {
    "missing": ("error", "skip"),
    "empty_caption": ("error", "skip", "keep"),
    "repeats": ("keep", "drop"),
}
_TUPLE = 20_000
"""Up to so many records are a plain tuple; more are made from compressed rows as they are asked
for, because 1.2 million long captions would not fit into a gigabyte."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A picture that exists, and at least one caption.

    index: number of the row in the source, from 0.
    image: a path, or an object with a `read` like that of `blobs.Blob`.
    captions: stripped of blanks around them, else as they are.
    id: of the source, or the picture's file name; no other record of the list has the same.
    group: equal for a picture and the parts cut out of it, in a joint list; else "".
    extra: raw values that methods read (`fields.EXTRA_KEYS`); only lists in JSON have any.
    """

    index: int
    image: Any
    captions: tuple[str, ...]
    id: str = ""
    group: str = ""
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class Report:
    """What reading found.

    rows: rows of the source, or of the split that was asked for.
    pairs: pictures times their captions, as kept.
    skipped_missing: rows left out because their picture is missing.
    skipped_empty: captions left out because they are blank, or no text at all.
    duplicates: kept captions whose text stands earlier in the list.
    dropped_repeats: rows left out because their picture stands earlier.
    missing_folders: missing pictures by folder as the list names it, the largest first.
    """

    rows: int
    pairs: int
    skipped_missing: int
    skipped_empty: int
    duplicates: int
    dropped_repeats: int = 0
    missing_folders: dict[str, int] = dataclasses.field(default_factory=dict)


def _nowhere(name: str) -> None:
    del name


@dataclasses.dataclass(frozen=True)
class PictureList:
    """The records of the list at `path`, whose content has this SHA-256 (hexadecimal).

    queries: positions of the records that ask in an evaluation, where not all do; None: all.
    locate: name of another picture that the list speaks of -> its path, by the rule that holds for
      the list's pictures; None if it is not there. Of lists that are no JSON, always None.
    """

    records: Sequence[Record]
    report: Report
    path: str
    sha256: str
    queries: tuple[int, ...] | None = None
    locate: Callable[[str], str | None] = dataclasses.field(default=_nowhere, compare=False)


def read(
    path: str | os.PathLike,
    *,
    image_root: str = "",
    missing: str = "error",
    empty_caption: str = "error",
    split: str = "",
    repeats: str = "keep",
    first_line: bool = False,
    progress: textfile.Progress | None = None,
) -> PictureList:
    """Returns the records of a list, in the order of the list.

    See `rows.read` for the formats and `paths` for where pictures are looked for.

    Args:
      path: a list file, a folder of pictures and texts, tar shards, or a packed list.
      image_root: folder of the pictures, where the list's own paths do not lead to them.
      missing: what a missing picture does: "error" or "skip".
      empty_caption: what a caption does that is blank, absent or no string: "error", "skip" or
        "keep" (as the empty string). An empty list of captions counts as one empty caption.
      split: rows of which split; several are joined by "+". Needed if the list has several.
      repeats: what a row does whose picture stands in an earlier one: "keep" or "drop".
      first_line: take only the first line of a folder's texts, as Urban-1K's readers do.
      progress: called with bytes read and bytes in all, while a file is read.

    Raises:
      types.UserError: if the list cannot be read, or rows do not fit: how many, and the first ones.
    """
    given = {"missing": missing, "empty_caption": empty_caption, "repeats": repeats}
    _check_policies(given)
    path = os.path.abspath(path)
    packed = _read_packed(path)
    if packed is not None:
        if split:
            raise types.UserError(f"{path} is packed, without splits; pack {split!r} by itself")
        return packed
    source = rows_lib.read(path, first_line=first_line, progress=progress)
    found = survey.survey(
        path,
        source.rows,
        survey.Policies(**given, splits=selection.splits(path, source.rows, split)),
        os.path.abspath(image_root) if image_root else "",
    )
    records: Sequence[Record] = survey.Kept(found, Record)
    if len(records) <= _TUPLE:
        records = tuple(records)
    report = Report(
        rows=found.rows,
        pairs=found.pairs,
        skipped_missing=found.gone.count,
        skipped_empty=found.skipped_empty,
        duplicates=found.pairs - found.texts,
        dropped_repeats=found.dropped_repeats,
        missing_folders=dict(sorted(found.folders.items(), key=lambda item: (-item[1], item[0]))),
    )
    return PictureList(records, report, path, source.sha256, locate=found.places.locate)


def pairs(records: Sequence[Record]) -> list[tuple[int, str]]:
    """Returns (position in `records`, caption) of every pair, record after record."""
    return [(position, text) for position, row in enumerate(records) for text in row.captions]


@dataclasses.dataclass(frozen=True, eq=False)
class PairView(Sequence):
    """The pictures, or the captions, of all pairs, looked up when they are asked for.

    A million long captions are over a gigabyte as strings, and every worker would have its own.

    records: of the list.
    positions: [pairs] int32, the record of each pair.
    inside: [pairs] int32, which of its captions; None = its picture is meant.
    """

    records: Sequence[Record]
    positions: np.ndarray
    inside: np.ndarray | None = None

    def __len__(self) -> int:
        """Returns how many pairs there are."""
        return len(self.positions)

    def __getitem__(self, pair: int) -> Any:
        """Returns the picture, or the caption, of a pair."""
        record = self.records[int(self.positions[pair])]
        return record.image if self.inside is None else record.captions[int(self.inside[pair])]


def views(records: Sequence[Record]) -> tuple[PairView, PairView]:
    """Returns the pictures and the captions of all pairs, in the order of `pairs`."""
    counts = np.fromiter((len(record.captions) for record in records), np.int32, len(records))
    positions = np.repeat(np.arange(len(records), dtype=np.int32), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    inside = (np.arange(len(positions)) - before).astype(np.int32)
    return PairView(records, positions), PairView(records, positions, inside)


def pair_ids(records: Sequence[Record]) -> np.ndarray:
    """Returns [n] int32 ids of the n pairs, in the order of `pairs`.

    Pairs of one picture have equal ids, and so have pairs of one caption text, and pairs that a
    chain of those connects. Equal ids mean: no negatives of each other.
    """
    parents: list[int] = []

    def root(picture: int) -> int:
        while parents[picture] != picture:
            parents[picture] = parents[parents[picture]]
            picture = parents[picture]
        return picture

    pictures: dict[Any, int] = {}
    first_with: dict[bytes, int] = {}
    pictures_of_pairs = []
    for record in records:
        picture = pictures.setdefault(record.image, len(pictures))
        if picture == len(parents):
            parents.append(picture)
        for text in record.captions:
            other = first_with.setdefault(selection.digest(text), picture)
            parents[root(other)] = root(picture)
            pictures_of_pairs.append(picture)
    numbers: dict[int, int] = {}
    return np.array(
        [numbers.setdefault(root(p), len(numbers)) for p in pictures_of_pairs], np.int32
    )


def _check_policies(given: dict[str, str]) -> None:
    for name, policy in given.items():
        if policy not in _POLICIES[name]:
            raise types.unknown_name("policy", policy, _POLICIES[name])


def _read_packed(path: str) -> PictureList | None:
    """Returns the list of a packed folder, None if it is none."""
    if not os.path.isdir(path):
        return None
    # Here, because pack makes lists too; and its libraries are slow to load.
    from hnclip_jax.data import pack

    return pack.read(path) if pack.is_packed(path) else None
