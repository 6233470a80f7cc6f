"""What of one list is in another: both read, compared, and told as text."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from hnclip_jax.data import images, lists
from hnclip_jax.data.checks import findings, hashes, overlap
from hnclip_jax.data.checks import workers as workers_lib

Progress = Callable[[int, int], None]

_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Leakage:
    """The overlap of list A with list B.

    a, b: the lists.
    pictures: matches; positions are those of `a_pictures` and `b_pictures`.
    captions: matches; positions are those of lists.pairs.
    a_pictures, b_pictures: the different pictures of each list.
    undecodable: pictures of A and of B that could not be compared.
    """

    a: lists.PictureList
    b: lists.PictureList
    pictures: tuple[overlap.Match, ...]
    captions: tuple[overlap.Match, ...]
    a_pictures: tuple[images.Reference, ...]
    b_pictures: tuple[images.Reference, ...]
    undecodable: tuple[int, int]

    def rest(self) -> list[findings.Clean]:
        """Returns the rows of A of which neither the picture nor a caption is in B."""
        leaked = {self.a_pictures[match.a] for match in self.pictures}
        pairs = lists.pairs(self.a.records)
        spoilt = {pairs[match.a][0] for match in self.captions}
        return [
            findings.Clean(record.image, record.captions, record.id, "", record.group, record.extra)
            for position, record in enumerate(self.a.records)
            if record.image not in leaked and position not in spoilt
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns all matches as JSON values."""
        return {
            "a": {"list": self.a.path, "sha256": self.a.sha256, "pictures": len(self.a_pictures)},
            "b": {"list": self.b.path, "sha256": self.b.sha256, "pictures": len(self.b_pictures)},
            "undecodable": self.undecodable,
            "pictures": [{"a": a, "b": b, "kind": kind} for a, b, kind in self._named_pictures()],
            "captions": [{"a": a, "b": b, "kind": kind} for a, b, kind in self._named_captions()],
            "rows_left": len(self.rest()),
        }

    def text(self) -> str:
        """Returns the report."""
        lines = [
            f"{name}  {side.path}: {len(pictures):,} pictures, {self._count(side):,} captions"
            for name, side, pictures in (
                ("A", self.a, self.a_pictures),
                ("B", self.b, self.b_pictures),
            )
        ]
        lines += [
            "",
            *_section(
                "pictures of A that are in B",
                self.pictures,
                (len(self.a_pictures), len(self.b_pictures)),
                ("same pixels", "look the same"),
                [f"{a} = {b}" for a, b, _ in self._named_pictures()],
            ),
            *_section(
                "captions of A that are in B",
                self.captions,
                (self._count(self.a), self._count(self.b)),
                ("same text", "same words"),
                [f"{_short(a)} = {_short(b)}" for a, b, _ in self._named_captions()],
            ),
            f"{len(self.rest()):,} of {len(self.a.records):,} rows of A have neither",
        ]
        if any(self.undecodable):
            a, b = self.undecodable
            lines.append(f"{a:,} pictures of A and {b:,} of B could not be decoded")
        return "\n".join(lines)

    @staticmethod
    def _count(pictures: lists.PictureList) -> int:
        return len(lists.pairs(pictures.records))

    def _named_pictures(self) -> list[tuple[str, str, str]]:
        folders = [
            s.path if os.path.isdir(s.path) else os.path.dirname(s.path) for s in (self.a, self.b)
        ]
        return [
            (
                findings.label(self.a_pictures[a], folders[0]),
                findings.label(self.b_pictures[b], folders[1]),
                kind,
            )
            for a, b, kind in self.pictures
        ]

    def _named_captions(self) -> list[tuple[str, str, str]]:
        a, b = (lists.pairs(side.records) for side in (self.a, self.b))
        return [(a[match.a][1], b[match.b][1], match.kind) for match in self.captions]


def find(
    a: lists.PictureList,
    b: lists.PictureList,
    *,
    options: images.Options = images.DEFAULT,
    radius: int = overlap.RADIUS,
    workers: int = workers_lib.ALL_CORES,
    progress: Sequence[Progress | None] = (None, None, None),
) -> Leakage:
    """Returns which pictures and captions of A are in B.

    Args:
      a, b: the lists.
      options: how files become pixels.
      radius: bits by which perceptual hashes may differ, before thumbnails decide.
      workers: processes that read; 0 = this one, -1 = one per core.
      progress: of reading A, reading B, and comparing; called with (pictures done, pictures).
    """
    take = hashes.Take(options)
    sides = [tuple(dict.fromkeys(record.image for record in s.records)) for s in (a, b)]
    prints = [
        workers_lib.each(take, side, workers=workers, progress=bar)
        for side, bar in zip(sides, progress[:2], strict=True)
    ]
    texts = [[text for _, text in lists.pairs(s.records)] for s in (a, b)]
    return Leakage(
        a,
        b,
        tuple(overlap.pictures(*prints, radius=radius, progress=progress[2])),
        tuple(overlap.captions(*texts)),
        *sides,
        tuple(sum(bool(print_.fault) for print_ in side) for side in prints),
    )


def _section(
    title: str,
    matches: Sequence[overlap.Match],
    sizes: tuple[int, int],
    words: tuple[str, str],
    names: Sequence[str],
) -> list[str]:
    lines = [
        f"{title}: {len(matches):,} ({len(matches) / max(sizes[0], 1):.1%} of A; "
        f"{len({match.b for match in matches}):,} of the {sizes[1]:,} of B)"
    ]
    for kind, what in zip((overlap.SAME, overlap.ALIKE), words, strict=True):
        of_kind = [name for m, name in zip(matches, names, strict=True) if m.kind == kind]
        lines.append(f"  {what:<14}{len(of_kind):>9,}")
        lines += [f"      {name}" for name in of_kind[:_SHOWN]]
        lines += [f"      and {len(of_kind) - _SHOWN:,} more"] * (len(of_kind) > _SHOWN)
    return [*lines, ""]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
