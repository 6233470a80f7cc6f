"""List files (JSON or JSON lines) to checked records of one picture and its captions.

The container is found from the content, the keys from the aliases below, and everything is checked
before anything is returned. A training example is a pair: each caption of a record makes its own.
"""

import dataclasses
import difflib
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from hnclip_jax import types

IMAGE_KEYS = ("original_filename", "filename", "filepath", "image_file", "image", "file_name")
"""Where a record's picture stands: the first key that is there."""

TEXT_KEYS = (
    "original_caption", "caption", "title", "description", "paragraph", "conversations", "sentences"
)  # fmt: skip
"""Where its text stands, likewise: a string, a list of strings, conversations[1].value or
sentences[*].raw."""

_MISSING = ("error", "skip")
_EMPTY_CAPTION = ("error", "skip", "keep")
_FORMATS = (
    'needed are a JSON array, JSON lines, or {"annotations": [...]} without "images", '
    'of rows like {"filename": "a.jpg", "caption": "A red kite."}'
)


@dataclasses.dataclass(frozen=True)
class Record:
    """One row: its number in the file, from 0; a picture that exists; at least one caption."""

    index: int
    image: str
    captions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Report:
    """What reading found.

    rows: rows of the file.
    pairs: pictures times their captions, as kept.
    skipped_missing: rows left out because their picture is missing.
    skipped_empty: captions left out because they are blank, or no text at all.
    duplicates: kept captions whose text stands earlier in the list.
    """

    rows: int
    pairs: int
    skipped_missing: int
    skipped_empty: int
    duplicates: int


@dataclasses.dataclass(frozen=True)
class PictureList:
    """The records of the list file at `path`, whose content has this SHA-256 (hexadecimal)."""

    records: tuple[Record, ...]
    report: Report
    path: str
    sha256: str


def read(
    path: str | os.PathLike,
    *,
    image_root: str = "",
    missing: str = "error",
    empty_caption: str = "error",
) -> PictureList:
    """Returns the records of a list file.

    A picture's path is tried as it is if absolute; else from the list's folder, from the folder
    above, from `image_root`; in the end its bare name is looked up in `image_root`.

    Args:
      path: JSON array, JSON lines, or {"annotations": [...]}; UTF-8, a byte-order mark is ignored.
      image_root: folder of the pictures, where the list's own paths do not lead to them.
      missing: what a missing picture does: "error" or "skip".
      empty_caption: what a caption does that is blank, absent or no string: "error", "skip" or
        "keep" (as the empty string). An empty list of captions counts as one empty caption.

    Raises:
      types.UserError: if the list cannot be read, or rows do not fit: how many, and the first ones.
    """
    for policy, choices in ((missing, _MISSING), (empty_caption, _EMPTY_CAPTION)):
        if policy not in choices:
            raise types.unknown_name("policy", policy, choices)
    path = os.path.abspath(path)
    content = _content(path)
    rows = _rows(path, _text(path, content))
    names = _image_names(path, rows)
    captions = _captions(path, rows, empty_caption)
    paths = _resolve(path, names, os.path.abspath(image_root) if image_root else "", missing)
    records, skipped_empty = [], 0
    for index, (image, texts) in enumerate(zip(paths, captions, strict=True)):
        kept = tuple(text for text in texts if text or empty_caption == "keep")
        skipped_empty += len(texts) - len(kept)
        if image and kept:
            records.append(Record(index, image, kept))
    if not records:
        raise types.UserError(f"{path}: all {len(rows)} rows were skipped, so nothing is left")
    texts = [text for _, text in pairs(records)]
    report = Report(
        rows=len(rows),
        pairs=len(texts),
        skipped_missing=paths.count(""),
        skipped_empty=skipped_empty,
        duplicates=len(texts) - len(set(texts)),
    )
    return PictureList(tuple(records), report, path, hashlib.sha256(content).hexdigest())


def pairs(records: Sequence[Record]) -> list[tuple[int, str]]:
    """Returns (position in `records`, caption) of every pair, record after record."""
    return [(position, text) for position, row in enumerate(records) for text in row.captions]


def pair_ids(records: Sequence[Record]) -> np.ndarray:
    """Returns [n] int32 ids of the n pairs, in the order of `pairs`.

    Pairs of one picture have equal ids, and so have pairs of one caption text, and pairs that a
    chain of those connects. Equal ids mean: no negatives of each other.
    """
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        while (parent := parents.setdefault(node, node)) != node:
            parents[node] = parents[parent]
            node = parent
        return node

    pictures = [("picture", records[position].image) for position, _ in pairs(records)]
    for picture, (_, caption) in zip(pictures, pairs(records), strict=True):
        parents[root(("caption", caption))] = root(picture)
    numbers: dict[tuple[str, str], int] = {}
    return np.array([numbers.setdefault(root(p), len(numbers)) for p in pictures], np.int32)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        folder, name = os.path.split(path)
        others = {*os.listdir(folder)} - {name} if os.path.isdir(folder) else ()
        nearest = difflib.get_close_matches(name, others, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "give the path of a list file"
        raise types.UserError(f"cannot read list {path}: {error.strerror}; {hint}") from error


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise types.UserError(
            f"{path}: line {line}, byte {error.start} of the file (0x{byte:02x}), is not UTF-8; "
            "save the list as UTF-8"
        ) from None


def _rows(path: str, text: str) -> list[dict[str, Any]]:
    start = text.lstrip()[:20]
    if start.startswith("["):
        rows = _parse(path, text)
    elif start.startswith("{"):
        rows = _rows_of_objects(path, text)
    else:
        found = f"begins with {start!r}" if start else "is empty"
        raise types.UserError(f"{path} {found}; {_FORMATS}")
    if not rows:
        raise types.UserError(f"{path} holds no rows; {_FORMATS}")
    wrong = [index for index, row in enumerate(rows) if not isinstance(row, dict)]
    if wrong:
        raise types.UserError(
            f"{path}: {len(wrong)} of {len(rows)} rows are no objects ({_first(wrong)}); {_FORMATS}"
        )
    return rows


def _rows_of_objects(path: str, text: str) -> list[Any]:
    # Not splitlines: it would also cut at the line separators that JSON allows inside a string.
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    try:
        json.loads(lines[0][1])
    except json.JSONDecodeError:
        lines = [(1, text)]  # one object, over several lines
    rows = [_parse(path, line, number) for number, line in lines]
    whole = rows[0]
    if len(rows) > 1 or any(key in whole for key in IMAGE_KEYS):
        return rows
    if "images" not in whole and isinstance(whole.get("annotations"), list):
        return whole["annotations"]
    raise types.UserError(f"{path} is one object with the keys {_keys(whole)}; {_FORMATS}")


def _parse(path: str, text: str, first_line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise types.UserError(
            f"{path}: no valid JSON at line {line}, column {error.colno}: {error.msg}"
        ) from None


def _image_names(path: str, rows: list[dict[str, Any]]) -> list[str]:
    names = [row.get(_key(row, IMAGE_KEYS)) for row in rows]
    wrong = [index for index, name in enumerate(names) if not isinstance(name, str) or not name]
    if wrong:
        raise types.UserError(
            f"{path}: {len(wrong)} of {len(rows)} rows name no picture ({_first(wrong)}); the first"
            f" has the keys {_keys(rows[wrong[0]])}, but needs a path in one of "
            f"{', '.join(IMAGE_KEYS)}"
        )
    return names


def _captions(path: str, rows: list[dict[str, Any]], empty_caption: str) -> list[list[str]]:
    """Returns the stripped captions of every row, "" for what is none."""
    if not any(_key(row, TEXT_KEYS) for row in rows):
        raise types.UserError(
            f"{path}: no row has a caption; row 0 has the keys {_keys(rows[0])}, but one of "
            f"{', '.join(TEXT_KEYS)} is needed"
        )
    captions = [_texts(row) for row in rows]
    wrong = [index for index, texts in enumerate(captions) if "" in texts]
    if wrong and empty_caption == "error":
        raise types.UserError(
            f"{path}: {len(wrong)} of {len(rows)} rows have a caption that is blank, absent or no "
            f"string ({_first(wrong)}); mend them, or set empty_caption to 'skip' or 'keep'"
        )
    return captions


def _texts(row: dict[str, Any]) -> list[str]:
    key = _key(row, TEXT_KEYS)
    value = row.get(key)
    if key == "conversations":
        value = value[1] if isinstance(value, list) and len(value) > 1 else None
        value = value.get("value") if isinstance(value, dict) else None
    texts = value if isinstance(value, list) else [value]
    if key == "sentences":
        texts = [text.get("raw") if isinstance(text, dict) else text for text in texts]
    return [text.strip() if isinstance(text, str) else "" for text in texts] or [""]


def _resolve(path: str, names: list[str], image_root: str, missing: str) -> list[str]:
    """Returns the path of every picture, "" for those that are missing."""
    folder = os.path.dirname(path)
    found = [next(filter(os.path.isfile, _candidates(n, folder, image_root)), "") for n in names]
    by_name_alone: dict[str, str] = {}
    for name, image in zip(names, found, strict=True):
        if image and not image.endswith(name) and by_name_alone.setdefault(image, name) != name:
            raise types.UserError(
                f"{path}: pictures {by_name_alone[image]!r} and {name!r} would both be {image}; "
                "keep their folders under image_root"
            )
    gone = [index for index, image in enumerate(found) if not image]
    if gone and missing == "error":
        name = names[gone[0]]
        tried = ", ".join(_candidates(name, folder, image_root))
        raise types.UserError(
            f"{path}: {len(gone)} of {len(names)} pictures are missing ({_first(gone)}); the first,"
            f" {name!r}, is none of {tried}; set image_root to their folder, or missing to 'skip'"
        )
    return found


def _candidates(name: str, folder: str, image_root: str) -> list[str]:
    # join leaves an absolute name as it is, so that one is tried once.
    tried = [os.path.join(folder, name), os.path.join(os.path.dirname(folder), name)]
    if image_root:
        tried += [os.path.join(image_root, part) for part in (name, os.path.basename(name))]
    return list(dict.fromkeys(tried))


def _key(row: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((key for key in keys if key in row), None)


def _keys(row: dict[str, Any]) -> str:
    return ", ".join(repr(key) for key in list(row)[:10]) or "(none)"


def _first(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:5]))
    return f"row {shown}{', ...' if len(indices) > 5 else ''}, counted from 0"
