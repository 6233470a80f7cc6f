"""What preflight found in a list: faults, notes, and both as text for people."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hnclip_jax import types
from hnclip_jax.data import images
from hnclip_jax.data.checks import encoding

_SHOWN = 5
"""Examples of a finding in the text; a result file holds all."""


class Folder(NamedTuple):
    """Pictures that are missing from a folder of the list: how many of how many, and which."""

    missing: int
    named: int
    names: tuple[str, ...]


class Undecodable(NamedTuple):
    """A picture that cannot be used, the first row that names it, and why."""

    row: int
    name: str
    reason: str


class Clean(NamedTuple):
    """A row without faults: a picture that can be read, and at least one caption."""

    image: images.Reference
    captions: tuple[str, ...]
    id: str = ""
    split: str = ""
    group: str = ""
    extra: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Findings:
    """What is wrong with a list, then what else there is to know.

    path, kind, sha256: the list, its format, the hash of its content.
    rows, pictures, captions: rows; different pictures that exist; captions that can be used.
    not_utf8: lines that are no UTF-8. Where there are any, nothing else was looked at.
    missing: folder, as the list writes it, -> what is missing from it.
    undecodable: pictures that exist but cannot be used.
    clashes: file -> the different names, of which only the last parts are its own, that lead to it.
    unusable: "empty", "no text" or "broken text" -> the rows with such a caption.
    shared_pictures: pictures that several rows name.
    same_pictures: names of pictures that are equal pixel by pixel, in groups.
    same_captions: rows of captions that are equal as text, in groups.
    cut: context length -> captions that are longer.
    same_cut: context length -> captions of a text of their own that repeat another once cut.
    kinds: what pictures are other than plain RGB files -> how many.
    large: name, width and height of pictures above kinds.LARGE pixels.
    clean: the rows that are left without what is at fault.
    """

    path: str
    kind: str = ""
    sha256: str = ""
    rows: int = 0
    pictures: int = 0
    captions: int = 0
    not_utf8: tuple[encoding.Fault, ...] = ()
    missing: dict[str, Folder] = dataclasses.field(default_factory=dict)
    undecodable: tuple[Undecodable, ...] = ()
    clashes: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    unusable: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    shared_pictures: int = 0
    same_pictures: tuple[tuple[str, ...], ...] = ()
    same_captions: tuple[tuple[int, ...], ...] = ()
    cut: dict[int, int] = dataclasses.field(default_factory=dict)
    same_cut: dict[int, int] = dataclasses.field(default_factory=dict)
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    large: tuple[tuple[str, int, int], ...] = ()
    clean: tuple[Clean, ...] = dataclasses.field(default=(), repr=False)

    def faults(self) -> dict[str, int]:
        """Returns what would stop or spoil a run -> how often; {} for a list that is in order."""
        found = {
            "lines that are not UTF-8": len(self.not_utf8),
            "missing pictures": sum(folder.missing for folder in self.missing.values()),
            "undecodable pictures": len(self.undecodable),
            "pictures with several names": len(self.clashes),
            "empty captions": len(self.unusable.get("empty", ())),
            "captions that are no text": len(self.unusable.get("no text", ())),
            "captions of broken text": len(self.unusable.get("broken text", ())),
        }
        return {what: count for what, count in found.items() if count}

    def to_json(self) -> dict[str, Any]:
        """Returns all but the clean rows, as JSON values."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del found["clean"]
        found["not_utf8"] = [fault._asdict() for fault in self.not_utf8]
        found["missing"] = {folder: what._asdict() for folder, what in self.missing.items()}
        found["undecodable"] = [picture._asdict() for picture in self.undecodable]
        return {**found, "faults": self.faults(), "clean_rows": len(self.clean)}

    def text(self) -> str:
        """Returns the report: what was read, the faults, the notes."""
        if self.not_utf8:
            lines = ["faults", *_section("lines not UTF-8", len(self.not_utf8), self.not_utf8)]
            lines.append("  the rest was not looked at; save the list as UTF-8, say with iconv")
            return "\n".join([self.path, "", *lines])
        head = [
            f"{self.path}",
            f"  {self.rows:,} rows, {self.pictures:,} pictures, {self.captions:,} captions "
            f"({self.kind}, sha256 {self.sha256[:16]}); rows count from 0",
        ]
        faults = self._faults() or ["  none"]
        return "\n".join([*head, "", "faults", *faults, "", "notes", *self._notes()])

    def _faults(self) -> list[str]:
        lines = []
        if self.missing:
            folders = [
                f"{folder or '.'}: {what.missing:,} of {what.named:,}, "
                + types.at_most_ten(what.names[:_SHOWN])
                + (", ..." if len(what.names) > _SHOWN else "")
                for folder, what in self.missing.items()
            ]
            count = sum(what.missing for what in self.missing.values())
            lines += _section("missing pictures", count, folders, shown=10)
        if self.undecodable:
            reasons = [f"row {row}, {name}: {reason}" for row, name, reason in self.undecodable]
            lines += _section("undecodable", len(reasons), reasons, shown=10)
        if self.clashes:
            names = [f"{path}: {', '.join(names[:_SHOWN])}" for path, names in self.clashes.items()]
            lines += _section("names for one file", len(names), names)
        for what, rows in self.unusable.items():
            label = {"empty": "empty captions"}.get(what, f"captions: {what}")
            lines.append(_line(label, len(rows), _rows(rows)))
        return lines

    def _notes(self) -> list[str]:
        lines = []
        for context, count in self.cut.items():
            share = f"{count / max(self.captions, 1):.1%} of the captions"
            lines.append(_line(f"cut at {context} tokens", count, share))
        equal = [_rows(rows) for rows in self.same_captions]
        lines += _section(
            "captions repeated", _repeated(self.same_captions), equal, "equal as text"
        )
        lines += [
            _line(f"equal cut at {context}", count, "differ as text only beyond the cut")
            for context, count in self.same_cut.items()
            if count
        ]
        if self.shared_pictures:
            lines.append(_line("pictures shared", self.shared_pictures, "by several rows"))
        groups = [_equal(group) for group in self.same_pictures]
        lines += _section(
            "pictures repeated", _repeated(self.same_pictures), groups, "equal pixel by pixel"
        )
        for kind, count in self.kinds.items():
            lines.append(_line(kind, count, "pictures"))
        large = [f"{name}: {width} x {height}" for name, width, height in self.large]
        if large:
            lines += _section("large pictures", len(large), large, "take long to decode")
        return lines


def label(reference: images.Reference, folder: str) -> str:
    """Returns what a picture is called: its path, from the list's folder if it is below that."""
    name = str(reference)
    inside = isinstance(reference, str) and name.startswith(os.path.join(folder, ""))
    return os.path.relpath(name, folder) if inside else name


def _section(
    label: str, count: int, items: Sequence[Any], what: str = "", shown: int = _SHOWN
) -> list[str]:
    lines = [_line(label, count, what)]
    lines += [f"      {_printable(str(item))}" for item in items[:shown]]
    more = len(items) - shown
    return [*lines, f"      and {more:,} more"] if more > 0 else lines


def _line(label: str, count: int, what: str = "") -> str:
    return f"  {label:<22} {count:>9,}  {what}".rstrip()


def _repeated(groups: Sequence[Sequence]) -> int:
    return sum(len(group) - 1 for group in groups)


def _equal(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return " = ".join(names[:2]) + more


def _rows(rows: Sequence[int]) -> str:
    return f"row{'s' * (len(rows) > 1)} {types.at_most_ten([str(row) for row in rows])}"


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]
