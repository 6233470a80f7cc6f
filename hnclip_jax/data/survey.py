"""One pass over the rows of a list: what is kept, what is not, and where each picture is."""

import array
import collections
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from hnclip_jax import types
from hnclip_jax.data import paths, selection
from hnclip_jax.data.formats import fields


@dataclasses.dataclass(frozen=True)
class Policies:
    """What to do with which rows; the words are those of `lists.read`. splits: None = all rows."""

    missing: str
    empty_caption: str
    repeats: str
    splits: frozenset[str] | None


@dataclasses.dataclass
class Survey:
    """What the pass found.

    source: the rows.
    places: where their pictures are looked for.
    policies: what is done with them.
    kept: numbers of the rows that are kept.
    found_at: for each of those, the number of the picture's place; -1 if it needs none.
    new_ids: ids that had to be changed, by position among the kept.
    rows: rows that were looked at.
    pairs: captions that are kept.
    texts: different ones among them.
    skipped_empty: captions that are not kept.
    dropped_repeats: rows whose picture stands earlier.
    empty: rows with an empty caption.
    gone: rows without a picture.
    folders: how many of them, by folder.
    joint: whether parts of pictures are among the rows.
    """

    source: Sequence[fields.Row]
    places: paths.Places
    policies: Policies
    kept: array.array = dataclasses.field(default_factory=lambda: array.array("q"))
    found_at: array.array = dataclasses.field(default_factory=lambda: array.array("h"))
    new_ids: dict[int, str] = dataclasses.field(default_factory=dict)
    rows: int = 0
    pairs: int = 0
    texts: int = 0
    skipped_empty: int = 0
    dropped_repeats: int = 0
    empty: fields.Marked = dataclasses.field(default_factory=fields.Marked)
    gone: fields.Marked = dataclasses.field(default_factory=fields.Marked)
    folders: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    joint: bool = False

    def captions(self, row: fields.Row) -> list[str]:
        """Returns the captions of a row that are kept."""
        texts = clean(row.captions)
        return texts if self.policies.empty_caption == "keep" else [text for text in texts if text]


class Kept(Sequence):
    """The rows that a survey kept; each is made anew when it is asked for."""

    def __init__(self, survey: Survey, make: Callable[..., Any]) -> None:
        """Remembers both; `make` takes index, image, captions, id, group and extra."""
        self._survey, self._make = survey, make

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._survey.kept)

    def __getitem__(self, position: int | slice) -> Any:
        """Returns what is made of one row, or a tuple for those of a slice."""
        if isinstance(position, slice):
            return tuple(self[one] for one in range(*position.indices(len(self))))
        survey, position = self._survey, range(len(self))[position]
        index = survey.kept[position]
        row, place = survey.source[index], survey.found_at[position]
        image = row.image if place < 0 else survey.places.path(row.image, place)
        group = row.group or (os.path.basename(_name(row)) if survey.joint else "")
        identity = survey.new_ids.get(position) or identify(row)
        captions = tuple(survey.captions(row))
        return self._make(index, image, captions, identity, group, row.extra)


def survey(path: str, rows: Sequence[fields.Row], policies: Policies, image_root: str) -> Survey:
    """Returns what is kept of the rows of a list.

    Args:
      path: of the list.
      rows: all of them.
      policies: what is done with which.
      image_root: folder of the pictures, "" for none.

    Raises:
      types.UserError: if a policy says so, nothing is left, or two pictures would be one file.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    found = Survey(rows, paths.Places(folder, image_root), policies)
    ids, texts = selection.Digests(), selection.Digests()
    rebased = _Rebased(found.places)
    first_gone = ""
    seen: set[bytes] = set()
    for index, row in enumerate(rows):
        if policies.splits is not None and row.split not in policies.splits:
            continue
        found.rows += 1
        if policies.repeats == "drop":
            before, picture = len(seen), selection.digest(_name(row))
            seen.add(picture)
            if len(seen) == before:
                found.dropped_repeats += 1
                continue
        captions = clean(row.captions)
        if "" in captions:
            found.empty.add(index)
        kept = found.captions(row)
        found.skipped_empty += len(captions) - len(kept)
        place = found.places.find(row.image) if isinstance(row.image, str) else None
        if place is not None and place < 0:
            first_gone = first_gone or row.image
            found.gone.add(index)
            found.folders[os.path.dirname(row.image)] += 1
        elif kept:
            rebased.add(index, row, place)
            found.kept.append(index)
            found.found_at.append(-1 if place is None else place)
            found.joint = found.joint or bool(row.group)
            found.pairs += len(kept)
            ids.add(identify(row))
            for text in kept:
                texts.add(text)
    _check(path, found, rebased, first_gone)
    found.texts = texts.different()
    found.new_ids = selection.renamed(ids.array(), lambda at: identify(rows[found.kept[at]]))
    return found


def clean(captions: Sequence[Any]) -> list[str]:
    """Returns stripped captions, "" for what is no text; one at least."""
    return [_clean(caption) for caption in captions] or [""]


def identify(row: fields.Row) -> str:
    """Returns the id of the source, or else the picture's file name."""
    return row.id or os.path.basename(_name(row))


class _Rebased:
    """Rows whose picture was found under less than its whole path: two names must not be one."""

    def __init__(self, places: paths.Places) -> None:
        self._places = places
        self._rows: list[int] = []
        self._paths, self._names = selection.Digests(), selection.Digests()

    def add(self, index: int, row: fields.Row, place: int | None) -> None:
        if place is not None and self._places.rebased(place):
            self._rows.append(index)
            self._paths.add(self._places.path(row.image, place))
            self._names.add(row.image)

    def clash(self) -> tuple[int, int] | None:
        """Returns the numbers of two rows whose different names lead to one file."""
        found = selection.clash(self._paths.array(), self._names.array())
        return found and (self._rows[found[0]], self._rows[found[1]])


def _check(path: str, found: Survey, rebased: _Rebased, first_gone: str) -> None:
    if found.empty and found.policies.empty_caption == "error":
        raise types.UserError(
            f"{path}: {found.empty.of(found.rows)} have a caption that is blank, absent or no "
            f"string ({found.empty}); mend them, or set empty_caption to 'skip' or 'keep'"
        )
    clash = rebased.clash()
    if clash:
        one, other = (found.source[index].image for index in clash)
        image = found.places.path(one, found.places.find(one))
        raise types.UserError(
            f"{path}: pictures {one!r} and {other!r} would both be {image}; keep their folders "
            "under image_root"
        )
    if found.gone and found.policies.missing == "error":
        raise paths.missing_error(
            path,
            first_gone,
            found.places,
            count=found.gone.of(found.rows, "pictures"),
            first=str(found.gone),
            folders=found.folders,
        )
    if not found.kept:
        raise types.UserError(f"{path}: all {found.rows} rows were skipped, so nothing is left")


def _clean(caption: Any) -> str:
    if not isinstance(caption, str):
        return ""
    try:
        caption.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates: JSON can say it, UTF-8 cannot
        return ""
    return caption.strip()


def _name(row: fields.Row) -> str:
    return row.image if isinstance(row.image, str) else row.image.name
