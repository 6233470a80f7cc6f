"""What a row of any list is, and which fields of a record make it.

The first key that is there decides: a record with both `original_filename` and `file_name` is known
by the former. What methods need beside (EXTRA_KEYS) is kept as it is; all else is ignored.
"""

import json
import posixpath
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hnclip_jax import types
from hnclip_jax.data import blobs, compact

IMAGE_KEYS = ("original_filename", "filename", "filepath", "image_file", "image", "file_name")
"""Where a record's picture stands: the first key that is there."""

TEXT_KEYS = (
    "original_caption", "caption", "title", "description", "paragraph", "conversations",
    "sentences", "raw",
)  # fmt: skip
"""Where its text stands, likewise: a string, a list of strings, conversations[1].value or
sentences[*].raw."""

ID_KEYS = ("id", "example_id", "cocoid", "image_id", "img_id", "imgid")
"""Where its name for evaluations stands, likewise."""

EXTRA_KEYS = ("segment", "original_filename_structure", "negative_caption")
"""What methods read of a record in JSON, beside picture and text; see data/inputs.py."""

_PARTS = "_results"
"""How GOAL's folders of a picture's cut-out parts end."""


class Extra(Mapping):
    """Some values of a record, as JSON has them; each look makes them anew.

    The segments of ten thousand pictures are sixty megabytes as Python objects, in every process
    that loads data, and six like this.
    """

    __slots__ = ("_packed",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Keeps `values`."""
        self._packed = zlib.compress(json.dumps(values).encode(), 1)

    def __getitem__(self, key: str) -> Any:
        """Returns a value."""
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        """Yields the keys."""
        return iter(self._values())

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._values())

    def __repr__(self) -> str:
        """Returns it as a dict is shown."""
        return repr(self._values())

    def _values(self) -> dict[str, Any]:
        return json.loads(zlib.decompress(self._packed))


class Row(NamedTuple):
    """What a list says about one picture, before any check.

    image: path as written, or where its bytes are.
    captions: as found; may hold what is no string. Empty: there is none.
    id: of the source, "" if it has none. Numbers are padded, so that they sort as such.
    split: "" if the source names none.
    group: for a part that was cut out of a picture, the file name of that picture; else "".
    extra: raw values of those EXTRA_KEYS that it has; only lists in JSON have any.
    """

    image: str | blobs.Blob
    captions: list[Any]
    id: str = ""
    split: str = ""
    group: str = ""
    extra: Mapping[str, Any] = {}


class Rows(NamedTuple):
    """rows: in the order of the source; sha256: of its content (hexadecimal); kind: the format."""

    rows: Sequence[Row]
    sha256: str
    kind: str


class Collector:
    """Takes records one after the other and remembers which of them are no rows, and why."""

    def __init__(
        self,
        path: str,
        image_keys: Sequence[str] = IMAGE_KEYS,
        extra_keys: Sequence[str] = (),
    ) -> None:
        """Begins; `path` is for messages, of `extra_keys` the rows keep the values."""
        self.rows = compact.Compact()
        self._path, self._image_keys, self._extra_keys = path, image_keys, extra_keys
        self._count = 0
        self._captioned = False
        self._first_keys, self._nameless_keys = "", ""
        self._no_objects, self._nameless = Marked(), Marked()

    def add(self, record: Any) -> None:
        """Adds the row that a record makes."""
        index, self._count = self._count, self._count + 1
        if not isinstance(record, dict):
            self._no_objects.add(index)
            return
        self._first_keys = self._first_keys or key_list(record)
        self._captioned = self._captioned or first_key(record, TEXT_KEYS) is not None
        row = from_record(record, self._extra_keys)
        if row is None:
            self._nameless_keys = self._nameless_keys or key_list(record)
            self._nameless.add(index)
        else:
            self.rows.append(row)

    def __len__(self) -> int:
        """Returns how many records were added."""
        return self._count

    def finish(self, needed: str) -> compact.Compact:
        """Returns the rows.

        Raises:
          types.UserError: if there are none, or some records are no rows: how many, the first ones,
            and what would have been `needed`.
        """
        if not self._count:
            raise types.UserError(f"{self._path} holds no rows; {needed}")
        if self._no_objects:
            raise types.UserError(
                f"{self._path}: {self._no_objects.of(self._count)} are no objects "
                f"({self._no_objects}); {needed}"
            )
        if self._nameless:
            raise types.UserError(
                f"{self._path}: {self._nameless.of(self._count)} name no picture "
                f"({self._nameless}); the first has the keys {self._nameless_keys}, but needs a "
                f"path in one of {', '.join(self._image_keys)}"
            )
        if not self._captioned:
            raise types.UserError(
                f"{self._path}: no row has a caption; row 0 has the keys {self._first_keys}, but "
                f"one of {', '.join(TEXT_KEYS)} is needed"
            )
        return self.rows


class Marked:
    """Counts rows that have something wrong, and keeps the numbers of the first five."""

    def __init__(self) -> None:
        """Begins with none."""
        self.count = 0
        self.first: list[int] = []

    def add(self, index: int) -> None:
        """Marks a row."""
        self.count += 1
        if len(self.first) < 5:
            self.first.append(index)

    def of(self, rows: int, what: str = "rows") -> str:
        """Returns how many of how many."""
        return f"{self.count} of {rows} {what}"

    def __bool__(self) -> bool:
        """Returns whether any row is marked."""
        return self.count > 0

    def __str__(self) -> str:
        """Returns the numbers of the first rows, for messages."""
        more = ", ..." if self.count > len(self.first) else ""
        return f"row {', '.join(map(str, self.first))}{more}, counted from 0"


def from_record(record: Mapping[str, Any], extra_keys: Sequence[str] = ()) -> Row | None:
    """Returns the row of a record, None if it names no picture; it keeps values of `extra_keys`."""
    image = _image(record)
    if image is None:
        return None
    split, group = record.get("split"), record.get("group")
    extra = {key: record[key] for key in extra_keys if key in record}
    return Row(
        image,
        captions(record),
        identity(record.get(first_key(record, ID_KEYS))),
        split if isinstance(split, str) else "",
        group if isinstance(group, str) and group else _picture_of_part(image),
        Extra(extra) if extra else {},
    )


def captions(record: Mapping[str, Any]) -> list[Any]:
    """Returns what stands for the captions of a record; [None] where there is nothing."""
    key = first_key(record, TEXT_KEYS)
    value = record.get(key)
    if key == "conversations":
        value = value[1] if isinstance(value, list) and len(value) > 1 else None
        value = value.get("value") if isinstance(value, dict) else None
        value = value.replace("\n", " ") if isinstance(value, str) else value
    texts = value if isinstance(value, list) else [value]
    if key == "sentences":
        texts = [text.get("raw") if isinstance(text, dict) else text for text in texts]
    return texts


def identity(value: Any) -> str:
    """Returns an id as text: numbers with leading zeros, so that they sort; "" for no id."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return ""
    text = str(value)
    return text.zfill(12) if text.isascii() and text.isdigit() else text


def first_key(record: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Returns the first of `keys` that a record has."""
    return next((key for key in keys if key in record), None)


def key_list(record: Mapping[str, Any]) -> str:
    """Returns the first ten keys of a record, for messages."""
    return types.at_most_ten([repr(key) for key in record]) or "(none)"


def _image(record: Mapping[str, Any]) -> str | None:
    key = first_key(record, IMAGE_KEYS)
    if key is None:
        # Visual Genome's paragraphs have an address instead, whose end is folder and file.
        parts = str(record.get("url")).split("/")[-2:]
        return "/".join(parts) if parts[0].startswith("VG_100K") else None
    image = record[key]
    return image if isinstance(image, str) and image else None


def _picture_of_part(image: str) -> str:
    folder = posixpath.basename(posixpath.dirname(image))
    return folder.removesuffix(_PARTS) if folder.endswith(_PARTS) else ""
